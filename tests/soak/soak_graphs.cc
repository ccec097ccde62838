// Random graphs through planning, code generation and a device, against the reference evaluator.
//
// Graph number n is drawn from seed n, retyped to float64 and planned in way n of
// WaysOfPlanning(n): the same graph in the same way on every machine. One line of JSON tells what
// was run; a graph that fails is told on standard error and in the line, and the exit status is
// then 1. A graph that kills the process is named on standard error.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "fusion/kernel/templates/kernel_template.h"
#include "graph/base/status.h"
#include "graph/passes/retype.h"
#include "graph/text/text.h"
#include "tests/support/graphs/random_graph.h"
#include "tests/support/plans/compare_outputs.h"
#include "tests/support/plans/ways_of_planning.h"
#include "tools/execute/make_device.h"
#include "tools/support/parse_arguments.h"
#include "tools/support/pipeline.h"

namespace retrograd {
namespace {

constexpr double kTolerance = 1e-10;  // of the magnitude: any error in the flow of data is larger

std::atomic<uint32_t> running_seed = 0;

// Tells the seed that was run and leaves the signal to do what it does. Writes digit by digit:
// little is allowed in a signal handler.
void TellSeed(int signal) {
  char text[] = "killed at seed           \n";
  size_t at = sizeof(text) - 3;
  for (uint32_t rest = running_seed; rest != 0; rest /= 10) {
    text[at--] = static_cast<char>('0' + rest % 10);
  }
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text, sizeof(text) - 1);
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

void TellSeedOnDeath() {
  for (const int signal : {SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGTERM}) {
    std::signal(signal, TellSeed);
  }
}

struct SoakArguments {
  std::string device = "host";
  uint32_t first = 1, stride = 1;
  int64_t most = 1'000'000'000;
  double seconds = 60;
};

struct Tally {
  int64_t graphs = 0, kernels = 0;
  std::map<std::string, int64_t> templates;  // kernels of each
  std::vector<std::string> failures;
  uint32_t next = 1;  // the first seed that was not run
};

void CountKernels(const FusionPlan& plan, Tally& tally) {
  for (const Group& group : plan.groups) {
    for (const KernelBody* kernel : KernelsOf(group)) {
      ++tally.kernels;
      ++tally.templates[std::string(TemplateOf(kernel->schedule).name)];
    }
  }
}

// A plan for another device, or of wavefronts that it has not, is the host's alone.
bool RunsOn(const Way& way, absl::string_view device) {
  return device == "host" || (way.setup.device == "h200" && !way.setup.spec);
}

absl::Status RunSeed(uint32_t seed, const SoakArguments& arguments, Device* device, Tally& tally) {
  running_seed = seed;
  const std::vector<Way> ways = WaysOfPlanning(seed);
  const Way& way = ways[seed % ways.size()];
  if (!RunsOn(way, arguments.device)) return absl::OkStatus();
  RG_ASSIGN_OR_RETURN(const BackwardGraph graph, RetypeToFloat64(RandomGraph(seed)));
  const std::vector<Values> inputs = RandomInputs(graph, seed);
  absl::StatusOr<RunResult> run = device == nullptr
                                      ? RunOnHost(graph, inputs, way.setup)
                                      : RunOnDevice(graph, inputs, way.setup, *device);
  absl::Status status = run.status();
  if (run.ok()) status = CompareWithReference(graph, inputs, run->outputs, kTolerance);
  if (!status.ok()) {
    const std::string failure =
        absl::StrCat("seed ", seed, ", ", way.name, ": ", status.ToString());
    std::fprintf(stderr, "%s\n%s\n", failure.c_str(), Print(graph).c_str());
    tally.failures.push_back(failure);
  } else {
    CountKernels(run->planned.plan, tally);
  }
  ++tally.graphs;
  return absl::OkStatus();
}

absl::StatusOr<Tally> Soak(const SoakArguments& arguments) {
  std::unique_ptr<Device> device;
  if (arguments.device != "host") {
    DeviceChoices choices;
    choices.cuda.cache = false;
    choices.cuda.time_calls = false;
    RG_ASSIGN_OR_RETURN(device, MakeDevice(arguments.device, choices));
  }
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::duration<double>(arguments.seconds);
  Tally tally{.next = arguments.first};
  for (; Clock::now() < end && tally.graphs < arguments.most; tally.next += arguments.stride) {
    RG_RETURN_IF_ERROR(RunSeed(tally.next, arguments, device.get(), tally));
  }
  return tally;
}

}  // namespace
}  // namespace retrograd

int main(int argc, char** argv) {
  CLI::App app("Runs random graphs on a device and compares with the reference.", "soak_graphs");
  retrograd::SoakArguments arguments;
  app.add_option("--device", arguments.device, "host, cuda, cuda:N")->capture_default_str();
  app.add_option("--first", arguments.first, "The first seed")->capture_default_str();
  app.add_option("--stride", arguments.stride, "From one seed to the next")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app.add_option("--graphs", arguments.most, "At most so many");
  app.add_option("--seconds", arguments.seconds, "At most so long")->capture_default_str();
  if (const std::optional<int> done = retrograd::ParseArguments(app, argc, argv)) return *done;
  retrograd::TellSeedOnDeath();
  const absl::StatusOr<retrograd::Tally> tally = retrograd::Soak(arguments);
  if (!tally.ok()) return retrograd::Report("soak_graphs", tally.status());
  const nlohmann::ordered_json line = {
      {"device", arguments.device},    {"first", arguments.first},   {"next", tally->next},
      {"stride", arguments.stride},    {"graphs", tally->graphs},    {"kernels", tally->kernels},
      {"templates", tally->templates}, {"failures", tally->failures}};
  std::printf("%s\n", line.dump().c_str());
  return tally->failures.empty() ? 0 : 1;
}
