// What operations take whose threads never wait for memory: divisions, functions, barriers.
#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "fusion/device/device_spec.h"
#include "graph/base/status.h"
#include "tools/calibrate/calibrate.h"
#include "tools/calibrate/chain_graph.h"
#include "tools/calibrate/kernel_bench.h"

namespace retrograd {
namespace {

constexpr double kSecond = 1e6;  // in microseconds

// A price class, and the ops that stand for it in backwards: the rate is the mean of theirs.
struct RateClass {
  const char* field;
  std::vector<std::pair<const char*, bool>> ops;  // and whether they take two operands
};
// Results stay between 2^-4 and 16: a quotient of 1 to 2 by the last one, roots and sigmoids of
// what is near 1. Each link waits for the one before: nothing is divided by the same number twice,
// of which a compiler would keep the reciprocal.
const std::vector<RateClass>& RateClasses() {
  static const auto* classes =
      new std::vector<RateClass>{{"rate_divide", {{"div", true}}},
                                 {"rate_exponential", {{"rsqrt", false}}},
                                 {"rate_special", {{"tanh", false}}},
                                 {"rate_erf", {{"erf", false}}}};
  return *classes;
}

// Rounds of what a sum over a block's threads does: a write to shared memory, a barrier, a read.
constexpr char kRounds[] = R"(  float v = 1.0f;
  for (int i = 0; i < rounds; ++i) {
    const int turn = (i & 1) * 256;
    scratch[turn + RG_THREAD] = v;
    RG_BARRIER();
    v += scratch[turn + (RG_THREAD + 33) % 256] * 0x1p-30f;
  }
  float stored[1] = {v};
  rg_store_vec<1>(y, RG_BLOCK * 256 + RG_THREAD, stored);
)";

Kernel RoundsKernel(int rounds, int64_t blocks) {
  return {
      .name = "rg_rounds",
      .blocks = blocks,
      .threads = 256,
      .arguments = 1,
      .threads_meet = true,
      .function = {
          .declarations =
              {{.type = "rg_bf16", .name = "y"},
               {.kind = Declaration::kShared, .type = "float", .name = "scratch", .count = 512}},
          .statements = absl::StrCat("  constexpr int rounds = ", rounds, ";\n", kRounds)}};
}

absl::StatusOr<double> RoundsUs(int rounds, const CalibrationBench& bench) {
  const int64_t blocks = bench.log->device().sms;
  return bench.log->Us(
      absl::StrCat(rounds, " barriers of 256 threads"), [&]() -> absl::StatusOr<double> {
        KernelBench device(bench.device, bench.sizes.repeat);
        RG_ASSIGN_OR_RETURN(const auto work,
                            device.Written(RoundsKernel(rounds, blocks), {blocks * 256 * 2}));
        return device.InARow(work.get());
      });
}

// Results a clock and SM.
absl::StatusOr<double> RateOf(const char* op, bool binary, const DeviceSpec& spec,
                              const CalibrationBench& bench) {
  const int64_t elements = bench.sizes.Of(1 << 22, 1 << 10);
  const int few = static_cast<int>(bench.sizes.Of(24, 8));    // more than what memory hides
  const int many = static_cast<int>(bench.sizes.Of(60, 24));  // what one kernel holds
  double us[2] = {};
  for (int i = 0; i < 2; ++i) {
    const int links = i == 0 ? few : many;
    RG_ASSIGN_OR_RETURN(
        us[i], bench.log->Us(
                   absl::StrCat(links, " x ", op, " of ", elements, " fp32"),
                   [&]() -> absl::StatusOr<double> {
                     KernelBench device(bench.device, bench.sizes.repeat);
                     RG_ASSIGN_OR_RETURN(
                         const KernelBody body,
                         PlannedKernel(ChainGraph(op, binary, elements, links, "f32"), bench.base));
                     RG_ASSIGN_OR_RETURN(const auto work, device.Kernel(body.ir, body.schedule));
                     return device.InARow(work.get());
                   }));
  }
  const double per_second =
      static_cast<double>(elements) * (many - few) * kSecond / std::max(us[1] - us[0], 1e-3);
  return std::max(per_second / static_cast<double>(spec.clock_hz * spec.sms), 1e-3);
}

}  // namespace

absl::StatusOr<std::vector<SpecNumber>> CalibrateRates(const std::string& text,
                                                       const CalibrationBench& bench) {
  RG_ASSIGN_OR_RETURN(const DeviceSpec spec, ParseDeviceSpec(text, "calibrate"));
  std::vector<SpecNumber> numbers;
  for (const RateClass& c : RateClasses()) {
    double clocks = 0;
    std::vector<std::string> each;
    for (const auto& [op, binary] : c.ops) {
      RG_ASSIGN_OR_RETURN(const double rate, RateOf(op, binary, spec, bench));
      clocks += 1 / rate;
      each.push_back(absl::StrFormat("%s %.1f", op, rate));
    }
    numbers.push_back(
        {c.field, static_cast<double>(c.ops.size()) / clocks,
         absl::StrCat("fp32 kernels of many beside such of fewer: ", absl::StrJoin(each, ", "))});
  }
  const int few = static_cast<int>(bench.sizes.Of(1000, 4)), many = 5 * few;
  RG_ASSIGN_OR_RETURN(const double few_us, RoundsUs(few, bench));
  RG_ASSIGN_OR_RETURN(const double many_us, RoundsUs(many, bench));
  numbers.push_back(
      {"barrier_us", std::max((many_us - few_us) / (many - few), 1e-4),
       "one round of a write to shared memory, a barrier and a read, by 256 threads"});
  return numbers;
}

}  // namespace retrograd
