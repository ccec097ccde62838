// What only shows in the price of whole kernels: accesses of few bytes, waits of blocks that walk
// rows, sorts of scatters. These numbers are fitted to many schedules.
#include <algorithm>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "fusion/cost/kernel_cost.h"
#include "fusion/ops/call_op.h"
#include "graph/base/status.h"
#include "tools/calibrate/calibrate.h"
#include "tools/calibrate/calibration_kernels.h"
#include "tools/calibrate/kernel_bench.h"
#include "tools/fit/price_fit.h"
#include "tools/fit/schedule_regret.h"

namespace retrograd {
namespace {

using Samples = std::vector<ScheduleSample>;
using Fields = std::vector<std::string>;

constexpr size_t kFewestSamples = 6;  // that a number is fitted to

template <typename Which>
std::vector<PricedSample> Those(const Samples& samples, Which which) {
  std::vector<PricedSample> those;
  for (const ScheduleSample& s : samples) {
    if (which(s.schedule)) those.push_back(s.sample);
  }
  return those;
}

}  // namespace

absl::StatusOr<std::vector<SpecNumber>> CalibrateAccesses(const std::string& text,
                                                          const CalibrationBench& bench) {
  RG_ASSIGN_OR_RETURN(const Samples passes, TimeSchedules(PassKernels(bench.sizes), bench));
  std::vector<PricedSample> samples;
  for (const ScheduleSample& s : passes) samples.push_back(s.sample);
  RG_ASSIGN_OR_RETURN(const FittedNumbers fit,
                      FitNumbers(text,
                                 Fields{"bytes_in_flight_per_sm", "efficiency_8_bytes",
                                        "efficiency_4_bytes", "efficiency_2_bytes"},
                                 samples));
  return FoundNumbers(
      fit,
      absl::StrFormat("fitted to %d schedules of passes: error %.1f%%, the chosen ones "
                      "%.1f%% over the best; before %.1f%%, %.1f%%",
                      samples.size(), 100 * fit.error_after, 100 * fit.regret_after,
                      100 * fit.error_before, 100 * fit.regret_before),
      bench);
}

absl::StatusOr<std::vector<SpecNumber>> CalibrateRowWalks(const std::string& text,
                                                          const CalibrationBench& bench) {
  RG_ASSIGN_OR_RETURN(const Samples norms, TimeSchedules(RowColumnKernels(bench.sizes), bench));
  // Each way to walk by those schedules of whose prices the waits make up most: what prices of fast
  // schedules are off by is no wait, and would be taken for one.
  const auto plain = [](const Schedule& s) { return s.persistent && s.staged == 0; };
  const auto staged = [](const Schedule& s) { return s.staged > 0; };
  std::string changed = text;
  std::vector<SpecNumber> numbers;
  for (const auto& [field, samples] : {std::pair("row_batch_us", Those(norms, plain)),
                                       std::pair("row_batch_staged_us", Those(norms, staged))}) {
    RG_ASSIGN_OR_RETURN(const std::vector<PricedSample> waiting,
                        Isolating(changed, field, samples));
    if (waiting.size() < kFewestSamples && !bench.sizes.small) continue;
    RG_ASSIGN_OR_RETURN(const FittedNumbers fit, FitNumbers(changed, Fields{field}, waiting));
    for (SpecNumber& number : FoundNumbers(
             fit,
             absl::StrFormat("fitted to %d schedules of backwards of norms, of whose prices it "
                             "makes up at least a fifth: error %.1f%%, before %.1f%%",
                             waiting.size(), 100 * fit.error_after, 100 * fit.error_before),
             bench)) {
      numbers.push_back(std::move(number));
    }
    RG_ASSIGN_OR_RETURN(changed, WithSpecNumbers(changed, numbers, ""));
  }
  return numbers;
}

absl::StatusOr<std::vector<SpecNumber>> CalibrateSorts(const std::string& text,
                                                       const CalibrationBench& bench) {
  const BenchSizes& sizes = bench.sizes;
  std::vector<PricedSample> samples;
  for (const auto& [indices, rows] : {std::pair(sizes.Of(4000000, 256), sizes.Of(50000, 64)),
                                      std::pair(sizes.Of(200000, 128), sizes.Of(20000, 64)),
                                      std::pair(sizes.Of(98304, 128), sizes.Of(1024, 32)),
                                      std::pair(sizes.Of(16384, 64), sizes.Of(4096, 32)),
                                      std::pair(sizes.Of(4096, 64), sizes.Of(30720, 96))}) {
    const std::string graph =
        absl::StrFormat(R"(%%0 = input name="dx" kind=tangent alignment=16  f32[%d,4]
%%1 = input name="index" kind=saved alignment=16  i64[%d]
%%2 = full dtype=f32 shape=[%d,4] value=0.0
%%3 = index_add %%2 %%1 %%0 axis=0
output %%3 name="dw"
)",
                        indices, indices, rows);
    const auto sorts = [](const Group& group) {
      return CallOf(group) != nullptr && CallOf(group)->op == Op::sort_indices;
    };
    RG_ASSIGN_OR_RETURN(const std::vector<Group> groups, PlannedGroups(graph, bench.base));
    for (const Group& group : groups) {
      if (!sorts(group)) continue;
      RG_ASSIGN_OR_RETURN(
          const double us,
          bench.log->Us(absl::StrCat("sort of ", indices, " indices into ", rows, " rows"), [&] {
            return TimeSteps(graph, bench.base, sizes.repeat, sorts, bench.device);
          }));
      samples.push_back({us, [call = *CallOf(group)](const DeviceSpec& d) {
                           return CallOpOf(call.op).price(call, d, /*explain=*/false).ps;
                         }});
    }
  }
  const std::vector<std::string> names = {"sort_pass_ns", "sort_launch_us", "sort_visit_ns"};
  RG_ASSIGN_OR_RETURN(const FittedNumbers fit, FitNumbers(text, names, samples));
  return FoundNumbers(
      fit,
      absl::StrFormat("fitted to %d sorts: error %.1f%%", samples.size(), 100 * fit.error_after),
      bench);
}

absl::StatusOr<std::string> CompareSchedules(const std::string& text,
                                             const CalibrationBench& bench) {
  RG_ASSIGN_OR_RETURN(const DeviceSpec spec, ParseDeviceSpec(text, "calibrate"));
  std::string lines;
  for (const auto& [what, kernels] :
       {std::pair("passes", PassKernels(bench.sizes)),
        std::pair("sums of rows", RowKernels(bench.sizes)),
        std::pair("sums of rows and columns", RowColumnKernels(bench.sizes)),
        std::pair("sums of columns", ColumnKernels(bench.sizes))}) {
    RG_ASSIGN_OR_RETURN(const Samples samples, TimeSchedules(kernels, bench));
    std::vector<TimedSchedules> timed(kernels.size());
    for (const ScheduleSample& s : samples) {
      TimedSchedules& kernel = timed[static_cast<size_t>(s.sample.kernel)];
      kernel.predicted_us.push_back(1e-6 * static_cast<double>(s.sample.price_ps(spec)));
      kernel.measured_us.push_back(s.sample.measured_us);
    }
    absl::StrAppend(&lines, "  ", what, ": ", PrintRankingError(RankingErrorOf(timed)), "\n");
  }
  return lines;
}

}  // namespace retrograd
