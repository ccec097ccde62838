// Which lanes of a vector need a value.
#include "fusion/kernel/ir/accesses/needed_lanes.h"

#include "fusion/planner/planner.h"
#include "graph/text/text.h"
#include "tests/catch.h"
#include "tests/support/kernels/kernel_ir_builder.h"

namespace retrograd {
namespace {

TEST_CASE("of parts that take turns each lane needs one, and what both are made of in all") {
  const std::vector<int64_t> extents = {64};
  KernelIrBuilder b(extents);
  const int shared = b.Load(b.In(DType::kFp32, 64), A(0));
  const int even = b.Do(Op::exp, {shared}), odd = b.Do(Op::tanh, {shared});
  const int outer = b.Do(Op::neg, {odd});
  const int joined = b.Select({{Mod(A(0), 2, extents), 0, 1}}, even, outer);
  const int quarter =
      b.Load(b.In(DType::kFp32, 16), FloorDiv(A(0), 4, extents), {{Mod(A(0), 4, extents), 0, 1}});
  const int sum = b.Do(Op::add, {joined, quarter});
  b.Store(sum, b.Out(DType::kFp32, 64), A(0));
  const KernelIr ir = b.Build();
  const std::vector<int> of8 = NeededLanes(ir, {.axis = 0, .width = 8});
  CHECK(of8[shared] == 8);
  CHECK(of8[even] == 4);
  CHECK(of8[odd] == 4);
  CHECK(of8[outer] == 4);
  CHECK(of8[quarter] == 2);
  CHECK(of8[sum] == 8);
  // A lane's position by itself says nothing.
  CHECK(NeededLanes(ir, {.axis = 0, .width = 1}) == std::vector<int>(ir.instrs.size(), 1));
}

TEST_CASE("what a reduction folds is needed in all lanes, and so is what no guard tells of") {
  KernelIrBuilder b({4, 16});
  const int x = b.Load(b.In(DType::kFp32, 64), A(0) * 16 + A(1), {{A(0) + A(1), 3, 9}});
  b.Store(b.Reduce(Op::sum, x, 0b10), b.Out(DType::kFp32, 4), A(0));
  CHECK(NeededLanes(b.Build(), {.axis = 1, .width = 8})[x] == 8);
}

TEST_CASE("both branches of a join whose parts take turns cost what one does at each element") {
  auto graph = ParseGraph(
      "%g = input name=\"g\" alignment=16  bf16[8192,4096]\n"
      "%x = input name=\"x\" alignment=16  bf16[8192,8192]\n"
      "%a = slice %x axis=1 start=0 step=2 stop=8192\n%b = slice %x axis=1 start=1 step=2 stop=8192\n"
      "%s = sigmoid %a\n%t = mul %a %s\n%db = mul %g %t\n%u = mul %g %b\n%da = mul %u %s\n"
      "%z = full dtype=bf16 shape=[8192,8192] value=0\n"
      "%p = slice_scatter %z %da axis=1 start=0 step=2 stop=8192\n"
      "%q = slice_scatter %z %db axis=1 start=1 step=2 stop=8192\n%y = add %p %q\noutput %y\n");
  REQUIRE(graph.status().ToString() == "OK");
  auto planned = PlanFusion(*graph, *LoadDeviceSpec("h200"), {});
  REQUIRE(planned.status().ToString() == "OK");
  CHECK(planned->plan.groups.size() == 1);
}

}  // namespace
}  // namespace retrograd
