#include "tools/support/parse_arguments.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <limits>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace retrograd {

std::optional<int> ParseArguments(CLI::App& app, int argc, char** argv) {
  app.set_version_flag("--version", app.get_name() + " " RETROGRAD_VERSION);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp& help) {
    return app.exit(help);
  } catch (const CLI::CallForAllHelp& help) {
    return app.exit(help);
  } catch (const CLI::CallForVersion& version) {
    return app.exit(version);
  } catch (const CLI::ParseError& error) {
    std::fprintf(stderr, "%s: %s; see --help\n", argv[0], error.what());
    return 2;
  }
  return std::nullopt;
}

void TakeSeeds(CLI::Option* option, uint64_t least) {
  const auto refusal = [least](const std::string& text) -> std::string {
    uint64_t seed = 0;
    if (absl::SimpleAtoi(text, &seed) && seed >= least) return "";
    return absl::StrCat("Value ", text, " not in range ", least, " to ",
                        std::numeric_limits<uint64_t>::max());
  };
  option->check(refusal, "UINT64");
}

}  // namespace retrograd
