// Joins whose parts are made alike: rotary positions above all.
#include "fusion/kernel/build/unify_branches.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "fusion/planner/planner.h"
#include "tests/catch.h"
#include "tests/support/graphs/parsed_graph.h"
#include "tests/support/plans/plan_of.h"

namespace retrograd {
namespace {

// The kernel of a graph that is one; its plan's checker has compared it with the graph.
KernelIr KernelOf(absl::string_view text) {
  const Planned planned = PlanOf(Parse(text), Device("h200"));
  CHECK(planned.plan.Verify(planned.graph).ToString() == "OK");
  REQUIRE(planned.plan.groups.size() == 1);
  const KernelIr& ir = KernelOf(planned.plan.groups[0])->ir;
  CHECK(ir.Verify().ToString() == "OK");
  return ir;
}

int Count(const KernelIr& ir, InstrKind kind) {
  return static_cast<int>(std::count_if(ir.instrs.begin(), ir.instrs.end(),
                                        [&](const Instr& i) { return i.kind == kind; }));
}

int Guards(const KernelIr& ir) {
  int guarded = 0;
  for (const Instr& i : ir.instrs) {
    guarded += i.kind == InstrKind::kLoad && !i.guards.empty();
  }
  return guarded;
}

TEST_CASE(
    "the halves that rotary positions swap are loaded by address, and each product is made once") {
  const KernelIr ir = KernelOf(R"(
%0 = input name="dy" kind=tangent alignment=16  f32[16,512,64]
%1 = input name="cos" kind=constant alignment=16  f32[512,32]
%2 = input name="sin" kind=constant alignment=16  f32[512,32]
%3 = slice %0 axis=2 start=0 stop=32 step=1
%4 = slice %0 axis=2 start=32 stop=64 step=1
%5 = mul %3 %1
%6 = mul %4 %2
%7 = neg %6
%8 = add %5 %7
%9 = mul %3 %2
%10 = mul %4 %1
%11 = add %9 %10
%12 = cat %8 %11 axis=2
output %12 name="dx"
)");
  INFO(ir.Print());
  CHECK(Guards(ir) == 0);
  CHECK(Count(ir, InstrKind::kLoad) == 4);    // both places of dy, cos, sin
  CHECK(Count(ir, InstrKind::kSelect) == 1);  // the sign
}

TEST_CASE("the sign that halves differ in may stand on either side") {
  for (const char* const parts : {"%8 %5", "%6 %7"}) {
    const KernelIr ir = KernelOf(absl::StrCat(R"(
%0 = input name="dy" kind=tangent alignment=16  f32[16,512,64]
%1 = input name="cos" kind=constant alignment=16  f32[512,64]
%2 = input name="sin" kind=constant alignment=16  f32[512,64]
%3 = mul %0 %1
%4 = mul %0 %2
%5 = slice %4 axis=2 start=0 stop=32 step=1
%6 = slice %4 axis=2 start=32 stop=64 step=1
%7 = neg %5
%8 = neg %6
%9 = cat )",
                                              parts, R"( axis=2
%10 = add %3 %9
output %10 name="dx"
)"));
    INFO(ir.Print());
    CHECK(Guards(ir) == 0);
    CHECK(Count(ir, InstrKind::kSelect) == 1);
  }
}

TEST_CASE("gradients of slices put side by side need no test of what each does not cover") {
  const KernelIr ir = KernelOf(R"(
%0 = input name="a" kind=tangent alignment=16  f32[64,32]
%1 = input name="b" kind=tangent alignment=16  f32[64,32]
%2 = neg %0
%3 = neg %1
%4 = cat %2 %3 axis=1
output %4 name="dx"
)");
  INFO(ir.Print());
  CHECK(Count(ir, InstrKind::kLoad) == 2);
  CHECK(Guards(ir) == 2);  // two tensors: each is loaded where it is wanted
}

TEST_CASE("parts that are made otherwise, or from elements at no fixed distance, stay apart") {
  for (const char* const part : {"exp %4", "neg %5"}) {
    const KernelIr ir = KernelOf(absl::StrCat(R"(
%0 = input name="a" kind=tangent alignment=16  f32[64,64]
%1 = input name="b" kind=tangent alignment=16  f32[64,64]
%2 = slice %0 axis=1 start=0 stop=32 step=1
%3 = neg %2
%4 = slice %0 axis=1 start=32 stop=64 step=1
%5 = slice %1 axis=1 start=0 stop=64 step=2
%6 = )",
                                              part, R"(
%7 = cat %3 %6 axis=1
output %7 name="dx"
)"));
    INFO(ir.Print());
    CHECK(Count(ir, InstrKind::kSelect) == 1);
    CHECK(Guards(ir) == 2);
  }
}

TEST_CASE("a rolled axis of windows is loaded from the place that a remainder says") {
  const KernelIr ir = KernelOf(R"(
%0 = input name="windows" kind=tangent alignment=16  f32[7,8,32]
%1 = neg %0
%2 = permute %1 perm=[1,0,2]
%3 = reshape %2 shape=[56,32]
%4 = slice %3 axis=0 start=53 stop=56 step=1
%5 = slice %3 axis=0 start=0 stop=53 step=1
%6 = cat %4 %5 axis=0
output %6 name="dx"
)");
  INFO(ir.Print());
  CHECK(Count(ir, InstrKind::kLoad) == 1);
  CHECK(Guards(ir) == 0);
}

TEST_CASE("of two places of an axis each is a step from the other") {
  for (const char* const parts : {"%4 %5", "%5 %4"}) {
    const KernelIr ir = KernelOf(absl::StrCat(R"(
%0 = input name="a" kind=tangent alignment=16  f32[64,64]
%1 = neg %0
%2 = slice %1 axis=1 start=0 stop=32 step=1
%3 = slice %1 axis=1 start=32 stop=64 step=1
%4 = reshape %2 shape=[64,1,32]
%5 = reshape %3 shape=[64,1,32]
%6 = cat )",
                                              parts, R"( axis=1
output %6 name="dx"
)"));
    INFO(ir.Print());
    CHECK(Count(ir, InstrKind::kLoad) == 1);
    CHECK(Guards(ir) == 0);
  }
}

TEST_CASE("a side longer than the period stays apart") {
  // Places 4 to 6, then 3 to 9: the distance says a period of 4, the second side has 7 places.
  const KernelIr ir = KernelOf(R"(
%0 = input name="a" kind=tangent alignment=16  f32[10,64]
%1 = neg %0
%2 = slice %1 axis=0 start=4 stop=7 step=1
%3 = slice %1 axis=0 start=3 stop=10 step=1
%4 = cat %2 %3 axis=0
output %4 name="dx"
)");
  INFO(ir.Print());
  CHECK(Guards(ir) == 2);
}

TEST_CASE("three parts are no cut in two") {
  const KernelIr ir = KernelOf(R"(
%0 = input name="a" kind=tangent alignment=16  f32[64,96]
%1 = slice %0 axis=1 start=0 stop=32 step=1
%2 = slice %0 axis=1 start=32 stop=64 step=1
%3 = slice %0 axis=1 start=64 stop=96 step=1
%4 = neg %1
%5 = neg %2
%6 = neg %3
%7 = cat %6 %4 %5 axis=1
output %7 name="dx"
)");
  INFO(ir.Print());
  CHECK(Count(ir, InstrKind::kLoad) >= 2);
}

}  // namespace
}  // namespace retrograd
