// segment_amax: which nodes are legal, what they give, and how they print.
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "graph/proto/proto.h"
#include "graph/reference/reference.h"
#include "graph/text/text.h"
#include "tests/catch.h"
#include "tests/support/graphs/parsed_graph.h"

namespace retrograd {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::string TextOf(absl::string_view x, absl::string_view ends, absl::string_view attrs) {
  return absl::StrCat("graph \"g\"\n%x = input ", x, "\n%e = input ", ends,
                      "\n%y = segment_amax %x %e ", attrs, "\noutput %y\n");
}

std::string Refusal(absl::string_view x, absl::string_view ends, absl::string_view attrs) {
  const auto graph = ParseGraph(TextOf(x, ends, attrs));
  return graph.ok() ? "legal" : std::string(graph.status().message());
}

Values Evaluated(const BackwardGraph& graph, const std::vector<Values>& inputs) {
  auto values = Evaluate(graph, inputs, {.mode = ReferenceOptions::kFloat64});
  REQUIRE(values.ok());
  return (*values)[graph.value_index(*graph.outputs()[0].value)];
}

TEST_CASE("each group gives its largest element, an empty one none") {
  const BackwardGraph graph = Parse(TextOf("f32[5,2]", "i32[3]", "axis=0"));
  CHECK(graph.type({NodeId{2}, 0}).Print() == "f32[3,2]");
  const Values x = {1, -2, 3, -4, -5, -6, -7, -8, 9, 10};
  CHECK(Evaluated(graph, {x, {2, 2, 4}}) == Values{3, -2, -kInfinity, -kInfinity, -5, -6});
  CHECK(Evaluated(graph, {x, {-3, 2, 9}}) == Values{-kInfinity, -kInfinity, 3, -2, 9, 10});
  CHECK(Evaluated(graph, {x, {5, 1, 2}}) ==
        Values{9, 10, -kInfinity, -kInfinity, -kInfinity, -kInfinity});
}

TEST_CASE("the largest element of an empty group is -inf as a cast to the type has it") {
  for (const auto& [type, has_infinity] : {std::pair("bf16[2]", true),
                                           {"f8e5m2[2]", true},
                                           {"f8e4m3[2]", false},
                                           {"f8e5m2fnuz[2]", false}}) {
    INFO(type);
    const BackwardGraph graph = Parse(TextOf(type, "i32[2]", "axis=0"));
    auto values = Evaluate(graph, {{3, -4}, {0, 2}}, {.mode = ReferenceOptions::kRoundEveryOp});
    REQUIRE(values.ok());
    const Values& y = (*values)[graph.value_index(*graph.outputs()[0].value)];
    CHECK((has_infinity ? y[0] == -kInfinity : std::isnan(y[0])));
    CHECK(y[1] == 3);
  }
}

TEST_CASE("magnitudes are at least 0") {
  const BackwardGraph graph = Parse(TextOf("f32[2,5]", "i32[2]", "axis=1 magnitude=1"));
  CHECK(graph.type({NodeId{2}, 0}).Print() == "f32[2,2]");
  const Values x = {1, -2, 3, -4, -5, -6, -7, -8, 9, 10};
  CHECK(Evaluated(graph, {x, {0, 4}}) == Values{0, 4, 0, 9});
}

TEST_CASE("a NaN is the largest of its group") {
  const BackwardGraph graph = Parse(TextOf("f64[4]", "i32[2]", "axis=0"));
  const Values y = Evaluated(graph, {{kNan, kInfinity, 1, 2}, {2, 4}});
  CHECK(y[0] != y[0]);
  CHECK(y[1] == 2);
}

TEST_CASE("segment_amax is written as text and as a file") {
  const BackwardGraph graph = Parse(TextOf("bf16[2,5,3]", "i32[4]", "axis=1 magnitude=1"));
  CHECK(Parse(Print(graph)) == graph);
  const auto again = ParseGraphProto(SerializeGraph(graph));
  REQUIRE(again.ok());
  CHECK(*again == graph);
}

TEST_CASE("operands of segment_amax that do not fit are refused by name") {
  CHECK(Refusal("bf16[8,4]", "i32[2]", "axis=1") == "legal");
  const auto refused = [](const std::string& refusal, const char* why) {
    CHECK_THAT(refusal, ContainsSubstring(why));
  };
  refused(Refusal("i32[8,4]", "i32[2]", "axis=1"), "segment_amax takes floating values");
  refused(Refusal("f32[8,4]", "i64[2]", "axis=1"), "the groups' ends are int32");
  refused(Refusal("f32[8,4]", "i32[2,1]", "axis=1"), "the groups' ends are a list");
  refused(Refusal("f32[8,4]", "i32[2]", "axis=2"), "axis is 2 of a tensor of rank 2");
  refused(Refusal("f32[8,4]", "i32[2]", "axis=0 magnitude=2"), "0 or 1");
}

TEST_CASE("floor_pow2 is exact, also just below a power of two") {
  const BackwardGraph graph =
      Parse("graph \"g\"\n%x = input f64[9]\n%y = floor_pow2 %x\noutput %y\n");
  const Values x = {1, std::nextafter(2, 0), 2, -3.5, 0, kInfinity, 0x1p-1074, 0x1.8p-1060, 1e300};
  const Values y = Evaluated(graph, {x});
  CHECK(y == Values{1, 1, 2, -2, 0, kInfinity, 0x1p-1074, 0x1p-1060, 0x1p996});
}

}  // namespace
}  // namespace retrograd
