#include "fusion/kernel/ir/kernel_ir.h"

#include "fusion/kernel/ir/accesses/vector_access.h"
#include "tests/catch.h"
#include "tests/support/kernels/kernel_ir_builder.h"
#include "tests/support/kernels/kernel_ir_examples.h"

namespace retrograd {
namespace {

std::string Message(const KernelIr& ir) { return std::string(ir.Verify().message()); }

// y[a0, a1] = x[a0, a1] over [4, 8].
KernelIr Copy() {
  KernelIrBuilder b({4, 8});
  const int x = b.In(DType::kFp32, 32), y = b.Out(DType::kFp32, 32);
  b.Store(b.Load(x, A(0) * 8 + A(1)), y, A(0) * 8 + A(1));
  return b.Build();
}

TEST_CASE("well-formed kernels keep K1 to K5") {
  CHECK(Message(Copy()).empty());
  for (const KernelExample& example : KernelExamples(DType::kBf16)) {
    INFO(example.name);
    CHECK(Message(example.ir).empty());
  }
}

TEST_CASE("K1: an operand that is not earlier is refused") {
  KernelIrBuilder b({4});
  b.Do(Op::neg, {b.Constant(1, DType::kFp32)});
  KernelIr ir = b.Build();
  ir.instrs[1].operands = {1};
  CHECK_THAT(Message(ir), ContainsSubstring("K1: v1"));
  ir.instrs[1].operands = {-1};
  CHECK_THAT(Message(ir), ContainsSubstring("K1: v1"));
}

TEST_CASE("K1: a floating index is refused") {
  KernelIrBuilder b({4});
  const int x = b.In(DType::kFp32, 8);
  b.Gather(x, IndexExpr(), b.Load(x, A(0)), 1, 8);
  CHECK_THAT(Message(b.Build()), ContainsSubstring("no integer"));
}

TEST_CASE("K2: an instruction that varies over fewer axes than its operands is refused") {
  KernelIrBuilder b({4, 8});
  const int x = b.In(DType::kFp32, 32);
  b.Do(Op::neg, {b.Load(x, A(0) * 8 + A(1))});
  KernelIr ir = b.Build();
  ir.instrs[1].axes = 1;
  CHECK_THAT(Message(ir), ContainsSubstring("K2: v1"));
}

TEST_CASE("K2: a reduction that varies over an axis that it folds is refused") {
  KernelIrBuilder b({4, 8});
  const int x = b.In(DType::kFp32, 32);
  b.Reduce(Op::sum, b.Load(x, A(0) * 8 + A(1)), 2);
  KernelIr ir = b.Build();
  ir.instrs[1].axes = 3;
  CHECK_THAT(Message(ir), ContainsSubstring("K2: v1"));
}

TEST_CASE("K3: a load or store past its buffer is refused, unless its guard keeps it inside") {
  KernelIr ir = Copy();
  ir.buffers[0].elements = 31;
  CHECK_THAT(Message(ir), ContainsSubstring("K3: v0 reads elements 0..31 of buffer 0"));
  ir.instrs[0].guards = {{A(0), 0, 3}};  // rows 0 to 2
  CHECK(Message(ir).empty());
  ir.instrs[0].guards = {{A(0) * 8 + A(1), 0, 31}};  // needs each point tried
  CHECK(Message(ir).empty());
  ir.instrs[0].guards = {{A(0) * 8 + A(1), 0, 32}};
  CHECK_THAT(Message(ir), ContainsSubstring("K3"));
  ir = Copy();
  ir.buffers[1].elements = 31;
  CHECK_THAT(Message(ir), ContainsSubstring("K3: store 0"));
  ir = Copy();
  ir.buffers[1].written = false;
  CHECK_THAT(Message(ir), ContainsSubstring("K3: store 0"));
}

TEST_CASE("K4: a store that meets an element twice is refused, through divisions too") {
  KernelIr ir = Copy();
  ir.stores[0].offset = A(0) * 7 + A(1);
  CHECK_THAT(Message(ir), ContainsSubstring("K4: store 0"));
  const IndexExpr folded = FloorDiv(A(1), 2, ir.extents) * 4;
  ir.stores[0].offset = A(0) + folded + Mod(A(1), 2, ir.extents) * 16;
  CHECK(Message(ir).empty());
  ir.stores[0].offset = A(0) + folded;
  CHECK_THAT(Message(ir), ContainsSubstring("K4: store 0"));
}

TEST_CASE("K5: a store placed by an axis over which its value does not vary is refused") {
  KernelIrBuilder b({4, 8});
  const int x = b.In(DType::kFp32, 32), y = b.Out(DType::kFp32, 32);
  b.Store(b.Load(x, A(0)), y, A(0) * 8 + A(1));
  CHECK_THAT(Message(b.Build()), ContainsSubstring("K5: store 0"));
}

TEST_CASE("the print names every load, guard, reduction and store") {
  KernelIrBuilder b({4, 8});
  const int x = b.In(DType::kBf16, 32), y = b.Out(DType::kFp32, 4);
  const int v = b.Load(x, A(0) * 8 + A(1), {{A(1), 2, 8}}, 0.5);
  b.Store(b.Reduce(Op::sum, b.Cast(v, DType::kFp32), 2), y, A(0));
  CHECK(b.Build().Print() ==
        "axes [4,8]\n"
        "b0 = input bf16[32] align=16\n"
        "b1 = output f32[4] align=16\n"
        "v0 = load b0[8*a0 + a1] if 2<=a1<8 else 0.5 : bf16 (a0,a1)\n"
        "v1 = cast v0 : f32 (a0,a1) rounded\n"
        "v2 = sum v1 over (a1) : f32 (a0)\n"
        "store b1[a0] v2\n");
}

// --- vectors -------------------------------------------------------------------------------------

TEST_CASE("what is known of lanes agrees with every point of random expressions") {
  const uint64_t seed = GENERATE(range<uint64_t>(1, 200));
  INFO("seed " << seed);
  uint64_t state = seed * 0x9e3779b97f4a7c15;
  auto draw = [&](int64_t n) {
    state = state * 6364136223846793005 + 1442695040888963407;
    return static_cast<int64_t>((state >> 33) % static_cast<uint64_t>(n));
  };
  const std::vector<int64_t> extents = {3, 5, 16};
  const int axis = 2, width = 1 << (1 + draw(3));
  IndexExpr e = A(0) * draw(9) + A(1) * (draw(3) * 8) + A(2) * (1 << draw(3)) +
                IndexExpr::Constant(draw(3) * 4);
  const int64_t divisor = 1 << (1 + draw(4));
  if (draw(3) == 0) e = FloorDiv(e, divisor, extents) * (1 + draw(4));
  if (draw(3) == 0) e = Mod(e, divisor, extents) + FloorDiv(A(2), 8, extents) * 32;
  if (draw(3) == 0) e = e * -1 + FloorDiv(A(2) * (1 + draw(3)) + A(0) * 6, 1 + draw(6), extents);
  const IndexExpr phase = A(0) * draw(9) + A(1) * draw(2) + IndexExpr::Constant(draw(3));
  const Vectors vectors{axis, width, draw(2) == 0 ? IndexExpr() : phase};
  const std::optional<int64_t> stride = LaneStride(e, vectors);
  const int64_t multiple = KnownMultiple(e, vectors);
  const std::vector<int64_t> steps = LaneSteps(e, vectors);
  const IndexRange range = Range(e, extents);
  const int64_t begin = range.min + draw(range.max - range.min + 1);
  const Guard guard{e, begin, begin + 1 + draw(range.max - begin + 1)};
  const std::vector<LaneTruth> truths = LaneTruths(guard, vectors, extents);
  const bool agree = LanesAgree(guard, vectors, extents);
  const IndexExpr at0 = AtLane0(e, vectors, extents);
  for (int64_t a0 = 0; a0 < 3; ++a0) {
    for (int64_t a1 = 0; a1 < 5; ++a1) {
      const int64_t behind = vectors.phase.Evaluate({a0, a1, 0}) % width;
      for (int64_t a2 = (width - behind) % width; a2 + width <= 16; a2 += width) {
        const int64_t first = e.Evaluate({a0, a1, a2});
        INFO(e.Print() << " at " << a0 << "," << a1 << "," << a2 << " width " << width);
        CHECK(at0.Evaluate({a0, a1, a2}) == first);
        CHECK((multiple == 0 ? first == 0 : first % multiple == 0));
        const auto holds = [&](int64_t value) { return guard.begin <= value && value < guard.end; };
        for (int j = 0; j < width; ++j) {
          const int64_t value = e.Evaluate({a0, a1, a2 + j});
          if (stride.has_value()) CHECK(value == first + *stride * j);
          if (!steps.empty()) CHECK(value == first + steps[j]);
          if (truths[j] != LaneTruth::kVaries) {
            CHECK(holds(value) == (truths[j] == LaneTruth::kAlways));
          }
          if (agree) CHECK(holds(value) == holds(first));
        }
      }
    }
  }
}

TEST_CASE("lanes of a division or a remainder step by known numbers, and guards of it are known") {
  const std::vector<int64_t> extents = {64};
  const Vectors eight{.axis = 0, .width = 8};
  using Steps = std::vector<int64_t>;
  CHECK(LaneSteps(FloorDiv(A(0), 2, extents), eight) == Steps{0, 0, 1, 1, 2, 2, 3, 3});
  CHECK(LaneSteps(Mod(A(0), 4, extents), eight) == Steps{0, 1, 2, 3, 0, 1, 2, 3});
  const IndexExpr behind_one = A(0) + IndexExpr::Constant(-1);
  CHECK(LaneSteps(FloorDiv(behind_one, 2, extents), eight) == Steps{0, 1, 1, 2, 2, 3, 3, 4});
  CHECK(LaneSteps(FloorDiv(A(0), 3, extents), eight).empty());  // 8 is no multiple of 3
  CHECK(LaneStride(FloorDiv(A(0), 2, extents), eight) == std::nullopt);
  CHECK(KnownMultiple(FloorDiv(A(0), 2, extents), eight) == 4);
  const auto always = LaneTruth::kAlways, never = LaneTruth::kNever, varies = LaneTruth::kVaries;
  CHECK(LaneTruths({Mod(A(0), 2, extents), 0, 1}, eight, extents) ==
        std::vector{always, never, always, never, always, never, always, never});
  CHECK(LaneTruths({behind_one, 0, 63}, {.axis = 0, .width = 2}, extents) ==
        std::vector{varies, always});
}

TEST_CASE("a row-major access takes 16 bytes at once; an odd row or address takes one element") {
  KernelIr ir = Copy();
  CHECK(LoadWidth(ir, 0, {1, 8}) == 4);  // four fp32
  CHECK(StoreWidth(ir, ir.stores[0], {1, 8}) == 4);
  ir.buffers[0].alignment = 8;
  CHECK(LoadWidth(ir, 0, {1, 8}) == 2);
  ir.buffers[0].alignment = 4;
  CHECK(LoadWidth(ir, 0, {1, 8}) == 1);
  ir = Copy();
  ir.instrs[0].offset = A(0) * 9 + A(1);
  CHECK(LoadWidth(ir, 0, {1, 8}) == 1);
  ir.instrs[0].offset = A(0) * 8 + A(1) + IndexExpr::Constant(2);
  CHECK(LoadWidth(ir, 0, {1, 8}) == 2);
  ir.instrs[0].offset = A(0) + A(1) * 4;
  CHECK(LoadWidth(ir, 0, {1, 8}) == 1);
}

TEST_CASE("a guard whose border lies between vectors leaves them whole, one inside splits them") {
  KernelIr ir = Copy();
  ir.instrs[0].guards = {{A(1), 4, 8}};
  CHECK(LoadWidth(ir, 0, {1, 4}) == 4);
  ir.instrs[0].guards = {{A(1), 2, 8}};
  CHECK(LoadWidth(ir, 0, {1, 4}) == 2);
  ir.instrs[0].guards = {{A(1), 3, 8}};
  CHECK(LoadWidth(ir, 0, {1, 4}) == 1);
}

}  // namespace
}  // namespace retrograd
