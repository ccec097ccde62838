// What a kernel reads again at steps of many elements is looked up element by element, and
// divisions by one number of a row are multiplications where a thread has several elements of it.
#include "fusion/cost/kernel_cost.h"
#include "fusion/planner/planner.h"
#include "tests/catch.h"
#include "tests/support/kernels/kernel_ir_builder.h"
#include "tests/support/plans/plan_of.h"

namespace retrograd {
namespace {

constexpr int64_t kSide = 4096;

int64_t TermPs(const KernelIr& ir, const Schedule& schedule, absl::string_view name) {
  const DeviceSpec device = Device("h200");
  const KernelProfile profile = ProfileKernel(ir, Classify(ir));
  const KernelPricer pricer(ir, profile, device);
  for (const Term& term : pricer.Of(schedule, /*explain=*/true).terms) {
    if (term.name == name) return term.ps;
  }
  return 0;
}

// Of x[r,c] y[r,c], where y is a later part of x, or its transpose.
KernelIr SumsOfRows(bool transposed) {
  KernelIrBuilder b({kSide, kSide});
  const int buffer = b.In(DType::kFp32, (kSide + 1) * kSide);
  const int x = b.Load(buffer, A(0) * kSide + A(1));
  const int y = transposed ? b.Load(buffer, A(1) * kSide + A(0))
                           : b.Load(buffer, A(0) * kSide + A(1) + IndexExpr::Constant(kSide));
  b.Store(b.Reduce(Op::sum, b.Do(Op::mul, {x, y}), AxisMask{2}), b.Out(DType::kFp32, kSide), A(0));
  return b.Build();
}

TEST_CASE("elements that are read again a row apart cost a lookup each") {
  Schedule s{.kind = Template::kRowReduction, .threads = 256};
  s.threads_per_row = 32;
  s.rows_per_block = 8;
  s.blocks = kSide / 8;
  const int64_t apart = TermPs(SumsOfRows(true), s, "cache");
  const int64_t beside = TermPs(SumsOfRows(false), s, "cache");
  CHECK(beside > 0);
  CHECK(apart > 8 * beside);
}

KernelIr Quotients(const IndexExpr& divisor, DType dtype = DType::kFp32) {
  KernelIrBuilder b({kSide, kSide});
  const int x = b.Load(b.In(dtype, kSide * kSide), A(0) * kSide + A(1));
  const int d = b.Load(b.In(dtype, kSide), divisor);
  b.Store(b.Do(Op::div, {x, d}), b.Out(dtype, kSide * kSide), A(0) * kSide + A(1));
  return b.Build();
}

TEST_CASE("one reciprocal serves the elements of a thread") {
  const auto compute_ps = [](const KernelIr& ir, int width) {
    return TermPs(ir,
                  {.kind = Template::kPointwise,
                   .threads = 256,
                   .vector_width = width,
                   .blocks = kSide * kSide / 256 / width},
                  "compute");
  };
  const auto divisions = [&](DType dtype, int width) {
    const int64_t by_row = compute_ps(Quotients(A(0), dtype), width);
    const int64_t by_column = compute_ps(Quotients(A(1), dtype), width);
    return static_cast<double>(by_row) / static_cast<double>(by_column);
  };
  CHECK(divisions(DType::kFp32, 4) < 0.7);
  CHECK(divisions(DType::kFp32, 1) >= 0.95);  // an element a thread
  CHECK(divisions(DType::kFp64, 2) > 0.9);
}

}  // namespace
}  // namespace retrograd
