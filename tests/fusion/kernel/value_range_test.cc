// Which stores of FP8 are known to round no number beyond those of their type.
#include "fusion/kernel/ir/value_range.h"

#include <cmath>

#include "tests/catch.h"
#include "tests/support/kernels/kernel_ir_builder.h"

namespace retrograd {
namespace {

constexpr DType kF32 = DType::kFp32, kE4M3 = DType::kFp8E4M3, kE5M2 = DType::kFp8E5M2;

// x between two numbers, by way of another type, in FP8.
KernelIr Clamped(double least, double most, DType by_way_of, DType to) {
  KernelIrBuilder b({64});
  const int x = b.In(kF32, 64), y = b.Out(to, 64);
  const int above = b.Do(Op::maximum, {b.Load(x, A(0)), b.Constant(least, kF32)});
  const int between = b.Do(Op::minimum, {above, b.Constant(most, kF32)});
  b.Store(b.Cast(b.Cast(between, by_way_of), to), y, A(0));
  return b.Build();
}

bool Within(const KernelIr& ir) { return StoresWithinType(ir, ir.stores[0]); }

TEST_CASE("a value clamped to the numbers of an FP8 type is stored within it") {
  CHECK(Within(Clamped(-448, 448, kF32, kE4M3)));
  CHECK(Within(Clamped(-1, 0.5, DType::kBf16, kE4M3)));
  CHECK(Within(Clamped(-57344, 57344, kF32, kE5M2)));
  CHECK(Within(Clamped(-448, 448, DType::kFp16, kE5M2)));
}

TEST_CASE("one that may be larger, by its clamp or by rounding between, is not") {
  CHECK_FALSE(Within(Clamped(-449, 448, kF32, kE4M3)));
  CHECK_FALSE(Within(Clamped(-448, 500, kF32, kE4M3)));
  CHECK_FALSE(Within(Clamped(-57344, 57345, kF32, kE5M2)));
  CHECK_FALSE(Within(Clamped(-57344, 57344, kF32, kE4M3)));
  CHECK_FALSE(Within(Clamped(-448, 448.0001, kF32, kE4M3)));
}

TEST_CASE("what is not clamped, or is stored in another type or added to what is there, is not") {
  KernelIrBuilder b({64});
  const int x = b.In(kF32, 64), y = b.Out(kE4M3, 64), z = b.Out(kF32, 64), w = b.Out(kE4M3, 64);
  const int v = b.Load(x, A(0));
  const int one_side = b.Do(Op::minimum, {v, b.Constant(448, kF32)});
  const int both = b.Do(Op::maximum, {one_side, b.Constant(-448, kF32)});
  b.Store(b.Cast(one_side, kE4M3), y, A(0));
  b.Store(both, z, A(0));
  b.Store(b.Cast(both, kE4M3), w, A(0), StoreMode::kAdd);
  const KernelIr ir = b.Build();
  for (const Store& store : ir.stores) CHECK_FALSE(StoresWithinType(ir, store));
  const ValueRange range = RangeOf(ir, one_side);
  CHECK(range.most == 448);
  CHECK(std::isinf(range.least));
}

TEST_CASE("a sum of an exponential and one has a reciprocal; what may be near zero has none") {
  KernelIrBuilder b({64});
  const int x = b.Load(b.In(kF32, 64), A(0)), i = b.Load(b.In(DType::kInt32, 64), A(0));
  const int exponential = b.Do(Op::exp, {x});
  const int sum = b.Do(Op::add, {exponential, b.Constant(1, kF32)});
  const int below =
      b.Do(Op::add, {b.Do(Op::minimum, {x, b.Constant(0, kF32)}), b.Constant(-1, kF32)});
  const int less = b.Do(Op::add, {exponential, b.Constant(-1, kF32)});
  const int tiny = b.Do(Op::add, {b.Do(Op::sqrt, {x}), b.Constant(0x1p-140, kF32)});
  const int normal = b.Do(Op::add, {b.Do(Op::sqrt, {x}), b.Constant(0x1p-126, kF32)});
  const int whole = b.Do(Op::add, {i, b.Constant(1, DType::kInt32)});
  const int unknown = b.Do(Op::add, {x, b.Constant(1, kF32)});
  const int opposite = b.Do(Op::add, {b.Constant(-INFINITY, kF32), exponential});
  b.Store(sum, b.Out(kF32, 64), A(0));
  const KernelIr ir = b.Build();
  CHECK(RangeOf(ir, sum).least == 1);
  for (int yes : {sum, below, normal}) CHECK(HasReciprocal(ir, yes));
  for (int no : {x, exponential, less, tiny, whole, unknown, opposite}) {
    CHECK_FALSE(HasReciprocal(ir, no));
  }
}

}  // namespace
}  // namespace retrograd
