// What of a kernel's bytes a price takes to come from the cache.
#include <cmath>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "fusion/cost/kernel_cost.h"
#include "fusion/kernel/ir/scale.h"
#include "fusion/kernel/templates/kernel_template.h"
#include "graph/text/text.h"
#include "tests/catch.h"
#include "tests/support/kernels/kernel_ir_builder.h"
#include "tests/support/plans/plan_of.h"

namespace retrograd {
namespace {

// Rows whose sum every element waits for: one kernel reads each twice.
BackwardGraph TwiceReadRows(int rows, int columns) {
  auto graph = ParseGraph(absl::StrCat("%0 = input name=\"dy\" kind=tangent alignment=16  bf16[",
                                       rows, ",", columns, R"(]
%1 = sum %0 axes=[1] keep=1
%2 = sub %0 %1
output %2 name="dx"
)"));
  INFO(graph.status());
  REQUIRE(graph.ok());
  return *std::move(graph);
}

TEST_CASE("what rows are read for again comes from memory where the cache cannot hold them all") {
  // 256 rows at once, of 103 MB, on a device that keeps no more than 75 MB.
  const BackwardGraph wide = TwiceReadRows(256, 200704);
  DeviceSpec d = Device("h200");
  const int64_t lost = PlanOf(wide, d).plan.summary.price_ps;
  d.cache_bytes *= 10;
  const int64_t kept = PlanOf(wide, d).plan.summary.price_ps;
  CHECK(lost > kept + kept / 4);
  // Rows that registers hold are read once.
  const BackwardGraph narrow = TwiceReadRows(65536, 784);
  d.cache_bytes /= 10;
  const int64_t few = PlanOf(narrow, d).plan.summary.price_ps;
  d.cache_bytes *= 10;
  CHECK(PlanOf(narrow, d).plan.summary.price_ps == few);
}

// y - the mean of its row, times the product of `others` more operands.
KernelIr ReadTwice(int64_t rows, int64_t columns, int others) {
  KernelIrBuilder b({rows, columns});
  const int64_t all = rows * columns;
  const IndexExpr at = A(0) * columns + A(1);
  const int y = b.Cast(b.Load(b.In(DType::kBf16, all), at), DType::kFp32);
  int made = b.Do(Op::sub, {y, b.Reduce(Op::sum, y, AxisMask{2})});
  for (int i = 0; i < others; ++i) {
    made = b.Do(Op::mul, {made, b.Cast(b.Load(b.In(DType::kBf16, all), at), DType::kFp32)});
  }
  b.Store(b.Cast(made, DType::kBf16), b.Out(DType::kBf16, all), at);
  return b.Build();
}

TEST_CASE("what a stage moves beside the row that is read again takes its place in the caches") {
  const DeviceSpec d = Device("h200");
  DeviceSpec roomy = d;
  roomy.cache_bytes *= 100;
  // Of the time that a second read of all rows takes from memory, how much is added.
  const auto lost = [&](int64_t columns, int others) {
    const KernelIr ir = ReadTwice(4096, columns, others);
    const KernelProfile profile = ProfileKernel(ir, Classify(ir));
    const double again = 4096.0 * 2 * static_cast<double>(columns) * kPsPerSecond /
                         static_cast<double>(d.hbm_bytes_per_s);
    for (const Schedule& s : CandidateSchedules(ir, Classify(ir), ScheduleLimitsOf(d))) {
      const bool twice = s.kind == Template::kRowReduction && !s.persistent && s.split == 1;
      if (!twice || s.threads_per_row != 512 || s.vector_width != 8) continue;
      const int64_t ps = KernelPricer(ir, profile, d).Of(s).ps;
      return static_cast<double>(ps - KernelPricer(ir, profile, roomy).Of(s).ps) / again;
    }
    return -1.0;
  };
  // Rows under way take 19 to 28 MB, of which this cache keeps all, and with what is written about
  // as much again; with four operands more, 66 MB and more.
  CHECK(std::abs(lost(24'000, 0)) < 0.02);
  CHECK(lost(36'000, 4) > 0.5);
}

TEST_CASE("a cache keeps all, a part that shrinks evenly, or nothing of what was written") {
  const DeviceSpec d = Device("h200");
  const int64_t all = Share(d.cache_bytes, d.cache_kept_ppm);
  const int64_t none = Share(d.cache_bytes, d.cache_lost_ppm), fresh = 1 << 20;
  CHECK(CachedBytes(fresh, all, d) == fresh);
  CHECK(CachedBytes(fresh, none, d) == 0);
  CHECK(std::abs(CachedBytes(fresh, (all + none) / 2, d) - fresh / 2) <= 1);
  CHECK(std::abs(CachedBytes(fresh, all + (none - all) / 4, d) - 3 * fresh / 4) <= 1);
}

TEST_CASE("a cache keeps all of what is small, none of what is large, and a share in between") {
  DeviceSpec d = *LoadDeviceSpec("h200");
  d.cache_bytes = 1'000'000;
  d.cache_kept_ppm = 500'000;
  d.cache_lost_ppm = 1'500'000;
  CHECK(CachedBytes(800, 500'000, d) == 800);
  CHECK(CachedBytes(800, 1'000'000, d) == 400);
  CHECK(CachedBytes(800, 1'250'000, d) == 200);
  CHECK(CachedBytes(800, 1'500'000, d) == 0);
}

}  // namespace
}  // namespace retrograd
