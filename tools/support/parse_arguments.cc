#include "tools/support/parse_arguments.h"

#include <CLI/CLI.hpp>
#include <cstdio>

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

}  // namespace retrograd
