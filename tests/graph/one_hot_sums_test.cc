// Sums of one-hot rows: which are taken, and that values do not change.
#include "graph/passes/sums/one_hot_sums.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "graph/passes/simplify.h"
#include "graph/reference/reference.h"
#include "tests/catch.h"
#include "tests/support/graphs/parsed_graph.h"

namespace retrograd {
namespace {

BackwardGraph Taken(const BackwardGraph& graph) {
  auto taken = TakeOneHotSums(graph);
  REQUIRE(taken.status().ToString() == "OK");
  auto simple = Simplify(*taken);
  REQUIRE(simple.status().ToString() == "OK");
  REQUIRE(simple->Verify().ToString() == "OK");
  return *std::move(simple);
}

// Rows of cross entropy's gradient, as PyTorch writes it.
constexpr absl::string_view kRows = R"(
%label = input name="label" i64[4,1]
%scale = input name="scale" f64[4,1]
%i = iota axis=0 dtype=i64 shape=[6] start=0 step=1
%r = reshape %i shape=[1,6]
%e = expand %label shape=[4,6]
%c = eq %e %r
%minus = full dtype=f64 shape=[] value=-1.0
%zero = full dtype=f64 shape=[] value=0.0
%hot = where %c %minus %zero
%x = mul %hot %scale
%s = sum %x axes=[1] keep=1
output %s
)";

TEST_CASE("the sum of a one-hot row is its term, or zero where the index lies outside") {
  const BackwardGraph graph = Parse(kRows);
  const BackwardGraph taken = Taken(graph);
  CHECK_FALSE(HasOp(taken, Op::sum));
  for (uint32_t i = 0; i < taken.num_nodes(); ++i) {
    CHECK(taken.type(NodeId{i}).shape != Shape{4, 6});
  }
  const std::vector<Values> inputs = {{5, 0, -100, 6}, {2, 3, 4, 5}};
  CHECK(FirstOutput(taken, inputs) == Values{-2, -3, 0, 0});
  CHECK(FirstOutput(graph, inputs) == FirstOutput(taken, inputs));
}

TEST_CASE("casts, quotients, negations and other ranks on the way change nothing") {
  const BackwardGraph graph = Parse(R"(
%label = input name="label" i32[3,1,2]
%scale = input name="scale" f32[2]
%i = iota axis=1 dtype=i32 shape=[3,5,2] start=0 step=1
%c = eq %i %label
%one = full dtype=f32 shape=[3,5,2] value=1.5
%zero = full dtype=f32 shape=[] value=0.0
%none = expand %zero shape=[3,5,2]
%hot = where %c %one %none
%q = div %hot %scale
%n = neg %q
%d = cast %n dtype=f64
%s = sum %d axes=[1] keep=0
output %s
)");
  const BackwardGraph taken = Taken(graph);
  CHECK_FALSE(HasOp(taken, Op::sum));
  const std::vector<Values> inputs = {{0, 4, 5, 1, -1, 2}, {2, 4}};
  CHECK(taken.type(*taken.outputs()[0].value) == graph.type(*graph.outputs()[0].value));
  CHECK(FirstOutput(graph, inputs) == FirstOutput(taken, inputs));
}

TEST_CASE("what may have several terms, or terms elsewhere, stays a sum") {
  using Change = std::pair<absl::string_view, absl::string_view>;
  for (const auto& [from, to] : std::vector<Change>{
           {"start=0", "start=1"},
           {"step=1", "step=2"},
           {"value=0.0", "value=0.5"},
           {"axes=[1]", "axes=[0]"},
           {"axes=[1]", "axes=[0,1]"},
           {"eq %e %r", "le %e %r"},
           {"where %c %minus %zero", "where %c %zero %minus"},
           {"\"scale\" f64[4,1]", "\"scale\" f64[4,6]"},
           {"%e = expand %label shape=[4,6]",
            "%e = iota axis=1 dtype=i64 shape=[4,6] start=0 step=1"},
       }) {
    INFO(from << " -> " << to);
    const std::string text = absl::StrReplaceAll(kRows, {{from, to}});
    REQUIRE(text != kRows);
    CHECK(HasOp(Taken(Parse(text)), Op::sum));
  }
}

}  // namespace
}  // namespace retrograd
