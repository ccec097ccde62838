// Prints how well registers are predicted: every distinct kernel of the captured graphs, compiled
// by the device's run-time compiler.

#include <CLI/CLI.hpp>
#include <cstdio>

#include "graph/base/status.h"
#include "tools/fit/register_samples.h"
#include "tools/support/parse_arguments.h"
#include "tools/support/pipeline.h"
#include "tools/support/text_file.h"

namespace {

constexpr char kNote[] = R"(Examples:
  register-table
  register-table --spec mi250x --seed 0 --seed 1 --seed 2
  register-table --seed 0 --seed 1 --every-candidate 3 --json registers.json

An error is |predicted - reported| / reported registers of a thread. A surprise is a kernel that
spills and was not predicted to; the exit status is 1 if there is one.)";

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Predicted registers against a run-time compiler's, by kind of launch.",
               "register-table");
  app.footer(kNote);
  retrograd::RegisterSampleOptions options;
  std::string spec = "h200", json, commit;
  app.add_option("--spec", spec, "Device to plan and predict for")->capture_default_str();
  app.add_option("--arch", options.arch, "What to compile for; default: the spec's");
  app.add_option("--graph", options.graphs, "A graph; repeatable; default: all captured ones")
      ->allow_extra_args(false);
  CLI::Option* seeds =
      app.add_option("--seed", options.seeds, "Plans: 0 the best, else any legal one; repeatable");
  seeds->allow_extra_args(false);
  retrograd::TakeSeeds(seeds, 0);
  app.add_option("--every-candidate", options.every_candidate,
                 "Of the other schedules of each kernel, every n-th too");
  app.add_option("--json", json, "Write the table and every kernel's counts to this file");
  app.add_option("--commit", commit, "Noted in the file");
  if (const std::optional<int> done = retrograd::ParseArguments(app, argc, argv)) return *done;

  const auto device = retrograd::LoadDeviceSpec(spec);
  if (!device.ok()) return retrograd::Report("register-table", device.status());
  const auto samples = retrograd::MeasureRegisters(*device, options);
  if (!samples.ok()) return retrograd::Report("register-table", samples.status());
  const std::string table = retrograd::PrintTable(*samples);
  std::fwrite(table.data(), 1, table.size(), stdout);
  if (!json.empty()) {
    std::string command = "register-table";
    for (int i = 1; i < argc; ++i) {
      if (argv[i] == std::string("--json") || argv[i] == std::string("--commit")) {
        ++i;
      } else {
        command += std::string(" ") + argv[i];
      }
    }
    const absl::Status written =
        retrograd::WriteTextFile(json, retrograd::ToJson(*samples, device->name, command, commit));
    if (!written.ok()) return retrograd::Report("register-table", written);
  }
  return retrograd::Summarise(samples->samples).back().surprises == 0 ? 0 : 1;
}
