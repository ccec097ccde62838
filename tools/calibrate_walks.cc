// What rows cost that a block walks over, and scatters: numbers that only show in the price of
// whole kernels, and are fitted to many schedules of them.
#include <algorithm>
#include <memory>

#include "absl/strings/str_format.h"
#include "fusion/cost.h"
#include "fusion/limits.h"
#include "graph/status.h"
#include "tools/calibrate.h"
#include "tools/kernel_bench.h"
#include "tools/price_fit.h"

namespace retrograd {
namespace {

constexpr size_t kMostSchedules = 24;  // of a kernel: those that are predicted to be fastest

std::string NormGraph(int64_t rows, int64_t columns) {
  return absl::StrFormat(R"(%%0 = input name="dy" kind=tangent alignment=16  bf16[%d,%d]
%%1 = input name="x" kind=saved alignment=16  bf16[%d,%d]
%%2 = input name="rstd" kind=saved alignment=16  f32[%d,1]
%%3 = input name="w" kind=parameter alignment=16  f32[%d]
%%4 = cast %%0 dtype=f32
%%5 = cast %%1 dtype=f32
%%6:2 = rms_norm_backward %%4 %%5 %%2 %%3
%%7 = cast %%6.0 dtype=bf16
output %%7 name="dx"
output %%6.1 name="dw"
)",
                         rows, columns, rows, columns, rows, columns);
}

std::string ColumnSumGraph(int64_t rows, int64_t columns) {
  return absl::StrFormat(R"(%%0 = input name="dy" kind=tangent alignment=16  bf16[%d,%d]
%%1 = cast %%0 dtype=f32
%%2 = sum %%1 axes=[0] keep=0
output %%2 name="db"
)",
                         rows, columns);
}

// A kernel with what pricing needs, shared by its samples.
struct PricedKernel {
  KernelIr ir;
  Classification shape;
  KernelProfile profile;
};

int64_t PriceOf(const PricedKernel& kernel, const Schedule& schedule, const DeviceSpec& device) {
  return KernelPricer(kernel.ir, kernel.profile, device).Of(schedule).ps;
}

absl::StatusOr<std::vector<Schedule>> SchedulesOf(const PricedKernel& kernel,
                                                  const DeviceSpec& spec, size_t most) {
  RG_ASSIGN_OR_RETURN(const Limits limits, Limits::Make(spec, {}));
  std::vector<std::pair<int64_t, Schedule>> priced;
  const KernelPricer pricer(kernel.ir, kernel.profile, spec);
  for (const Schedule& s : CandidateSchedules(kernel.ir, kernel.shape, spec.schedule_limits())) {
    const Price price = pricer.Of(s);
    if (limits.CheckSchedule(s, price.footprint).ok()) priced.emplace_back(price.ps, s);
  }
  std::stable_sort(priced.begin(), priced.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  if (priced.size() > most) priced.resize(most);
  std::vector<Schedule> schedules;
  for (const auto& [ps, s] : priced) schedules.push_back(s);
  return schedules;
}

absl::StatusOr<std::shared_ptr<PricedKernel>> PricedPlan(const std::string& graph,
                                                         const DeviceSpec& spec) {
  RG_ASSIGN_OR_RETURN(const KernelBody body, PlannedKernel(graph, spec));
  auto kernel = std::make_shared<PricedKernel>(PricedKernel{.ir = body.ir});
  kernel->shape = Classify(kernel->ir);
  kernel->profile = ProfileKernel(kernel->ir, kernel->shape);
  return kernel;
}

}  // namespace

