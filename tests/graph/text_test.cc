// The text form.
#include "graph/text/text.h"

#include "tests/catch.h"
#include "tests/support/graphs/random_graph.h"

namespace retrograd {
namespace {

constexpr char kText[] = R"(graph "a \"graph\""
numerics tf32=1 deterministic=0 framework="torch 2.11.0"
origin @0 op="aten.mul" instance=7 module="blocks.0" source="m.py:3" recomputed=1
origin @1 op=""
%0 = input name="d;y" kind=tangent strides=[1,4] alignment=16 donated=1  f32[4,8]
%1 = full dtype=f32 shape=[] value=0.1  f32[]
%2 = full dtype=f32 shape=[2,0] value=-inf  f32[2,0]
%3 = mul %0 %1  f32[4,8]  ; @0 aten.mul#7
%4 = input name="k" kind=saved  f32[1,2,4,8]
%5 = input name="l" kind=saved  f32[1,2,4]
%6:3 = attention_backward %4 %4 %4 %4 %4 %5 causal=1 scale=0.125 variant="CuDNN"  f32[1,2,4,8] f32[1,2,4,8] f32[1,2,4,8]  ; @1 #0
%7 = neg %6.2  f32[1,2,4,8]
output %3 name="w" strides=[1,4]
output none name="none"
output %6.1
output %0
)";

TEST_CASE("printing a parsed graph gives the same text, and parsing that the same graph") {
  auto g = ParseGraph(kText);
  REQUIRE(g.status().ToString() == "OK");
  CHECK(Print(*g) == kText);
  auto again = ParseGraph(Print(*g));
  REQUIRE(again.ok());
  CHECK(*again == *g);
}

TEST_CASE("hand-written text may use names, leave types out and hold comments") {
  auto g = ParseGraph(R"(
    # bias gradient
    %dy = input f32[8,4] name="dy" kind=tangent   ; the incoming gradient, mail a@b.c
    %db = sum %dy axes=[0]
    output %db
  )");
  REQUIRE(g.status().ToString() == "OK");
  CHECK(g->type(NodeId{1}).shape == Shape{4});
}

TEST_CASE("an error of text names its line and its code") {
  const auto error = [](absl::string_view text) {
    return std::string(ParseGraph(text).status().message());
  };
  CHECK(error("%0 = input f32[2]\n%1 = mull %0 %0\n") ==
        "RG-G015 (G3): line 2: op \"mull\" is unknown; near it: full, mul");
  CHECK(error("%0 = input f32[2]\n%1 = mul %0 %2\n") ==
        "RG-G051 (T): line 2: %2 is not defined above");
  CHECK(
      error("%0 = input f32[2]\n%1 = neg %0 f32[3]\n") ==
      "RG-G019 (G3): line 2: node %1 (neg): result 0 is declared as f32[3] and inferred as f32[2]");
  CHECK(error("%0 = input f33[2]\n") == "RG-G021 (G3): line 1: \"f33\" is no dtype");
  CHECK(error("hello\n") ==
        "RG-G050 (T): line 1: a line starts with %name, graph, numerics, origin or output");
  CHECK(error("") == "RG-G050 (T): the text has no node");
  CHECK(error("%0 = input f32[2\n") == "RG-G050 (T): line 1: a list is not closed by ]");
  CHECK(error("%0 = input name=\"a f32[2]\n") == "RG-G050 (T): line 1: a string is not closed");
}

TEST_CASE("random graphs survive printing and parsing") {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    INFO("seed " << seed);
    const BackwardGraph g = RandomGraph(seed);
    auto back = ParseGraph(Print(g));
    REQUIRE(back.status().ToString() == "OK");
    REQUIRE(*back == g);
  }
}

}  // namespace
}  // namespace retrograd
