// Which exponentials may be zero where their results are small.
#include "fusion/kernel/ir/small_exponentials.h"

#include <functional>

#include "tests/catch.h"
#include "tests/support/kernels/kernel_ir_builder.h"

namespace retrograd {
namespace {

constexpr DType kF32 = DType::kFp32;

// Whether the exponential of a kernel that stores `make`(builder, exponential, another operand) may
// be.
bool MayBeZero(const std::function<int(KernelIrBuilder&, int, int)>& make, DType t = kF32) {
  KernelIrBuilder b({64});
  const int x = b.Load(b.In(t, 64), A(0)), y = b.Load(b.In(t, 64), A(0));
  const int power = b.Do(Op::exp, {x});
  const int made = make(b, power, y);
  b.Store(made, b.Out(t, 64), A(0));
  const KernelIr ir = b.Build();
  REQUIRE(ir.Verify().ToString() == "OK");
  return ZeroWhereSmall(ir)[static_cast<size_t>(power)];
}

TEST_CASE("terms of sums and products may be zero where they are small") {
  CHECK(MayBeZero([](auto& b, int p, int y) { return b.Do(Op::mul, {p, y}); }));
  CHECK(MayBeZero([](auto& b, int p, int y) { return b.Do(Op::div, {p, y}); }));
  CHECK(MayBeZero([](auto& b, int p, int y) {
    return b.Do(Op::sub, {y, b.Do(Op::maximum, {p, b.Do(Op::neg, {p})})});
  }));
  CHECK(MayBeZero([](auto& b, int p, int y) {
    return b.Do(Op::mul, {b.Reduce(Op::sum, p, AxisMask{1}), y});
  }));
}

TEST_CASE("what logarithms, divisors, roots, comparisons and others tell from zero stays") {
  for (const Op op : {Op::log, Op::log2, Op::sqrt, Op::rsqrt, Op::reciprocal, Op::sign}) {
    INFO(Name(op));
    CHECK_FALSE(MayBeZero([&](auto& b, int p, int y) {
      return b.Do(Op::add, {b.Do(op, {b.Do(Op::mul, {p, y})}), y});
    }));
  }
  CHECK_FALSE(MayBeZero([](auto& b, int p, int y) { return b.Do(Op::div, {y, p}); }));
  CHECK_FALSE(MayBeZero([](auto& b, int p, int y) {
    return b.Do(Op::where, {b.Do(Op::gt, {p, b.Constant(0, kF32)}), y, b.Do(Op::neg, {y})});
  }));
  CHECK_FALSE(MayBeZero([](auto& b, int p, int y) {
    return b.Do(Op::log, {b.Do(Op::add, {p, b.Do(Op::exp, {y})})});
  }));
}

TEST_CASE("what is known to be no small number has room for a term of zero") {
  CHECK(MayBeZero([](auto& b, int p, int y) {
    return b.Do(Op::div, {y, b.Do(Op::add, {p, b.Constant(1, kF32)})});
  }));
  CHECK(MayBeZero([](auto& b, int p, int y) {
    const int sum = b.Do(Op::add, {p, b.Constant(1, kF32)});
    return b.Do(Op::mul, {b.Do(Op::log, {sum}), y});
  }));
  CHECK(MayBeZero([](auto& b, int p, int y) {
    const int sum = b.Do(Op::add, {p, b.Constant(1, kF32)});
    return b.Do(Op::log, {b.Do(Op::mul, {sum, y})});
  }));
}

TEST_CASE("exponentials that are stored, and those of fp64, stay") {
  CHECK_FALSE(MayBeZero([](auto&, int p, int) { return p; }));
  CHECK_FALSE(MayBeZero([](auto& b, int p, int) { return b.Cast(b.Cast(p, DType::kBf16), kF32); }));
  CHECK_FALSE(MayBeZero([](auto& b, int p, int y) { return b.Do(Op::mul, {p, y}); }, DType::kFp64));
}

}  // namespace
}  // namespace retrograd
