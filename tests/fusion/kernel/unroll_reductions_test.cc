// Reductions over few elements, unrolled: equal results from a kernel that folds no axis, under
// every schedule, run on the host with each access checked, against the interpreter.
#include "fusion/kernel/build/unroll_reductions.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "codegen/emit.h"
#include "codegen/translation_unit.h"
#include "fusion/kernel/templates/kernel_template.h"
#include "fusion/planner/planner.h"
#include "graph/text/text.h"
#include "runtime/host/host_module.h"
#include "tests/catch.h"
#include "tests/support/kernels/kernel_ir_builder.h"
#include "tests/support/kernels/run_kernel.h"

namespace retrograd {
namespace {

constexpr ScheduleLimits kDevice = {.warp = 32, .sms = 3, .shared_bytes = 48 << 10};

// The unrolled kernel does what the folding one does.
void CheckUnrolled(const KernelIr& ir) {
  REQUIRE(ir.Verify().ToString() == "OK");
  const std::optional<KernelIr> unrolled = UnrollReductions(ir);
  REQUIRE(unrolled.has_value());
  INFO(unrolled->Print());
  REQUIRE(unrolled->Verify().ToString() == "OK");
  const Classification shape = Classify(*unrolled);
  REQUIRE(shape.feasible);
  std::vector<KernelBody> bodies;
  std::vector<GroupKernels> kernels;
  for (const Schedule& schedule : CandidateSchedules(*unrolled, shape, kDevice)) {
    bodies.push_back({.ir = *unrolled, .schedule = schedule});
    kernels.push_back(EmitGroup(bodies.back(), Dialect::kHost));
  }
  REQUIRE(!bodies.empty());
  auto module = HostModule::Compile(DistinctKernels(kernels), {.check = true});
  REQUIRE(module.status().ToString() == "OK");
  for (size_t i = 0; i < bodies.size(); ++i) {
    const BufferValues before = RandomBuffers(ir, 7);
    auto after = RunKernels(**module, bodies[i], kernels[i], before, 7);
    REQUIRE(after.status().ToString() == "OK");
    INFO(PrintKernel(kernels[i].launches[0]));
    CHECK(CompareToInterpreter(ir, before, *after) == "");
    CHECK(CompareToInterpreter(*unrolled, before, *after) == "");
  }
}

TEST_CASE("reductions of any few elements, along any axis, are folds of as many operands") {
  const Op op = GENERATE(Op::sum, Op::amax);
  const DType dtype = GENERATE(DType::kFp32, DType::kBf16, DType::kFp64);
  const int64_t few = GENERATE(2, 3, 8);
  const int axis = GENERATE(0, 1, 2);
  INFO(Name(op) << " of " << few << " " << Name(dtype) << " along " << axis);
  std::vector<int64_t> extents = {6, 5, 16};
  extents[axis] = few;
  std::vector<int64_t> strides = {extents[1] * extents[2], extents[2], 1};
  KernelIrBuilder b(extents);
  const int64_t all = extents[0] * extents[1] * extents[2];
  const IndexExpr at = A(0) * strides[0] + A(1) * strides[1] + A(2);
  const int x = b.Load(b.In(dtype, all), at);
  IndexExpr result;
  int64_t step = 1;
  for (int a = 2; a >= 0; --a) {
    if (a == axis) continue;
    result.AddScaled(A(a), step);
    step *= extents[a];
  }
  b.Store(b.Reduce(op, x, AxisMask{1} << axis), b.Out(dtype, step), result);
  CheckUnrolled(b.Build());
}

TEST_CASE("what varies over the folded axes is stored at each of their places") {
  KernelIrBuilder b({4, 3, 32});
  const IndexExpr at = A(0) * 96 + A(1) * 32 + A(2);
  const int x = b.Load(b.In(DType::kFp32, 384), at);
  const int g = b.Load(b.In(DType::kFp32, 384), at, {{A(1) * 32 + A(2), 16, 96}});
  const int sum = b.Reduce(Op::sum, b.Do(Op::mul, {x, g}), 0b010);
  b.Store(b.Do(Op::mul, {x, b.Do(Op::sub, {g, sum})}), b.Out(DType::kFp32, 384), at);
  b.Store(sum, b.Out(DType::kFp32, 128), A(0) * 32 + A(2));
  CheckUnrolled(b.Build());
}

TEST_CASE("two reductions, one of the other's results, over two short axes") {
  KernelIrBuilder b({2, 64, 4});
  const IndexExpr at = A(0) * 256 + A(1) * 4 + A(2);
  const int x = b.Load(b.In(DType::kBf16, 512), at);
  const int rows = b.Reduce(Op::amax, x, 0b100);
  const int both = b.Reduce(Op::sum, b.Do(Op::sub, {x, rows}), 0b101);
  b.Store(both, b.Out(DType::kBf16, 64), A(1));
  CheckUnrolled(b.Build());
}

TEST_CASE("what folds many elements, or nothing, is not unrolled") {
  KernelIrBuilder many({64, 9});
  const int x = many.Load(many.In(DType::kFp32, 576), A(0) * 9 + A(1));
  many.Store(many.Reduce(Op::sum, x, 0b10), many.Out(DType::kFp32, 64), A(0));
  CHECK(!UnrollReductions(many.Build()).has_value());

  KernelIrBuilder none({64});
  none.Store(none.Load(none.In(DType::kFp32, 64), A(0)), none.Out(DType::kFp32, 64), A(0));
  CHECK(!UnrollReductions(none.Build()).has_value());
}

// Heads of keys that several queries' heads share: the sum of `repeats`.
std::string SumOfRepeats(int64_t repeats) {
  return absl::StrCat("%g = input name=\"g\" alignment=16  bf16[32,", repeats, ",65536]\n",
                      "%s = sum %g axes=[1] keep=0\noutput %s\n");
}

TEST_CASE("plans of what few values are needed for all of them are right, and take one kernel") {
  auto graph = ParseGraph(
      "%x = input name=\"x\" alignment=16  bf16[64,3,16384]\n"
      "%g = input name=\"g\" alignment=16  bf16[64,3,16384]\n"
      "%p = mul %x %g\n%s = sum %p axes=[1] keep=1\n%d = sub %g %s\n%y = mul %x %d\n"
      "output %y\n");
  REQUIRE(graph.status().ToString() == "OK");
  auto planned = PlanFusion(*graph, *LoadDeviceSpec("h200"), {});
  REQUIRE(planned.status().ToString() == "OK");
  CHECK(planned->plan.Verify(planned->graph).ToString() == "OK");
  REQUIRE(planned->plan.groups.size() == 1);
  const auto& launch = std::get<KernelLaunch>(planned->plan.groups[0].body);
  CHECK(launch.members[0].kernel.schedule.unrolled);
  CHECK(launch.members[0].kernel.ir.stores.size() == 3);
}

TEST_CASE("two stores of a buffer write different elements") {
  const auto two = [](int64_t second, int64_t points) {
    KernelIrBuilder b({points});
    const int x = b.In(DType::kFp32, points);
    const int out = b.Out(DType::kFp32, 2 * points + second);
    const int value = b.Load(x, A(0));
    b.Store(value, out, A(0) * 2);
    b.Store(value, out, A(0) * 2 + IndexExpr::Constant(second));
    return b.Build().Verify().ToString();
  };
  for (const int64_t points : {64, 1 << 20}) {
    CHECK(two(1, points) == "OK");
    CHECK(absl::StartsWith(two(0, points), "INVALID_ARGUMENT: K4"));
    CHECK(absl::StartsWith(two(2, points), "INVALID_ARGUMENT: K4"));
  }
}

TEST_CASE("tensors without elements are planned") {
  auto graph = ParseGraph(
      "%x = input name=\"x\" strides=[1,1]  f32[4,0]\n%b = input name=\"b\"  f32[0]\n"
      "%y = mul %x %b\n%s = sum %y axes=[0] keep=0\noutput %y\noutput %s\n");
  REQUIRE(graph.status().ToString() == "OK");
  CHECK(PlanFusion(*graph, *LoadDeviceSpec("h200"), {}).status().ToString() == "OK");
}

TEST_CASE("the sum of few rows is unrolled where that costs less, and can be forbidden") {
  auto graph = ParseGraph(SumOfRepeats(4));
  REQUIRE(graph.status().ToString() == "OK");
  for (const bool allowed : {true, false}) {
    PlanOptions options;
    if (!allowed) options.disable = {"unrolled_reductions"};
    auto planned = PlanFusion(*graph, *LoadDeviceSpec("h200"), options);
    REQUIRE(planned.status().ToString() == "OK");
    REQUIRE(planned->plan.groups.size() == 1);
    const auto* launch = std::get_if<KernelLaunch>(&planned->plan.groups[0].body);
    REQUIRE(launch != nullptr);
    const Schedule& schedule = launch->members[0].kernel.schedule;
    INFO(schedule.Print());
    CHECK(schedule.unrolled == allowed);
    CHECK((schedule.kind == Template::kPointwise) == allowed);
  }
}

}  // namespace
}  // namespace retrograd
