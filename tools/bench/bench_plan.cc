// bench-plan: how long planning takes, phase by phase, on one core, against the targets.
//
// Every case is planned in a process of its own, pinned to one core, several times; figures are
// medians of processor time, user and system, which is what one core that does nothing else takes:
// planning has one thread and waits for nothing. The wall time of the total stands beside it in the
// JSON; far apart, the machine was busy. Built models are first written to a file, so that every
// case is loaded from one. An op is one that a kernel or a library call computes
// (PlanSummary::ops): views, constants and inputs are none, and a composite counts as its pieces.
//   load    from the file to a BackwardGraph       verify  BackwardGraph::Verify
//   lower   Lower                                  search  PlanFusion without its lowering
// `total` is the sum of these four. Printing the plan, and checking it once where that takes no
// minutes (the checker works out the meaning of many elements of every kernel), come after and are
// not in it.
//
// With --new-sizes: what a new size of a graph whose sizes vary costs (new_sizes.h).
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include <CLI/CLI.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "fusion/kernel/build/build.h"
#include "fusion/planner/planner.h"
#include "graph/base/status.h"
#include "graph/proto/proto.h"
#include "models/models.h"
#include "tools/bench/new_sizes.h"
#include "tools/support/parse_arguments.h"
#include "tools/support/pipeline.h"
#include "tools/support/text_file.h"

