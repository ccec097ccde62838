// Parses a command line as every tool does.
#ifndef RETROGRAD_TOOLS_SUPPORT_PARSE_ARGUMENTS_H_
#define RETROGRAD_TOOLS_SUPPORT_PARSE_ARGUMENTS_H_

#include <cstdint>
#include <optional>
#include <string>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace retrograd {

// nullopt if the tool is to go on. Otherwise its exit status: 0 after printing help or the
// version, 2 after a mistake, which is one line on stderr.
std::optional<int> ParseArguments(CLI::App& app, int argc, char** argv);

// Makes an option take whole numbers from `least` to 2^64 - 1 alone: the parser by itself reads
// what is beyond as another number.
void TakeSeeds(CLI::Option* option, uint64_t least);

}  // namespace retrograd

#endif  // RETROGRAD_TOOLS_SUPPORT_PARSE_ARGUMENTS_H_
