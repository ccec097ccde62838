// Each limit lets its bound through and refuses one more, by name and with both numbers.
#include "fusion/cost/limits.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "fusion/kernel/templates/kernel_template.h"
#include "tests/catch.h"
#include "tests/support/kernels/kernel_ir_examples.h"

namespace retrograd {
namespace {

using Catch::Matchers::Contains;

DeviceSpec H200() {
  auto spec = LoadDeviceSpec("h200");
  REQUIRE(spec.ok());
  return *spec;
}

Limits LimitsOf(const DeviceSpec& device, const absl::flat_hash_set<std::string>& tighten = {}) {
  auto limits = Limits::Make(device, tighten);
  INFO(limits.status());
  REQUIRE(limits.ok());
  return *limits;
}

// A kernel of nothing but counts: as many of one thing as asked for.
struct Counts {
  int64_t operands = 1, stores = 1, axes = 1;
  int row_sums = 0, column_sums = 0;
  int64_t ops = 1;
};

Limits::Verdict VerdictOn(const Counts& counts, const Limits& limits) {
  KernelIr ir;
  ir.buffers.resize(counts.operands);
  ir.stores.resize(counts.stores);
  ir.extents.assign(counts.axes, 2);
  KernelProfile profile;
  profile.row_sums = counts.row_sums;
  profile.column_sums = counts.column_sums;
  return limits.CheckKernel(ir, profile, counts.ops);
}

// `with(n)`: the verdict on a kernel that has n of what the limit counts.
template <typename With>
void CheckBound(const std::string& name, int64_t bound, With with) {
  INFO(name << ", at most " << bound);
  CHECK(with(bound).ok());
  const Limits::Verdict refused = with(bound + 1);
  CHECK(refused.limit == name);
  CHECK_THAT(refused.reason, Contains(absl::StrCat(bound + 1)) && Contains(absl::StrCat(bound)));
}

TEST_CASE("each limit that counts refuses one more than its bound, tightened or not") {
  const bool tight = GENERATE(false, true);
  for (const Limit& limit : kLimits) {
    const std::string name(limit.name);
    if (limit.normal == 0 || name == "mixed_reductions") continue;  // below
    const Limits limits = LimitsOf(H200(), tight ? absl::flat_hash_set<std::string>{name}
                                                 : absl::flat_hash_set<std::string>{});
    const int64_t bound = tight ? limit.tightened : limit.normal;
    CHECK(limits.Bound(name) == bound);
    CHECK(limits.any_tightened() == tight);
    if (name == "ops") {
      CheckBound(name, bound, [&](int64_t n) { return limits.CheckOps(n); });
    } else if (name == "operands") {
      CheckBound(name, bound, [&](int64_t n) { return VerdictOn({.operands = n}, limits); });
    } else if (name == "stores") {
      CheckBound(name, bound, [&](int64_t n) { return VerdictOn({.stores = n}, limits); });
    } else if (name == "axes") {
      CheckBound(name, bound, [&](int64_t n) { return VerdictOn({.axes = n}, limits); });
    } else if (name == "reductions") {
      CheckBound(name, bound, [&](int64_t n) {
        return VerdictOn(
            {.row_sums = static_cast<int>(n / 2), .column_sums = static_cast<int>(n - n / 2)},
            limits);
      });
    } else {
      FAIL(name << " has no test");
    }
  }
}

TEST_CASE("kernels of more ops may have more operands and stores, unless a limit is tightened") {
  const Limits limits = LimitsOf(H200()), tight = LimitsOf(H200(), {"axes"});
  const int64_t operands = kLongKernelsShare * limits.Bound("operands");
  CheckBound("operands", operands,
             [&](int64_t n) { return VerdictOn({.operands = n, .ops = kShortOps + 1}, limits); });
  CheckBound("stores", kLongKernelsShare * limits.Bound("stores"),
             [&](int64_t n) { return VerdictOn({.stores = n, .ops = kShortOps + 1}, limits); });
  CHECK(VerdictOn({.operands = operands, .ops = kShortOps}, limits).limit == "operands");
  CHECK(VerdictOn({.operands = operands, .ops = kShortOps + 1}, tight).limit == "operands");
}

TEST_CASE("row and column sums share a kernel unless that is tightened away") {
  int mixed = 0;
  for (const KernelExample& example : KernelExamples(DType::kFp32)) {
    const KernelProfile profile = ProfileKernel(example.ir, Classify(example.ir));
    CHECK(LimitsOf(H200()).CheckKernel(example.ir, profile).ok());
    const auto verdict = LimitsOf(H200(), {"mixed_reductions"}).CheckKernel(example.ir, profile);
    INFO(example.name << ": " << verdict.reason);
    CHECK(verdict.ok() == (example.kind != Template::kRowColumn));
    mixed += verdict.limit == "mixed_reductions";
  }
  CHECK(mixed > 0);
}

TEST_CASE("schedules are allowed up to the device's registers and shared memory, without spills") {
  const DeviceSpec device = H200();
  const Limits limits = LimitsOf(device);
  const Schedule schedule{.kind = Template::kPointwise, .threads = 256, .blocks = 1};
  const int registers = static_cast<int>(device.max_registers);
  Footprint fits{.registers = registers,
                 .registers_wanted = registers,
                 .shared_bytes = device.shared_bytes_per_block,
                 .blocks_per_sm = 1};
  const auto refusal = [&](const Footprint& f, const Limits& by) {
    const Limits::Verdict verdict = by.CheckSchedule(schedule, f);
    INFO(verdict.reason);
    CHECK(by.Allows(f) == verdict.ok());
    return verdict.limit;
  };
  CHECK(refusal(fits, limits) == "");
  Footprint f = fits;
  f.registers_wanted += 1;
  CHECK(refusal(f, limits) == "registers");
  f = fits;
  f.spill_bytes = 4;
  CHECK(refusal(f, limits) == "registers");
  f = fits;
  f.shared_bytes += 1;
  CHECK(refusal(f, limits) == "shared_memory");
  f = fits;
  f.registers_wanted = 64;
  CHECK(refusal(f, LimitsOf(device, {"registers"})) == "");
  f.registers_wanted = 65;
  CHECK(refusal(f, LimitsOf(device, {"registers"})) == "registers");
  f = fits;
  f.shared_bytes = 2048;
  CHECK(refusal(f, LimitsOf(device, {"shared_memory"})) == "");
  f.shared_bytes = 2049;
  CHECK(refusal(f, LimitsOf(device, {"shared_memory"})) == "shared_memory");
}

}  // namespace
}  // namespace retrograd
