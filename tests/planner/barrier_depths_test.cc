// At which depth an op that no barrier precedes is computed.
#include "fusion/analysis/barrier_depths.h"
#include "absl/strings/substitute.h"
#include "graph/text/text.h"
#include "tests/catch.h"

namespace retrograd {
namespace {

std::vector<int> DepthsOf(const std::string& text) {
  auto graph = ParseGraph(text);
  REQUIRE(graph.status().ToString() == "OK");
  const Consumers consumers(*graph);
  return BarrierDepths(*graph, consumers, std::vector<bool>(graph->num_nodes()));
}

// %4 is read by a product and by what sums it up, whose result is read behind the product; or
// only one of them reads it, and the other an input.
std::string Text(absl::string_view multiplied, absl::string_view summed) {
  return absl::Substitute(R"(graph "sums"
%0 = input name="d" kind=saved f32[256,512]
%1 = input name="u" kind=saved f32[256,512]
%2 = input name="w" kind=parameter f32[512,512]
%3 = input name="v" kind=saved f32[256,512]
%4 = mul %0 %1
%5 = mul $1 %3
%6 = sum %5 axes=[1] keep=1
%7 = matmul $0 %2
%8 = mul %7 %6
output %8
)",
                          multiplied, summed);
}

TEST_CASE("a sum stays beside what it reads if that has to be left there anyway") {
  const std::vector<int> depths = DepthsOf(Text("%4", "%4"));
  CHECK(depths[4] == 0);
  CHECK(depths[5] == 0);
  CHECK(depths[6] == 0);
  CHECK(depths[8] == 1);
}

// A sum at %index, and a gradient of weights that reads the same rows.
std::string Edges(absl::string_view index) {
  return absl::Substitute(R"(graph "edges"
%0 = input name="dy" kind=tangent f32[512,64]
%1 = input name="target" kind=saved i64[4096]
%2 = input name="source" kind=saved i64[4096]
%3 = input name="x" kind=saved f32[4096,64]
%4 = add %1 %2
%5 = sort_indices $0 rows=512
%6 = index_select %0 %1 axis=0
%7 = full dtype=f32 shape=[512,64] value=0.0
%8 = segment_add %7 %5 %6 axis=0
%9 = mul %6 %3
%10 = sum %9 axes=[1] keep=0
output %8
output %10
)",
                          index);
}

TEST_CASE("a sort of given indices holds nothing back, one of computed indices does") {
  const std::vector<int> given = DepthsOf(Edges("%2"));
  CHECK(given[8] == 0);
  CHECK(given[10] == 0);
  const std::vector<int> computed = DepthsOf(Edges("%4"));
  CHECK(computed[8] == 1);
}

TEST_CASE("a sum stands beside its reader if others there read the same") {
  const std::vector<int> depths = DepthsOf(R"(graph "softmax"
%0 = input name="d" kind=saved f32[256,512]
%1 = input name="u" kind=saved f32[256,512]
%2 = input name="w" kind=parameter f32[512,512]
%3 = input name="y" kind=saved f32[256,512]
%4 = mul %0 %1
%5 = mul %4 %3
%6 = sum %5 axes=[1] keep=1
%7 = matmul %4 %2
%8 = sub %4 %6
%9 = mul %8 %3
%10 = mul %7 %9
output %10
)");
  CHECK(depths[6] == depths[9]);
}

TEST_CASE("a sum of what lies in memory anyway stands beside its reader") {
  const std::vector<int> depths = DepthsOf(Text("%4", "%0"));
  CHECK(depths[4] == 0);
  CHECK(depths[5] == 1);
  CHECK(depths[6] == 1);
}

TEST_CASE("a sum whose maker can follow it stands beside its reader with that") {
  const std::vector<int> depths = DepthsOf(Text("%0", "%4"));
  CHECK(depths[4] == 1);
  CHECK(depths[6] == 1);
}

}  // namespace
}  // namespace retrograd
