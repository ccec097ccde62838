// Sums of strided slices: which are stacks, and that they mean the same.
#include "graph/passes/sums/sums_of_turns.h"

#include "graph/passes/accumulate.h"
#include "graph/passes/simplify.h"
#include "tests/catch.h"
#include "tests/support/graphs/parsed_graph.h"
#include "tests/support/plans/same_outputs.h"

namespace retrograd {
namespace {

BackwardGraph Collected(absl::string_view text) {
  auto graph = CollectAccumulates(Parse(text));
  INFO(graph.status());
  REQUIRE(graph.ok());
  return *std::move(graph);
}

BackwardGraph Stacked(const BackwardGraph& graph) {
  auto stacked = StackTurns(graph);
  INFO(stacked.status());
  REQUIRE(stacked.ok());
  auto simple = Simplify(*stacked);
  REQUIRE(simple.ok());
  return *std::move(simple);
}

int Count(const BackwardGraph& g, Op op) {
  int n = 0;
  for (uint32_t i = 0; i < g.num_nodes(); ++i) n += g.op(NodeId{i}) == op;
  return n;
}

TEST_CASE("halves that take turns are a stack") {
  const BackwardGraph graph = Collected(
      "%a = input name=\"a\" f32[3,4,2]\n%b = input name=\"b\" f32[3,4,2]\n"
      "%z = full dtype=f32 shape=[3,8,2] value=0\n"
      "%x = slice_scatter %z %a axis=1 start=1 step=2 stop=8\n"
      "%y = slice_scatter %z %b axis=1 start=0 step=2 stop=8\n"
      "%s = add %x %y\noutput %s");
  const BackwardGraph stacked = Stacked(graph);
  CHECK(Count(stacked, Op::slice_scatter) == 0);
  CHECK(Count(stacked, Op::accumulate) == 0);
  CHECK(Count(stacked, Op::cat) == 1);
  CHECK(LargestDifference(graph, stacked) == 0);
}

TEST_CASE("turns along two axes are stacks of stacks") {
  std::string text =
      "%w = input name=\"w\" f32[2,3,2,16]\n%z = full dtype=f32 shape=[2,3,6,4] value=0\n"
      "%o = full dtype=f32 shape=[2,6,6,4] value=0\n%i = full dtype=f32 shape=[2,3,6,4] value=0\n"
      "%p0 = slice %w axis=3 start=0 step=1 stop=4\n%p1 = slice %w axis=3 start=4 step=1 stop=8\n"
      "%p2 = slice %w axis=3 start=8 step=1 stop=12\n"
      "%q0 = slice_scatter %z %p0 axis=2 start=0 step=3 stop=6\n"
      "%q1 = slice_scatter %z %p1 axis=2 start=1 step=3 stop=6\n"
      "%q2 = slice_scatter %z %p2 axis=2 start=2 step=3 stop=6\n"
      "%r0 = slice_scatter %o %q0 axis=1 start=0 step=2 stop=6\n"
      "%r1 = slice_scatter %o %q1 axis=1 start=0 step=2 stop=6\n"
      "%r2 = slice_scatter %o %q2 axis=1 start=0 step=2 stop=6\n"
      "%r3 = slice_scatter %o %q2 axis=1 start=1 step=2 stop=6\n"
      "%r4 = slice_scatter %o %q1 axis=1 start=1 step=2 stop=6\n"
      "%r5 = slice_scatter %o %q0 axis=1 start=1 step=2 stop=6\n"
      "%s0 = add %r0 %r1\n%s1 = add %s0 %r2\n%s2 = add %s1 %r3\n%s3 = add %s2 %r4\n"
      "%s = add %s3 %r5\noutput %s";
  const BackwardGraph graph = Collected(text);
  const BackwardGraph stacked = Stacked(graph);
  CHECK(Count(stacked, Op::accumulate) == 0);
  CHECK(Count(stacked, Op::cat) >= 2);
  CHECK(LargestDifference(graph, stacked) == 0);
}

TEST_CASE("two turns of three stay a sum") {
  const BackwardGraph graph = Collected(
      "%a = input name=\"a\" f32[3,2]\n%b = input name=\"b\" f32[3,2]\n"
      "%z = full dtype=f32 shape=[9,2] value=0\n"
      "%x = slice_scatter %z %a axis=0 start=0 step=3 stop=9\n"
      "%y = slice_scatter %z %b axis=0 start=1 step=3 stop=9\n"
      "%s = add %x %y\noutput %s");
  auto stacked = StackTurns(graph);
  REQUIRE(stacked.ok());
  CHECK(*stacked == graph);
}

TEST_CASE("a stack that would have too many dims stays a sum") {
  const std::string ones = "1,1,1,1,1,1,1,1,1,1";
  const BackwardGraph graph = Collected(
      absl::StrCat("%a = input name=\"a\" f32[", ones, ",4,2]\n%b = input name=\"b\" f32[", ones,
                   ",4,2]\n%z = full dtype=f32 shape=[", ones, ",8,2] value=0\n",
                   "%x = slice_scatter %z %a axis=10 start=1 step=2 stop=8\n"
                   "%y = slice_scatter %z %b axis=10 start=0 step=2 stop=8\n"
                   "%s = add %x %y\noutput %s"));
  auto stacked = StackTurns(graph);
  REQUIRE(stacked.ok());
  CHECK(*stacked == graph);
}

TEST_CASE("sums in which a turn is missing, taken twice or beside other terms stay") {
  const auto stays = [](absl::string_view terms) {
    const BackwardGraph graph = Collected(absl::StrCat(
        "%a = input name=\"a\" f32[4,2]\n%b = input name=\"b\" f32[8,2]\n"
        "%c = input name=\"c\" f32[2,2]\n%d = input name=\"d\" f32[8,1]\n"
        "%z = full dtype=f32 shape=[8,2] value=0\n%one = full dtype=f32 shape=[8,2] value=1\n"
        "%even = slice_scatter %z %a axis=0 start=0 step=2 stop=8\n"
        "%odd = slice_scatter %z %a axis=0 start=1 step=2 stop=8\n"
        "%late = slice_scatter %z %a axis=0 start=2 step=1 stop=6\n"
        "%few = slice_scatter %z %c axis=0 start=1 step=4 stop=8\n"
        "%ones = slice_scatter %one %a axis=0 start=1 step=2 stop=8\n"
        "%left = slice_scatter %z %d axis=1 start=0 step=2 stop=2\n"
        "%right = slice_scatter %z %d axis=1 start=1 step=2 stop=2\n",
        terms, "\noutput %s"));
    auto stacked = StackTurns(graph);
    REQUIRE(stacked.ok());
    return *stacked == graph;
  };
  CHECK(stays("%t = add %even %even\n%s = add %t %odd"));  // one turn twice
  CHECK(stays("%s = add %even %b"));
  CHECK(stays("%t = add %even %odd\n%s = add %t %b"));
  CHECK(stays("%s = add %even %few"));
  CHECK(stays("%s = add %even %ones"));
  CHECK(stays("%s = add %even %late"));
  CHECK(stays("%s = add %left %right"));  // along the last axis
  CHECK_FALSE(stays("%s = add %even %odd"));
}

}  // namespace
}  // namespace retrograd
