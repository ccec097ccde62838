#include "tools/calibrate/calibration_kernels.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "fusion/cost/kernel_cost.h"
#include "fusion/cost/limits.h"
#include "fusion/kernel/templates/kernel_template.h"
#include "graph/base/status.h"
#include "tools/calibrate/kernel_bench.h"

namespace retrograd {
namespace {

constexpr size_t kMostOfEachWay = 10;  // predicted to be fastest
constexpr size_t kMostSchedules = 40;  // of a kernel
constexpr int64_t kFarOff = 10;        // times the best prediction: not worth timing
constexpr int kWidths[] = {8, 4, 2, 1};

// A graph's text with R and C for the rows and columns.
CalibrationKernel Sized(absl::string_view name, absl::string_view graph, int64_t rows,
                        int64_t columns) {
  return {absl::StrCat(name, " ", rows, "x", columns),
          absl::StrReplaceAll(graph, {{"$R", absl::StrCat(rows)}, {"$C", absl::StrCat(columns)}})};
}

constexpr char kRmsNorm[] = R"(%0 = input name="dy" kind=tangent alignment=16  bf16[$R,$C]
%1 = input name="x" kind=saved alignment=16  bf16[$R,$C]
%2 = input name="rstd" kind=saved alignment=16  f32[$R,1]
%3 = input name="w" kind=parameter alignment=16  f32[$C]
%4 = cast %0 dtype=f32
%5 = cast %1 dtype=f32
%6:2 = rms_norm_backward %4 %5 %2 %3
%7 = cast %6.0 dtype=bf16
output %7 name="dx"
output %6.1 name="dw"
)";

// The scale is not trained: no column sums.
constexpr char kRmsNormRows[] = R"(%0 = input name="dy" kind=tangent alignment=16  bf16[$R,$C]
%1 = input name="x" kind=saved alignment=16  bf16[$R,$C]
%2 = input name="rstd" kind=saved alignment=16  f32[$R,1]
%3 = input name="w" kind=parameter alignment=16  f32[$C]
%4 = cast %0 dtype=f32
%5 = cast %1 dtype=f32
%6 = mul %5 %2
%7 = mul %4 %3
%8 = mul %7 %6
%9 = sum %8 axes=[1] keep=1
%10 = mul %6 %9
%11 = sub %7 %10
%12 = mul %11 %2
%13 = cast %12 dtype=bf16
output %13 name="dx"
)";

// Onto the residual's gradient.
constexpr char kRmsNormResidual[] = R"(%0 = input name="dy" kind=tangent alignment=16  bf16[$R,$C]
%1 = input name="x" kind=saved alignment=16  bf16[$R,$C]
%2 = input name="rstd" kind=saved alignment=16  f32[$R,1]
%3 = input name="w" kind=parameter alignment=16  f32[$C]
%4 = input name="dr" kind=tangent alignment=16  bf16[$R,$C]
%5 = cast %0 dtype=f32
%6 = cast %1 dtype=f32
%7:2 = rms_norm_backward %5 %6 %2 %3
%8 = cast %4 dtype=f32
%9 = add %7.0 %8
%10 = cast %9 dtype=bf16
output %10 name="dx"
output %7.1 name="dw"
)";

// The residual stream is fp32.
constexpr char kRmsNormWide[] = R"(%0 = input name="dy" kind=tangent alignment=16  bf16[$R,$C]
%1 = input name="x" kind=saved alignment=16  f32[$R,$C]
%2 = input name="rstd" kind=saved alignment=16  f32[$R,1]
%3 = input name="w" kind=parameter alignment=16  f32[$C]
%4 = input name="dr" kind=tangent alignment=16  f32[$R,$C]
%5 = cast %0 dtype=f32
%6:2 = rms_norm_backward %5 %1 %2 %3
%7 = add %6.0 %4
output %7 name="dx"
output %6.1 name="dw"
)";

