// The order of a kernel's axes.
#include "fusion/kernel/build/axis_order.h"

#include <cstdlib>

#include "fusion/planner/planner.h"
#include "tests/catch.h"
#include "tests/support/graphs/parsed_graph.h"
#include "tests/support/plans/plan_of.h"

namespace retrograd {
namespace {

Planned PlannedOf(absl::string_view text) {
  Planned planned = PlanOf(Parse(text), Device("h200"));
  CHECK(planned.plan.Verify(planned.graph).ToString() == "OK");
  return planned;
}

TEST_CASE("sums over pairs of points go along the points' elements, side by side in each operand") {
  // Of g[i,j] (x[i] - x[j]) over i and over j, no operand of which reaches all places.
  const Planned planned = PlannedOf(R"(
%0 = input name="g" kind=saved alignment=16  f32[64,64]
%1 = input name="x" kind=saved alignment=16  f32[64,16]
%2 = reshape %0 shape=[64,64,1]
%3 = expand %2 shape=[64,64,16]
%4 = reshape %1 shape=[64,1,16]
%5 = expand %4 shape=[64,64,16]
%6 = reshape %1 shape=[1,64,16]
%7 = expand %6 shape=[64,64,16]
%8 = sub %5 %7
%9 = mul %3 %8
%10 = sum %9 axes=[0] keep=0
%11 = sum %9 axes=[1] keep=0
output %10 name="a"
output %11 name="b"
)");
  int loads = 0;
  for (const Group& group : planned.plan.groups) {
    const KernelIr& ir = KernelOf(group)->ir;
    INFO(ir.Print());
    const int last = static_cast<int>(ir.extents.size()) - 1;
    for (const Instr& i : ir.instrs) {
      if (i.kind != InstrKind::kLoad) continue;
      ++loads;
      CHECK(std::abs(i.offset.axis_coef(last)) <= 1);
    }
  }
  CHECK(loads >= 3);
}

TEST_CASE("sums of products of rows that are looked up go along these rows") {
  // What is stored has no elements of a row.
  const Planned planned = PlannedOf(R"(
%0 = input name="from" kind=saved alignment=16  i64[20000]
%1 = input name="to" kind=saved alignment=16  i64[20000]
%2 = input name="x" kind=saved alignment=16  bf16[1000,4,8]
%3 = input name="g" kind=tangent alignment=16  f32[1000,4,8]
%4 = index_select %3 %1 axis=0
%5 = index_select %2 %0 axis=0
%6 = cast %5 dtype=f32
%7 = mul %4 %6
%8 = sum %7 axes=[2] keep=1
output %8 name="c"
)");
  REQUIRE(planned.plan.groups.size() == 1);
  const KernelBody& body = *KernelOf(planned.plan.groups[0]);
  INFO(body.schedule.Print() << "\n" << body.ir.Print());
  CHECK(body.schedule.kind == Template::kRowReduction);
  CHECK(body.ir.extents.back() == 8);
}

TEST_CASE("pixels of three colours are one axis with the pixels of a row") {
  const Planned planned = PlannedOf(R"(
%0 = input name="tokens" kind=tangent alignment=16  bf16[8,4,4,16,16,3]
%1 = neg %0
%2 = permute %1 perm=[0,5,1,3,2,4]
%3 = reshape %2 shape=[8,3,64,64]
output %3 name="dx"
)");
  REQUIRE(planned.plan.groups.size() == 1);
  const KernelBody& kernel = *KernelOf(planned.plan.groups[0]);
  INFO(kernel.ir.Print());
  CHECK(kernel.schedule.vector_width % 3 == 0);
  CHECK(kernel.ir.extents.back() % 3 == 0);
}

TEST_CASE(
    "P7: lanes of thirds that do not fill a row are refused, and other odd numbers of lanes") {
  Planned planned = PlannedOf(R"(
%0 = input name="x" kind=tangent alignment=16  f32[8,40]
%1 = neg %0
output %1 name="dx"
)");
  REQUIRE(planned.plan.groups.size() == 1);
  for (const int width : {12, 24, 20, 3}) {  // 320 elements
    FusionPlan plan = planned.plan;
    KernelOf(plan.groups[0])->schedule.vector_width = width;
    INFO(width);
    CHECK_THAT(plan.Verify(planned.graph).ToString(), Catch::Contains("P7"));
  }
}

TEST_CASE("rows shorter than a vector are no reason for another order") {
  const Planned planned = PlannedOf(R"(
%0 = input name="x" kind=tangent alignment=16  bf16[16,32,32,3]
%1 = neg %0
%2 = slice %1 axis=2 start=30 stop=32 step=1
%3 = slice %1 axis=2 start=0 stop=30 step=1
%4 = cat %2 %3 axis=2
output %4 name="dx"
)");
  REQUIRE(planned.plan.groups.size() == 1);
  const KernelIr& ir = KernelOf(planned.plan.groups[0])->ir;
  INFO(ir.Print());
  CHECK(ir.extents.back() >= 8);
}

}  // namespace
}  // namespace retrograd