namespace retrograd {
namespace {

using Json = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

// --- one case, in a process of its own -----------------------------------------------------------

// The last core that the process may run on: the first ones serve interrupts.
void PinToOneCore() {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return;
  for (int cpu = CPU_SETSIZE; cpu-- > 0;) {
    if (!CPU_ISSET(cpu, &allowed)) continue;
    CPU_ZERO(&allowed);
    CPU_SET(cpu, &allowed);
    sched_setaffinity(0, sizeof(allowed), &allowed);
    return;
  }
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

double ProcessorMs() {
  timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return 1e3 * static_cast<double>(now.tv_sec) + 1e-6 * static_cast<double>(now.tv_nsec);
}

// Times of one phase over the runs, in milliseconds of processor and of wall time.
struct Phase {
  std::vector<double> ms, wall_ms;

  template <typename Function>
  auto Time(Function function) {
    const Clock::time_point begin = Clock::now();
    const double begin_ms = ProcessorMs();
    auto result = function();
    ms.push_back(ProcessorMs() - begin_ms);
    wall_ms.push_back(std::chrono::duration<double, std::milli>(Clock::now() - begin).count());
    return result;
  }
};

constexpr int64_t kMostOpsChecked = 5000;

struct Phases {
  Phase load, verify, lower, plan, print, check;
};

absl::Status RunOnce(const std::string& path, const DeviceSpec& spec, const PlanOptions& options,
                     Phases& phases, Json& out) {
  RG_ASSIGN_OR_RETURN(const BackwardGraph graph, phases.load.Time([&] { return LoadGraph(path); }));
  RG_RETURN_IF_ERROR(phases.verify.Time([&] { return graph.Verify(); }));
  RG_RETURN_IF_ERROR(
      phases.lower.Time([&] { return Lower(graph, LowerOptionsOf(options, spec)); }).status());
  RG_ASSIGN_OR_RETURN(const Planned planned,
                      phases.plan.Time([&] { return PlanFusion(graph, spec, options); }));
  const std::string text = phases.print.Time([&] { return planned.plan.Print(planned.graph); });
  // Every run makes the same plan.
  if (phases.check.ms.empty() && planned.plan.summary.ops <= kMostOpsChecked) {
    RG_RETURN_IF_ERROR(phases.check.Time([&] { return planned.plan.Verify(planned.graph); }));
  }
  const PlanSummary& s = planned.plan.summary;
  out["nodes"] = graph.num_nodes();
  out["ops"] = s.ops;
  out["regions"] = s.regions;
  out["distinct_regions"] = s.distinct_regions;
  out["largest_region_atoms"] = s.largest_region_atoms;
  out["kernels"] = s.kernels;
  out["gap_ps"] = s.gap_ps;
  out["decisions"] = planned.plan.decisions.size();
  return absl::OkStatus();
}

// A line of JSON with the case's figures.
absl::StatusOr<Json> RunCase(const std::string& path, const std::string& device, bool decisions,
                             int runs) {
  PinToOneCore();
  RG_ASSIGN_OR_RETURN(const DeviceSpec spec, LoadDeviceSpec(device));
  PlanOptions options;
  options.decisions = decisions;
  Phases phases;
  Json out;
  std::vector<double> totals, walls;
  for (int i = 0; i < runs; ++i) {
    RG_RETURN_IF_ERROR(RunOnce(path, spec, options, phases, out));
    totals.push_back(phases.load.ms.back() + phases.verify.ms.back() + phases.plan.ms.back());
    walls.push_back(phases.load.wall_ms.back() + phases.verify.wall_ms.back() +
                    phases.plan.wall_ms.back());
  }
  out["runs"] = runs;
  out["first_total_ms"] = totals.front();  // caches cold
  out["total_ms"] = Median(totals);
  out["wall_ms"] = Median(walls);
  const double lower = Median(phases.lower.ms);
  out["phases_ms"] = {{"load", Median(phases.load.ms)},
                      {"verify", Median(phases.verify.ms)},
                      {"lower", lower},
                      {"search", std::max(0.0, Median(phases.plan.ms) - lower)},
                      {"print", Median(phases.print.ms)},
                      {"check", phases.check.ms.empty() ? Json() : Json(phases.check.ms.front())}};
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  out["peak_rss_mib"] = static_cast<double>(usage.ru_maxrss) / 1024;
  return out;
}

// --- all cases -----------------------------------------------------------------------------------

struct Target {
  double total_ms = 0;  // 0: none
  double peak_mib = 0;
};

struct Case {
  std::string name;   // for the table
  std::string model;  // what OpenGraph takes; layers are chosen where `ops` is given
  int64_t ops = 0;    // how many the built model shall have; 0: as it is
  Target target;
};

constexpr Target kTenThousand = {200, 0};
constexpr Target kHundredThousand = {2000, 1024};

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const Model& model : AllModels()) {
    if (model.kind != ModelKind::kCaptured) continue;
    const bool golf = model.name == "golf_gpt_34m_b32";
    cases.push_back({model.name, model.name, 0, {golf ? 50.0 : 0.0, 0}});
  }
  for (const char* family : {"transformer", "llama"}) {
    cases.push_back({absl::StrCat(family, "_1k"), family, 1000, {}});
    cases.push_back({absl::StrCat(family, "_10k"), family, 10000, kTenThousand});
    cases.push_back({absl::StrCat(family, "_100k"), family, 100000, kHundredThousand});
  }
  cases.push_back({"norm_stack_10k", "norm_stack", 10000, kTenThousand});
  cases.push_back({"norm_stack_100k", "norm_stack", 100000, kHundredThousand});
  return cases;
}

absl::StatusOr<int64_t> CountOps(const std::string& model) {
  RG_ASSIGN_OR_RETURN(const BackwardGraph graph, OpenGraph(model));
  RG_ASSIGN_OR_RETURN(const BackwardGraph lowered, Lower(graph));
  int64_t ops = 0;
  for (uint32_t i = 0; i < lowered.num_nodes(); ++i) ops += Computes(lowered, NodeId{i});
  return ops;
}

// The model with as many layers as bring it to at least the ops that the case asks for.
absl::StatusOr<std::string> Sized(const Case& c) {
  if (c.ops == 0) return c.model;
  const auto with = [&](int64_t layers) { return absl::StrCat(c.model, ":layers=", layers); };
  RG_ASSIGN_OR_RETURN(const int64_t few, CountOps(with(4)));
  RG_ASSIGN_OR_RETURN(const int64_t more, CountOps(with(8)));
  const int64_t quarter = more - few;  // ops of four layers
  const int64_t layers = 4 + std::max<int64_t>(0, (c.ops - few) * 4 + quarter - 1) / quarter;
  return with(layers);
}

std::string Quoted(const std::string& text) {
  return absl::StrCat("'", absl::StrReplaceAll(text, {{"'", "'\\''"}}), "'");
}

absl::StatusOr<std::string> Output(const std::string& command) {
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return absl::InternalError("cannot start a process");
  std::string text;
  char buffer[4096];
  for (size_t n; (n = fread(buffer, 1, sizeof(buffer), pipe)) > 0;) text.append(buffer, n);
  if (pclose(pipe) != 0) return absl::InternalError(absl::StrCat(command, " failed"));
  return text;
}

std::string FirstLine(const std::string& command) {
  const absl::StatusOr<std::string> text = Output(command);
  return text.ok() ? text->substr(0, text->find('\n')) : "";
}

std::string CpuModel() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (!absl::StartsWith(line, "model name")) continue;
    return std::string(absl::StripAsciiWhitespace(line.substr(line.find(':') + 1)));
  }
  return "";
}

