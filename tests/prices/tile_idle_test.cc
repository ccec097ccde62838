// What threads outside of a tile cost: teams go through whole parts of it, and all teams through as
// many.
#include <cmath>

#include "fusion/cost/kernel_cost.h"
#include "fusion/device/device_numbers.h"
#include "tests/catch.h"
#include "tests/support/kernels/kernel_ir_builder.h"

namespace retrograd {
namespace {

// Of each of 1,024 tiles: sums of rows and of columns of exp(x).
KernelIr Sums(int64_t rows, int64_t columns) {
  constexpr int64_t kTiles = 1024;
  KernelIrBuilder b({kTiles, rows, columns});
  const int x = b.Load(b.In(DType::kBf16, kTiles * rows * columns),
                       A(0) * (rows * columns) + A(1) * columns + A(2));
  const int e = b.Do(Op::exp, {b.Cast(x, DType::kFp32)});
  b.Store(b.Reduce(Op::sum, e, AxisMask{4}), b.Out(DType::kFp32, kTiles * rows),
          A(0) * rows + A(1));
  b.Store(b.Reduce(Op::sum, e, AxisMask{2}), b.Out(DType::kFp32, kTiles * columns),
          A(0) * columns + A(2));
  return b.Build();
}

// By eight teams, whose parts are of 32 rows and 16 columns.
double ComputePs(int64_t rows, int64_t columns) {
  const auto device = LoadDeviceSpec("h200");
  REQUIRE(device.ok());
  const KernelIr ir = Sums(rows, columns);
  REQUIRE(Classify(ir).kind == Template::kHeldTiles);
  const KernelProfile profile = ProfileKernel(ir, Classify(ir));
  const KernelPricer pricer(ir, profile, *device);
  const Schedule schedule{.kind = Template::kHeldTiles,
                          .threads = 256,
                          .vector_width = 4,
                          .threads_per_row = 256,
                          .persistent = true,
                          .blocks = 1024};
  for (const Term& term : pricer.Of(schedule, /*explain=*/true).terms) {
    if (term.name == "compute") return static_cast<double>(term.ps);
  }
  return 0;
}

TEST_CASE("threads that lie outside of a tile take as long as those within") {
  const double full = ComputePs(64, 256);  // 4 parts for each team
  REQUIRE(full > 0);
  CHECK(std::fabs(ComputePs(64, 244) / full - 1) < 0.02);  // a part is three quarters full
  CHECK(std::fabs(ComputePs(64, 208) / full - 1) < 0.02);  // some teams have 3 parts
  CHECK(std::fabs(ComputePs(64, 196) / full - 1) < 0.02);  // both
  CHECK(ComputePs(64, 192) < full * 0.77);                 // 3 parts for each
}

}  // namespace
}  // namespace retrograd
