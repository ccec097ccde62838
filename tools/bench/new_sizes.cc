#include "tools/bench/new_sizes.h"

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <utility>
#include <vector>

#include "fusion/planner/sized_patterns.h"
#include "graph/base/status.h"
#include "graph/proto/bind_graph.h"
#include "graph/proto/proto.h"
#include "runtime/program/compile.h"
#include "runtime/program/early_launches.h"
#include "runtime/schedule/schedule_options.h"

namespace retrograd {
namespace {

constexpr int kSizes = 24;

double ProcessorMs() {
  timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return 1e3 * static_cast<double>(now.tv_sec) + 1e-6 * static_cast<double>(now.tv_nsec);
}

template <typename Function>
auto Timed(std::vector<double>& ms, Function function) {
  const double begin = ProcessorMs();
  auto result = function();
  ms.push_back(ProcessorMs() - begin);
  return result;
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// As executables for a GPU have it.
absl::StatusOr<CompileOptions> ProgramOptionsFor(const DeviceSpec& spec, absl::string_view text) {
  constexpr int kPhases = 8;
  CompileOptions options{.dialect = Dialect::kCuda,
                         .epilogue_kernels = true,
                         .memory = {.phases = PhaseOptionsOf(spec, kPhases)},
                         .early = EarlyLaunchLimitsOf(spec)};
  RG_ASSIGN_OR_RETURN(options.schedule, ScheduleOptionsFor(spec, text, /*streams=*/0));
  return options;
}

}  // namespace

absl::StatusOr<nlohmann::ordered_json> BenchNewSizes(const std::string& graph,
                                                     const std::string& device,
                                                     const SizeRange& range,
                                                     const std::string& bind) {
  RG_ASSIGN_OR_RETURN(const DeviceSpec spec, LoadDeviceSpec(device));
  RG_ASSIGN_OR_RETURN(const std::string spec_text, ReadDeviceSpec(device));
  RG_ASSIGN_OR_RETURN(const CompileOptions compile, ProgramOptionsFor(spec, spec_text));
  RG_ASSIGN_OR_RETURN(const BackwardGraph open, LoadGraph(graph));
  RG_ASSIGN_OR_RETURN(const GraphBinder binder, GraphBinder::Of(open));
  std::vector<SizeBinding> sizes;
  if (!bind.empty()) {
    RG_ASSIGN_OR_RETURN(sizes, ParseBindings(bind));
  }
  sizes.push_back({range.name, 0});
  SizedPatterns patterns(open, binder.symbols());
  std::vector<double> bind_ms, search_ms, pattern_ms, program_ms, ratios;
  int64_t kept = 0, regions = 0;
  for (const int64_t size : SamplesOf(range, kSizes)) {
    sizes.back().value = size;
    PlanOptions options{.disable = {"held_tiles", "matmul_tiles", "shared_products"},
                        .decisions = false};
    RG_ASSIGN_OR_RETURN(options.pattern, patterns.For(sizes, spec, device, options));
    RG_ASSIGN_OR_RETURN(const auto second, patterns.Second(sizes, spec, device, options));
    options.second_pattern = [second] { return second; };
    RG_ASSIGN_OR_RETURN(const BackwardGraph bound,
                        Timed(bind_ms, [&] { return binder.Bind(sizes); }));
    const PlanOptions alone{.disable = options.disable, .decisions = false};
    RG_ASSIGN_OR_RETURN(const Planned searched,
                        Timed(search_ms, [&] { return PlanFusion(bound, spec, alone); }));
    RG_ASSIGN_OR_RETURN(Planned planned,
                        Timed(pattern_ms, [&] { return PlanFusion(bound, spec, options); }));
    ratios.push_back(static_cast<double>(planned.plan.summary.price_ps) /
                     static_cast<double>(searched.plan.summary.price_ps));
    kept += planned.kept_regions;
    regions += planned.plan.summary.distinct_regions;
    const auto program = Timed(program_ms, [&] {
      return Compile(std::move(planned.graph), std::move(planned.plan), compile);
    });
    RG_RETURN_IF_ERROR(program.status());
  }
  nlohmann::ordered_json out = {{"graph", graph},
                                {"device", device},
                                {"range", range.Print()},
                                {"bind", bind},
                                {"sizes", ratios.size()},
                                {"bind_ms", Median(bind_ms)},
                                {"search_ms", Median(search_ms)},
                                {"pattern_ms", Median(pattern_ms)},
                                {"program_ms", Median(program_ms)},
                                {"median_ratio", Median(ratios)},
                                {"worst_ratio", *std::max_element(ratios.begin(), ratios.end())},
                                {"kept_regions", kept},
                                {"regions", regions}};
  std::printf(
      "%s, %s: bind %.2f ms, search %.2f, by pattern %.2f, program %.2f; predicted time by the "
      "pattern / "
      "by the search: median %.4f, worst %.4f; %lld of %lld regions kept\n",
      graph.c_str(), range.Print().c_str(), Median(bind_ms), Median(search_ms), Median(pattern_ms),
      Median(program_ms), Median(ratios), out["worst_ratio"].get<double>(),
      static_cast<long long>(kept), static_cast<long long>(regions));
  return out;
}

}  // namespace retrograd