Json Header(const std::string& command) {
  const std::string git = absl::StrCat("git -C ", Quoted(RETROGRAD_SOURCE_DIR), " ");
  Json out;
  out["command"] = command;
  out["commit"] = FirstLine(git + "rev-parse HEAD 2>/dev/null");
  out["changed_files"] = !FirstLine(git + "status --porcelain 2>/dev/null").empty();
#ifdef __clang__
  out["compiler"] = absl::StrCat("clang ", __clang_version__);
#else
  out["compiler"] = absl::StrCat("g++ ", __VERSION__);
#endif
#ifdef NDEBUG
  out["build"] = "release";
#else
  out["build"] = "debug";
#endif
  out["cpu"] = CpuModel();
  double load[1] = {0};
  getloadavg(load, 1);
  out["load_average_at_start"] = load[0];  // other work on the machine slows the figures down
  return out;
}

class Bench {
 public:
  Bench(std::string device, int runs, std::vector<std::string> only)
      : device_(std::move(device)), runs_(runs), only_(std::move(only)) {}

  absl::Status Run(Json& out) {
    std::printf("%-20s %8s %8s  %8s %8s %8s %8s  %9s %9s %9s %8s  %s\n", "case", "nodes", "ops",
                "load", "verify", "lower", "search", "total ms", "us/op", "w/ decis.", "peak MiB",
                "target");
    for (const Case& c : Cases()) {
      if (!only_.empty() && std::find(only_.begin(), only_.end(), c.name) == only_.end()) continue;
      RG_ASSIGN_OR_RETURN(Json result, RunInProcesses(c));
      Judge(c, result);
      PrintRow(c, result);
      out["cases"].push_back(std::move(result));
    }
    JudgeGrowth(out);
    return absl::OkStatus();
  }

  bool all_held() const { return all_held_; }

 private:
  absl::StatusOr<Json> RunInProcesses(const Case& c) {
    RG_ASSIGN_OR_RETURN(const std::string model, Sized(c));
    RG_ASSIGN_OR_RETURN(const BackwardGraph graph, OpenGraph(model));
    const std::string file =
        std::filesystem::temp_directory_path() / absl::StrCat("bench_plan_", getpid(), ".bwd.pb");
    absl::Status saved = SaveGraph(graph, file);
    if (!saved.ok()) return saved;
    Json result;
    absl::Status status;
    for (const bool decisions : {false, true}) {
      const absl::StatusOr<std::string> text =
          Output(absl::StrCat("/proc/", getpid(), "/exe --run-file ", Quoted(file), " --spec ",
                              Quoted(device_), " --runs ", runs_, decisions ? " --decisions" : ""));
      status = text.status();
      if (!status.ok()) break;
      Json one = Json::parse(*text, nullptr, /*allow_exceptions=*/false);
      if (decisions) {
        result["with_decisions"] = std::move(one);
      } else {
        result = std::move(one);
      }
    }
    std::filesystem::remove(file);
    if (!status.ok()) return status;
    result["case"] = c.name;
    result["model"] = model;
    return result;
  }

  void Judge(const Case& c, Json& result) {
    if (c.target.total_ms == 0) return;
    const double total = result["total_ms"], peak = result["peak_rss_mib"];
    const bool held =
        total <= c.target.total_ms && (c.target.peak_mib == 0 || peak <= c.target.peak_mib);
    result["target"] = {{"total_ms", c.target.total_ms}, {"held", held}};
    if (c.target.peak_mib != 0) result["target"]["peak_rss_mib"] = c.target.peak_mib;
    all_held_ &= held;
  }

  void PrintRow(const Case& c, const Json& r) {
    const Json& p = r["phases_ms"];
    const double total = r["total_ms"], ops = r["ops"];
    std::string verdict;
    if (r.contains("target")) {
      verdict =
          absl::StrCat("<= ", c.target.total_ms, " ms", c.target.peak_mib != 0 ? ", <= 1 GiB" : "",
                       r["target"]["held"] ? ": holds" : ": MISSED");
    }
    std::printf("%-20s %8d %8d  %8.2f %8.2f %8.2f %8.2f  %9.2f %9.2f %9.2f %8.0f  %s\n",
                c.name.c_str(), r["nodes"].get<int>(), r["ops"].get<int>(), p["load"].get<double>(),
                p["verify"].get<double>(), p["lower"].get<double>(), p["search"].get<double>(),
                total, 1000 * total / std::max(ops, 1.0),
                r["with_decisions"]["total_ms"].get<double>(), r["peak_rss_mib"].get<double>(),
                verdict.c_str());
    std::fflush(stdout);
    if (r.contains("target") && !r["target"]["held"]) PrintProfile(r);
  }