constexpr char kLayerNorm[] = R"(%0 = input name="dy" kind=tangent alignment=16  bf16[$R,$C]
%1 = input name="x" kind=saved alignment=16  bf16[$R,$C]
%2 = input name="mean" kind=saved alignment=16  f32[$R,1]
%3 = input name="rstd" kind=saved alignment=16  f32[$R,1]
%4 = input name="w" kind=parameter alignment=16  f32[$C]
%5 = cast %0 dtype=f32
%6 = cast %1 dtype=f32
%7:3 = layer_norm_backward %5 %6 %2 %3 %4
%8 = cast %7.0 dtype=bf16
output %8 name="dx"
output %7.1 name="dw"
output %7.2 name="db"
)";

constexpr char kSoftmax[] = R"(%0 = input name="dy" kind=tangent alignment=16  bf16[$R,$C]
%1 = input name="y" kind=saved alignment=16  bf16[$R,$C]
%2 = cast %0 dtype=f32
%3 = cast %1 dtype=f32
%4 = softmax_backward %2 %3
%5 = cast %4 dtype=bf16
output %5 name="dx"
)";

constexpr char kLogSoftmax[] = R"(%0 = input name="dy" kind=tangent alignment=16  bf16[$R,$C]
%1 = input name="y" kind=saved alignment=16  bf16[$R,$C]
%2 = cast %0 dtype=f32
%3 = cast %1 dtype=f32
%4 = log_softmax_backward %2 %3
%5 = cast %4 dtype=bf16
output %5 name="dx"
)";

constexpr char kColumnSum[] = R"(%0 = input name="dy" kind=tangent alignment=16  bf16[$R,$C]
%1 = cast %0 dtype=f32
%2 = sum %1 axes=[0] keep=0
output %2 name="db"
)";

// An activation's backward, and the bias.
constexpr char kColumnSumStored[] = R"(%0 = input name="dy" kind=tangent alignment=16  bf16[$R,$C]
%1 = input name="x" kind=saved alignment=16  bf16[$R,$C]
%2 = cast %0 dtype=f32
%3 = cast %1 dtype=f32
%4 = mul %2 %3
%5 = cast %4 dtype=bf16
%6 = sum %4 axes=[0] keep=0
output %5 name="dx"
output %6 name="db"
)";

constexpr char kOneRead[] = R"(%0 = input name="x" kind=tangent alignment=16  bf16[$R,$C]
%1 = neg %0
output %1 name="y"
)";

constexpr char kTwoReads[] = R"(%0 = input name="x" kind=tangent alignment=16  bf16[$R,$C]
%1 = input name="b" kind=saved alignment=16  bf16[$R,$C]
%2 = add %0 %1
output %2 name="y"
)";

constexpr char kFourReads[] = R"(%0 = input name="x" kind=tangent alignment=16  bf16[$R,$C]
%1 = input name="b" kind=saved alignment=16  bf16[$R,$C]
%2 = input name="c" kind=saved alignment=16  bf16[$R,$C]
%3 = input name="d" kind=saved alignment=16  bf16[$R,$C]
%4 = mul %0 %1
%5 = mul %2 %3
%6 = add %4 %5
output %6 name="y"
)";

constexpr char kWidened[] = R"(%0 = input name="x" kind=tangent alignment=16  bf16[$R,$C]
%1 = input name="b" kind=saved alignment=16  f32[$R,$C]
%2 = cast %0 dtype=f32
%3 = add %1 %2
output %3 name="y"
)";

constexpr char kGelu[] = R"(%0 = input name="dy" kind=tangent alignment=16  bf16[$R,$C]
%1 = input name="x" kind=saved alignment=16  bf16[$R,$C]
%2 = cast %0 dtype=f32
%3 = cast %1 dtype=f32
%4 = gelu_backward %2 %3
%5 = cast %4 dtype=bf16
output %5 name="dx"
)";

// A kernel with what pricing needs, shared by its samples.
struct PricedKernel {
  KernelIr ir;
  Classification shape;
  KernelProfile profile;
};

absl::StatusOr<std::shared_ptr<PricedKernel>> PlannedOf(const std::string& graph,
                                                        const DeviceSpec& spec, Schedule& planned) {
  RG_ASSIGN_OR_RETURN(const KernelBody body, PlannedKernel(graph, spec));
  auto kernel = std::make_shared<PricedKernel>(PricedKernel{.ir = body.ir});
  kernel->shape = Classify(kernel->ir);
  kernel->profile = ProfileKernel(kernel->ir, kernel->shape);
  planned = body.schedule;
  return kernel;
}

