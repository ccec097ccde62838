// Parses a command line as every tool does.
#ifndef RETROGRAD_TOOLS_SUPPORT_PARSE_ARGUMENTS_H_
#define RETROGRAD_TOOLS_SUPPORT_PARSE_ARGUMENTS_H_

#include <optional>

namespace CLI {
class App;
}

namespace retrograd {

// nullopt if the tool is to go on. Otherwise its exit status: 0 after printing help or the
// version, 2 after a mistake, which is one line on stderr.
std::optional<int> ParseArguments(CLI::App& app, int argc, char** argv);

}  // namespace retrograd

#endif  // RETROGRAD_TOOLS_SUPPORT_PARSE_ARGUMENTS_H_