absl::StatusOr<std::vector<SpecNumber>> CalibrateRowWalks(const std::string& text,
                                                          const BenchSizes& sizes, Device* device) {
  RG_ASSIGN_OR_RETURN(const DeviceSpec spec, ParseDeviceSpec(text, "calibrate"));
  KernelBench bench(device, sizes.repeat);
  const std::string graphs[] = {NormGraph(sizes.Of(16384, 192), sizes.Of(4096, 128)),
                                NormGraph(sizes.Of(98304, 256), sizes.Of(512, 64)),
                                NormGraph(sizes.Of(32768, 160), sizes.Of(1024, 96)),
                                ColumnSumGraph(sizes.Of(98304, 512), sizes.Of(512, 64)),
                                ColumnSumGraph(sizes.Of(16384, 256), sizes.Of(4096, 128))};
  const size_t most = static_cast<size_t>(sizes.Of(kMostSchedules, 3));
  std::vector<PricedSample> samples;
  std::vector<SpecNumber> numbers;
  for (const std::string& graph : graphs) {
    RG_ASSIGN_OR_RETURN(const std::shared_ptr<PricedKernel> kernel, PricedPlan(graph, spec));
    RG_ASSIGN_OR_RETURN(const std::vector<Schedule> schedules, SchedulesOf(*kernel, spec, most));
    RG_ASSIGN_OR_RETURN(const std::vector<double> us, bench.Schedules(kernel->ir, schedules));
    for (size_t i = 0; i < schedules.size(); ++i) {
      samples.push_back({us[i], [kernel, s = schedules[i]](const DeviceSpec& d) {
                           return PriceOf(*kernel, s, d);
                         }});
    }
  }
  const std::vector<std::string> fields = {"bytes_in_flight_per_sm", "row_batch_us",
                                           "row_batch_prefetched_us", "row_batch_staged_us",
                                           "barrier_us"};
  RG_ASSIGN_OR_RETURN(const FittedNumbers fit, FitNumbers(text, fields, samples));
  const std::string how = absl::StrFormat(
      "fitted to %d schedules of three norms' backwards and two column sums: error %.1f%%, before "
      "%.1f%%",
      samples.size(), 100 * fit.error_after, 100 * fit.error_before);
  for (const DeviceNumber& n : fit.numbers) numbers.push_back({n.name, n.value, how});
  return numbers;
}

absl::StatusOr<std::vector<SpecNumber>> CalibrateScatter(const std::string& text,
                                                         const BenchSizes& sizes, Device* device) {
  RG_ASSIGN_OR_RETURN(const DeviceSpec spec, ParseDeviceSpec(text, "calibrate"));
  std::vector<PricedSample> samples;
  for (int64_t rows : {sizes.Of(98304, 256), sizes.Of(32768, 128)}) {
    const std::string graph =
        absl::StrFormat(R"(%%0 = input name="dx" kind=tangent alignment=16  f32[%d,%d]
%%1 = input name="index" kind=saved alignment=16  i64[%d]
%%2 = full dtype=f32 shape=[%d,%d] value=0.0
%%3 = index_add %%2 %%1 %%0 axis=0
output %%3 name="dw"
)",
                        rows, sizes.Of(512, 16), rows, sizes.Of(32768, 64), sizes.Of(512, 16));
    RG_ASSIGN_OR_RETURN(const std::vector<PlannedStep> steps,
                        TimePlan(graph, spec, sizes.repeat, device));
    for (const PlannedStep& step : steps) {
      const auto* body = std::get_if<KernelBody>(&step.group.body);
      if (body == nullptr || !body->ir.scatter) continue;
      auto kernel = std::make_shared<PricedKernel>(PricedKernel{.ir = body->ir});
      kernel->shape = Classify(kernel->ir);
      kernel->profile = ProfileKernel(kernel->ir, kernel->shape);
      samples.push_back({step.us, [kernel, s = body->schedule](const DeviceSpec& d) {
                           return PriceOf(*kernel, s, d);
                         }});
    }
  }
  RG_ASSIGN_OR_RETURN(const FittedNumbers fit,
                      FitNumbers(text, std::vector<std::string>{"sort_pass_ns"}, samples));
  return std::vector<SpecNumber>{
      {fit.numbers[0].name, fit.numbers[0].value,
       absl::StrFormat("fitted to %d index_adds, their sums included: error %.1f%%", samples.size(),
                       100 * fit.error_after)}};
}

}  // namespace retrograd