// All schedules that the device can run, those predicted to be fastest first; passes also with
// narrower accesses than are worth trying, as operands at odd places have them.
absl::StatusOr<std::vector<Schedule>> SchedulesOf(const PricedKernel& kernel,
                                                  const Schedule& planned, const DeviceSpec& spec) {
  RG_ASSIGN_OR_RETURN(const Limits limits, Limits::Make(spec, {}));
  std::vector<Schedule> all = CandidateSchedules(kernel.ir, kernel.shape, ScheduleLimitsOf(spec));
  if (TemplateOf(kernel.shape.kind).narrows) {
    const int64_t points = planned.blocks * planned.threads * planned.vector_width;
    all.clear();
    for (int width : kWidths) {
      if (width > planned.vector_width) continue;
      all.push_back(planned);
      all.back().vector_width = width;
      all.back().blocks = points / (int64_t{planned.threads} * width);
    }
  }
  std::vector<std::pair<int64_t, Schedule>> priced;
  const KernelPricer pricer(kernel.ir, kernel.profile, spec);
  for (const Schedule& s : all) {
    const Price price = pricer.Of(s);
    if (limits.CheckSchedule(s, price.footprint).ok()) priced.emplace_back(price.ps, s);
  }
  std::stable_sort(priced.begin(), priced.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<Schedule> schedules;
  for (const auto& [ps, s] : priced) {
    if (ps <= kFarOff * priced[0].first) schedules.push_back(s);
  }
  return schedules;
}

// The first of each way to walk, and others spread over the rest.
std::vector<Schedule> Chosen(const std::vector<Schedule>& schedules, bool small) {
  const size_t of_each = small ? 1 : kMostOfEachWay, most = small ? 3 : kMostSchedules;
  std::map<std::tuple<bool, bool, bool>, size_t> ways;
  std::vector<Schedule> chosen, rest;
  for (const Schedule& s : schedules) {
    const bool splits = !TemplateOf(s).keeps_columns && s.split > 1;
    size_t& of_way = ways[{s.persistent, s.staged > 0, splits}];
    (++of_way <= of_each ? chosen : rest).push_back(s);
  }
  if (chosen.size() > most) chosen.resize(most);
  const size_t room = std::min(most - chosen.size(), rest.size());
  for (size_t i = 0; i < room; ++i) chosen.push_back(rest[i * rest.size() / room]);
  return chosen;
}

absl::Status TimeKernel(const CalibrationKernel& named, int number, const CalibrationBench& bench,
                        std::vector<ScheduleSample>& samples) {
  Schedule planned;
  RG_ASSIGN_OR_RETURN(const std::shared_ptr<PricedKernel> kernel,
                      PlannedOf(named.graph, bench.base, planned));
  RG_ASSIGN_OR_RETURN(std::vector<Schedule> schedules, SchedulesOf(*kernel, planned, bench.base));
  const auto name = [&](const Schedule& s) { return absl::StrCat(named.name, ": ", s.Print()); };
  const bool known = std::any_of(schedules.begin(), schedules.end(),
                                 [&](const Schedule& s) { return bench.log->Holds(name(s)); });
  if (!known && bench.log->replays()) {
    return absl::NotFoundError(
        "the measurements hold none of its schedules: they are of another version; measure again");
  }
  if (!known) {
    schedules = Chosen(schedules, bench.sizes.small);
    KernelBench device(bench.device, bench.sizes.repeat);
    RG_ASSIGN_OR_RETURN(const std::vector<double> us, device.Schedules(kernel->ir, schedules));
    for (size_t i = 0; i < us.size(); ++i) bench.log->Add(name(schedules[i]), us[i]);
  }
  for (const Schedule& s : schedules) {
    if (!bench.log->Holds(name(s))) continue;
    RG_ASSIGN_OR_RETURN(const double us, bench.log->Us(name(s), [] { return 0.0; }));
    samples.push_back({s,
                       {.measured_us = us,
                        .price_ps =
                            [kernel, s](const DeviceSpec& d) {
                              return KernelPricer(kernel->ir, kernel->profile, d).Of(s).ps;
                            },
                        .kernel = number}});
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<CalibrationKernel> PassKernels(const BenchSizes& sizes) {
  const int64_t rows = sizes.Of(32768, 64), columns = sizes.Of(2048, 64);
  return {Sized("one read", kOneRead, rows, columns), Sized("two reads", kTwoReads, rows, columns),
          Sized("four reads", kFourReads, rows, columns), Sized("widened", kWidened, rows, columns),
          Sized("gelu", kGelu, rows, columns)};
}

std::vector<CalibrationKernel> RowKernels(const BenchSizes& sizes) {
  return {
      Sized("rms_norm, rows alone,", kRmsNormRows, sizes.Of(98304, 256), sizes.Of(512, 64)),
      Sized("rms_norm, rows alone,", kRmsNormRows, sizes.Of(16384, 192), sizes.Of(4096, 128)),
      Sized("softmax", kSoftmax, sizes.Of(131072, 160), sizes.Of(512, 96)),
      Sized("softmax", kSoftmax, sizes.Of(32768, 128), sizes.Of(2048, 64)),
      Sized("log_softmax", kLogSoftmax, sizes.Of(8192, 64), sizes.Of(16384, 256)),
      Sized("log_softmax", kLogSoftmax, sizes.Of(98304, 192), sizes.Of(1024, 160)),
  };
}

std::vector<CalibrationKernel> RowColumnKernels(const BenchSizes& sizes) {
  return {
      Sized("rms_norm", kRmsNorm, sizes.Of(16384, 192), sizes.Of(4096, 128)),
      Sized("rms_norm", kRmsNorm, sizes.Of(98304, 256), sizes.Of(512, 64)),
      Sized("rms_norm", kRmsNorm, sizes.Of(32768, 160), sizes.Of(1024, 96)),
      Sized("rms_norm", kRmsNorm, sizes.Of(8192, 64), sizes.Of(8192, 160)),
      Sized("rms_norm and residual", kRmsNormResidual, sizes.Of(65536, 128), sizes.Of(512, 64)),
      Sized("rms_norm and residual", kRmsNormResidual, sizes.Of(16384, 64), sizes.Of(2048, 96)),
      Sized("rms_norm and fp32 residual", kRmsNormWide, sizes.Of(65536, 96), sizes.Of(512, 64)),
      Sized("layer_norm", kLayerNorm, sizes.Of(32768, 128), sizes.Of(768, 96)),
      Sized("layer_norm", kLayerNorm, sizes.Of(16384, 96), sizes.Of(3072, 128)),
      Sized("layer_norm", kLayerNorm, sizes.Of(2048, 64), sizes.Of(12288, 192)),
  };
}

std::vector<CalibrationKernel> ColumnKernels(const BenchSizes& sizes) {
  return {
      Sized("column sum", kColumnSum, sizes.Of(98304, 512), sizes.Of(512, 64)),
      Sized("column sum", kColumnSum, sizes.Of(16384, 256), sizes.Of(4096, 128)),
      Sized("column sum", kColumnSum, sizes.Of(65536, 256), sizes.Of(2048, 96)),
      Sized("column sum", kColumnSum, sizes.Of(4096, 128), sizes.Of(30720, 160)),
      Sized("column sum, stored,", kColumnSumStored, sizes.Of(32768, 2048), sizes.Of(2048, 256)),
      Sized("column sum, stored,", kColumnSumStored, sizes.Of(98304, 4096), sizes.Of(512, 96)),
  };
}

absl::StatusOr<std::vector<ScheduleSample>> TimeSchedules(
    absl::Span<const CalibrationKernel> kernels, const CalibrationBench& bench) {
  std::vector<ScheduleSample> samples;
  for (size_t i = 0; i < kernels.size(); ++i) {
    const absl::Status timed = TimeKernel(kernels[i], static_cast<int>(i), bench, samples);
    if (!timed.ok()) {
      return absl::Status(timed.code(), absl::StrCat(kernels[i].name, ": ", timed.message()));
    }
  }
  return samples;
}

}  // namespace retrograd
