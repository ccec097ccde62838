// The batch of a graph replaced by a multiple or a fraction of itself.
#include "graph/passes/rebatch.h"

#include "graph/passes/expand.h"
#include "models/models.h"
#include "tests/catch.h"
#include "tests/support/graphs/parsed_graph.h"

namespace retrograd {
namespace {

std::string Refusal(const char* text, int64_t numerator, int64_t denominator) {
  const auto scaled = RescaleRows(Parse(text), numerator, denominator);
  return scaled.ok() ? "rescaled" : std::string(scaled.status().message());
}

TEST_CASE("rows scale through reshapes, reductions, matmuls, constants and strides, and back") {
  const BackwardGraph graph = Parse(R"(graph "g"
%0 = input name="dy" kind=tangent  f32[6,4,8]
%1 = input name="x" kind=saved strides=[1,24]  f32[24,8]
%2 = input name="w" kind=parameter  f32[8,5]
%3 = reshape %0 shape=[24,8]
%4 = mul %3 %1
%5 = full value=2.0 dtype="f32" shape=[24,1]
%6 = mul %4 %5
%7 = sum %6 axes=[0]
%8 = permute %6 perm=[1,0]
%9 = matmul %6 %2
%10 = matmul %8 %9
%11 = slice %9 axis=1 start=1 stop=3 step=1
output %7 name="b"
output %9 name="y" strides=[1,24]
output %10 name="w"
output %11 name="s"
)");
  CHECK(FindRows(graph)->smallest == 6);
  CHECK(FindRows(graph)->largest == 24);
  const auto half = RescaleRows(graph, 1, 2);
  INFO(half.status());
  REQUIRE(half.ok());
  CHECK(half->type(NodeId{0}).shape == Shape{3, 4, 8});
  CHECK(half->type(NodeId{1}).shape == Shape{12, 8});
  CHECK(half->node(NodeId{1}).input->strides == std::vector<int64_t>{1, 12});
  CHECK(half->type(NodeId{2}).shape == Shape{8, 5});
  CHECK(half->type(NodeId{5}).shape == Shape{12, 1});
  CHECK(half->type(NodeId{7}).shape == Shape{8});
  CHECK(half->type(NodeId{10}).shape == Shape{8, 5});
  CHECK(half->type(NodeId{11}).shape == Shape{12, 2});
  CHECK(half->outputs()[1].strides == std::vector<int64_t>{1, 12});
  const auto again = RescaleRows(*half, 2, 1);
  REQUIRE(again.ok());
  CHECK(*again == graph);
}

TEST_CASE("what does not divide or takes a part of the rows is refused with its place") {
  constexpr char kOdd[] = R"(graph "g"
%0 = input name="x" kind=saved  f32[9,4]
%1 = neg %0
output %1 name="y"
)";
  CHECK_THAT(Refusal(kOdd, 1, 2), ContainsSubstring("an extent is 9"));
  CHECK(Refusal(kOdd, 2, 1) == "rescaled");
  CHECK_THAT(Refusal(kOdd, 1, 9), ContainsSubstring("an extent is 9"));  // rows of 1 broadcast
  CHECK_THAT(Refusal(kOdd, int64_t{1} << 50, 1), ContainsSubstring("an extent is 9"));
  CHECK_THAT(Refusal(kOdd, 0, 1), ContainsSubstring("0/1"));
  CHECK_THAT(Refusal(R"(graph "g"
%0 = input name="x" kind=saved  f32[8,4]
%1 = slice %0 axis=0 start=0 stop=6 step=1
%2 = neg %1
output %2 name="y"
)",
                     1, 2),
             ContainsSubstring("%1 (slice)"));
  CHECK_THAT(Refusal(R"(graph "g"
%0 = input name="x" kind=saved  f32[]
%1 = neg %0
output %1 name="y"
)",
                     1, 2),
             ContainsSubstring("no dimension"));
}

TEST_CASE("every captured graph is one for twice the batch, and back") {
  for (const char* model :
       {"golf_tiny", "bert_tiny", "gpt2_tiny", "llama_tiny", "golf_plain_b48"}) {
    INFO(model);
    const BackwardGraph graph = *ExpandComposites(*OpenGraph(model));
    const auto twice = RescaleRows(graph, 2, 1);
    INFO(twice.status());
    REQUIRE(twice.ok());
    CHECK(twice->Verify().ok());
    CHECK_FALSE(*twice == graph);
    const auto back = RescaleRows(*twice, 1, 2);
    INFO(back.status());
    REQUIRE(back.ok());
    CHECK(*back == graph);
  }
}

}  // namespace
}  // namespace retrograd