  // Where the time of a missed target goes.
  static void PrintProfile(const Json& r) {
    const double total = r["total_ms"];
    for (const char* phase : {"load", "verify", "lower", "search"}) {
      const double ms = r["phases_ms"][phase];
      std::printf("    %-8s %9.2f ms  %5.1f %%\n", phase, ms, 100 * ms / total);
    }
  }

  // Time an op at ten times the size.
  void JudgeGrowth(Json& out) {
    const auto per_op = [&](const std::string& name) {
      for (const Json& r : out["cases"]) {
        if (r["case"] == name) return r["total_ms"].get<double>() / r["ops"].get<double>();
      }
      return 0.0;
    };
    for (const std::string family : {"transformer", "llama", "norm_stack"}) {
      const double small = per_op(family + "_10k"), large = per_op(family + "_100k");
      if (small == 0 || large == 0) continue;
      const double growth = large / small;
      const bool held = growth <= 2;
      all_held_ &= held;
      out["growth_10k_to_100k"][family] = {{"time_per_op", growth}, {"held", held}};
      std::printf("%s: time an op from 10k to 100k ops: x %.2f  <= 2: %s\n", family.c_str(), growth,
                  held ? "holds" : "MISSED");
    }
  }

  std::string device_;
  int runs_;
  std::vector<std::string> only_;
  bool all_held_ = true;
};

struct Arguments {
  std::string device = "h200", out, run_file;
  std::string new_sizes, range, bind;
  std::vector<std::string> only;
  int runs = 7;
  bool decisions = false;
};

absl::StatusOr<int> Main(const Arguments& arguments, const std::string& command) {
  if (!arguments.run_file.empty()) {
    RG_ASSIGN_OR_RETURN(const Json result, RunCase(arguments.run_file, arguments.device,
                                                   arguments.decisions, arguments.runs));
    std::printf("%s\n", result.dump().c_str());
    return 0;
  }
  Json out = Header(command);
  if (!arguments.new_sizes.empty()) {
    RG_ASSIGN_OR_RETURN(const SizeRange range, ParseSizeRange(arguments.range));
    RG_ASSIGN_OR_RETURN(out["new_sizes"], BenchNewSizes(arguments.new_sizes, arguments.device,
                                                        range, arguments.bind));
    if (!arguments.out.empty())
      RG_RETURN_IF_ERROR(WriteTextFile(arguments.out, out.dump(1) + "\n"));
    return 0;
  }
  Bench bench(arguments.device, arguments.runs, arguments.only);
  RG_RETURN_IF_ERROR(bench.Run(out));
  if (!arguments.out.empty()) {
    RG_RETURN_IF_ERROR(WriteTextFile(arguments.out, out.dump(1) + "\n"));
    std::printf("written to %s\n", arguments.out.c_str());
  }
  return bench.all_held() ? 0 : 3;
}

}  // namespace
}  // namespace retrograd

int main(int argc, char** argv) {
  retrograd::Arguments arguments;
  CLI::App app{
      "Times planning, phase by phase, against the targets; exits with 3 if one is missed"};
  app.add_option("--spec", arguments.device, "The device to plan for")->capture_default_str();
  app.add_option("--runs", arguments.runs, "Runs of a case; figures are medians")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option("--case", arguments.only, "Only this case; repeatable");
  app.add_option("--out", arguments.out, "Write all figures to this JSON file");
  app.add_option("--run-file", arguments.run_file, "Plan one file and print its figures as JSON");
  app.add_option("--new-sizes", arguments.new_sizes,
                 "Plan sizes of this graph's --range by searches and by patterns instead");
  app.add_option("--range", arguments.range, "With --new-sizes: NAME=LOW..HIGH[:STEP]");
  app.add_option("--bind", arguments.bind, "With --new-sizes: the other sizes");
  app.add_flag("--decisions", arguments.decisions, "With --run-file: record decisions too");
  if (const auto status = retrograd::ParseArguments(app, argc, argv)) return *status;
  std::string command = "bench-plan";
  for (int i = 1; i < argc; ++i) absl::StrAppend(&command, " ", argv[i]);
  const absl::StatusOr<int> status = retrograd::Main(arguments, command);
  return status.ok() ? *status : retrograd::Report("bench-plan", status.status());
}
