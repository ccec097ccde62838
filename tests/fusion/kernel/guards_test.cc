// Which guards and choices a kernel has around what pads and slices show.
#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "fusion/planner/planner.h"
#include "graph/text/text.h"
#include "tests/catch.h"

namespace retrograd {
namespace {

// The kernel of a graph that is one.
KernelIr KernelOfText(absl::string_view text) {
  auto graph = ParseGraph(text);
  REQUIRE(graph.status().ToString() == "OK");
  auto planned = PlanFusion(*graph, *LoadDeviceSpec("h200"), {});
  REQUIRE(planned.status().ToString() == "OK");
  CHECK(planned->plan.Verify(planned->graph).ToString() == "OK");
  REQUIRE(planned->plan.groups.size() == 1);
  REQUIRE(KernelOf(planned->plan.groups[0]) != nullptr);
  return KernelOf(planned->plan.groups[0])->ir;
}

int64_t Choices(const KernelIr& ir) {
  return std::count_if(ir.instrs.begin(), ir.instrs.end(),
                       [](const Instr& i) { return i.kind == InstrKind::kSelect; });
}

// A pad of what `made` makes of %x, as %m.
KernelIr Padded(absl::string_view made, absl::string_view value = "0") {
  return KernelOfText(absl::StrCat("%x = input name=\"x\" f64[64,64]\n", made,
                                   "%p = pad %m low=[0,2] high=[0,1] value=", value,
                                   "\noutput %p\n"));
}

std::string Times(absl::string_view number) {
  return absl::StrCat("%c = full dtype=f64 shape=[] value=", number, "\n%m = mul %x %c\n");
}

TEST_CASE("a pad chooses no 0 where 0 comes out of guarded loads") {
  CHECK(Choices(Padded("%m = mul %x %x\n")) == 0);
  CHECK(Choices(Padded(Times("2"))) == 0);
  CHECK(Choices(Padded("%c = full dtype=f64 shape=[] value=3\n%m = div %x %c\n")) == 0);
  CHECK(Choices(Padded("%y = mul %x %x\n%m = sub %y %x\n")) == 0);
  CHECK(Choices(Padded("%y = cast %x dtype=f32\n%m = mul %y %y\n")) == 0);
}

TEST_CASE("a pad chooses its value where something else may come out") {
  for (const char* number : {"-2", "1e300", "inf"}) {
    INFO(number);
    CHECK(Choices(Padded(Times(number))) == 1);
  }
  CHECK(Choices(Padded("%m = exp %x\n")) == 1);
  // In fp32 the constant is 0, and 0 / 0 is no number.
  CHECK(Choices(Padded("%y = cast %x dtype=f32\n%c = full dtype=f32 shape=[] value=1e-50\n"
                       "%m = div %y %c\n")) == 1);
  CHECK(Choices(Padded("%m = neg %x\n")) == 1);  // -0
  CHECK(Choices(Padded("%m = div %x %x\n")) == 1);
  CHECK(Choices(Padded("%c = full dtype=f64 shape=[] value=1\n%m = add %x %c\n")) == 1);
  CHECK(Choices(Padded("%m = mul %x %x\n", "1")) == 1);
}

TEST_CASE("a pad of 0 around one of -0 is 0") {
  const KernelIr ir = KernelOfText(
      "%x = input name=\"x\" f64[64,64]\n%n = neg %x\n"
      "%p = pad %n low=[0,1] high=[0,1] value=-0.0\n"
      "%q = pad %p low=[0,1] high=[0,1] value=0.0\noutput %q\n");
  INFO(ir.Print());
  CHECK(Choices(ir) == 2);
}

TEST_CASE("a chain of squares is looked at so far and no further") {
  std::string text = "%m0 = mul %x %x\n";
  for (int i = 1; i < 40; ++i)
    absl::StrAppend(&text, "%m", i, " = mul %m", i - 1, " %m", i - 1, "\n");
  CHECK(Choices(Padded(absl::StrCat(text, "%m = mul %m39 %m39\n"))) == 1);
}

// Guards of all loads.
int64_t Guards(const KernelIr& ir) {
  int64_t guards = 0;
  for (const Instr& instr : ir.instrs) {
    if (instr.kind == InstrKind::kLoad) guards += static_cast<int64_t>(instr.guards.size());
  }
  return guards;
}

TEST_CASE("a guard about a repeated row is one about the row, once") {
  // Each element twice; what lies behind the first 63 pairs is cut off, then padded twice.
  const KernelIr ir = KernelOfText(
      "%x = input name=\"x\" f64[16,64]\n"
      "%a = reshape %x shape=[16,64,1]\n%b = expand %a shape=[16,64,2]\n"
      "%c = reshape %b shape=[16,128]\n"
      "%d = slice %c axis=1 start=0 stop=120 step=1\n"
      "%e = pad %d low=[0,0] high=[0,8] value=0\n"
      "%f = slice %e axis=1 start=0 stop=124 step=1\n"
      "%g = pad %f low=[0,0] high=[0,4] value=0\n"
      "%h = mul %g %g\noutput %h\n");
  INFO(ir.Print());
  CHECK(Guards(ir) == 1);
}

TEST_CASE("one element for all points is loaded once, whatever guards say") {
  const KernelIr ir = KernelOfText(
      "%s = input name=\"s\" f64[]\n%x = input name=\"x\" f64[64,64]\n"
      "%e = expand %s shape=[64,64]\n%m = mul %e %x\n"
      "%p = pad %m low=[0,2] high=[0,1] value=0\n%q = pad %m low=[0,1] high=[0,2] value=0\n"
      "%r = add %p %q\noutput %r\n");
  INFO(ir.Print());
  int64_t loads = 0;
  for (const Instr& instr : ir.instrs) {
    const bool of_all = instr.kind == InstrKind::kLoad && instr.axes == 0;
    loads += of_all;
    if (of_all) CHECK(instr.guards.empty());
  }
  CHECK(loads == 1);
}

}  // namespace
}  // namespace retrograd
