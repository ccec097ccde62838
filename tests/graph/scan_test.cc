// cumsum and cumprod: the sums and products of the elements up to each, along one axis.
#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "graph/passes/rebatch.h"
#include "graph/passes/short_scans.h"
#include "graph/passes/simplify.h"
#include "graph/proto/proto.h"
#include "graph/reference/reference.h"
#include "graph/text/text.h"
#include "tests/catch.h"
#include "tests/support/graphs/parsed_graph.h"

namespace retrograd {
namespace {

BackwardGraph Scan(absl::string_view type, absl::string_view attrs) {
  return Parse(
      absl::StrCat("%x = input name=\"x\" ", type, "\n%y = cumsum %x ", attrs, "\noutput %y"));
}

Values Run(const BackwardGraph& graph, const Values& x) {
  auto values = Evaluate(graph, {x});
  REQUIRE(values.status().ToString() == "OK");
  return (*values)[1];
}

TEST_CASE("a cumulative sum adds the elements before each along its axis, or those behind it") {
  const Values x = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};  // [2,3,2]
  CHECK(Run(Scan("f64[2,3,2]", "axis=1"), x) == Values{1, 2, 4, 6, 9, 12, 7, 8, 16, 18, 27, 30});
  CHECK(Run(Scan("f64[2,3,2]", "axis=1 reverse=1"), x) ==
        Values{9, 12, 8, 10, 5, 6, 27, 30, 20, 22, 11, 12});
  CHECK(Run(Scan("f64[2,3,2]", "axis=0"), x) == Values{1, 2, 3, 4, 5, 6, 8, 10, 12, 14, 16, 18});
  CHECK(Run(Scan("f64[2,3,2]", "axis=2 reverse=0"), x) ==
        Values{1, 3, 3, 7, 5, 11, 7, 15, 9, 19, 11, 23});
  CHECK(Run(Scan("i8[3]", "axis=0"), {100, 100, 1}) == Values{100, -56, -55});
  CHECK(Run(Scan("f64[0,3]", "axis=0"), {}).empty());
}

TEST_CASE("a cumulative product multiplies, and its scan between two flips is one, too") {
  const BackwardGraph graph = Parse(
      "%x = input f64[2,3]\n%y = cumprod %x axis=1\n%z = cumprod %x axis=1 reverse=1\n"
      "%f = flip %x axes=[1]\n%s = cumprod %f axis=1\n%w = flip %s axes=[1]\n"
      "output %y\noutput %z\noutput %w");
  const auto values = Evaluate(graph, {{1, 2, 3, 4, 5, 6}});
  REQUIRE(values.ok());
  CHECK((*values)[1] == Values{1, 2, 6, 4, 20, 120});
  CHECK((*values)[2] == Values{6, 6, 3, 120, 30, 6});
  const auto simple = Simplify(graph);
  REQUIRE(simple.ok());
  CHECK(simple->num_nodes() == 3);  // both ways from the other end are one
  const BackwardGraph with_zero = Parse("%x = input f64[3]\n%y = cumprod %x axis=0\noutput %y");
  CHECK(Run(with_zero, {2, 0, 3}) == Values{2, 0, 0});
}

TEST_CASE("a scan of at most four places is made place by place, with the same results") {
  for (const char* type : {"f64[3,4]", "f32[2,3]", "i8[5,2]", "f64[4,1]"}) {
    for (const char* scan : {"cumsum %x axis=1", "cumprod %x axis=1 reverse=1"}) {
      INFO(type << " " << scan);
      const BackwardGraph graph =
          Parse(absl::StrCat("%x = input name=\"x\" ", type, "\n%y = ", scan, "\noutput %y"));
      const auto expanded = ExpandShortScans(graph);
      REQUIRE(expanded.ok());
      CHECK_FALSE(HasOp(*expanded, Op::cumsum));
      CHECK_FALSE(HasOp(*expanded, Op::cumprod));
      Values x(graph.type(NodeId{0}).elements());
      for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<double>(i % 5) - 1.5;
      if (type[0] == 'i') std::fill(x.begin(), x.end(), 12);  // 144 wraps around
      CHECK(FirstOutput(*expanded, {x}) == FirstOutput(graph, {x}));
    }
  }
  CHECK(HasOp(*ExpandShortScans(Scan("f64[3,5]", "axis=1")), Op::cumsum));
}

TEST_CASE("magnitudes add up along a scan") {
  const BackwardGraph graph = Scan("f64[3]", "axis=0");
  const auto values = Evaluate(graph, {{1, -2, 3}}, {.keep_all = true});
  REQUIRE(values.ok());
  const auto magnitudes = Magnitudes(graph, *values);
  REQUIRE(magnitudes.ok());
  CHECK((*magnitudes)[1] == Values{1, 3, 6});
}

TEST_CASE("the backward of a cumulative sum is the reverse one, by finite differences") {
  const BackwardGraph forward = Scan("f64[4]", "axis=0");
  const BackwardGraph backward = Scan("f64[4]", "axis=0 reverse=1");
  const Values x = {0.3, -1.2, 0.7, 2.1}, dy = {1.5, -0.4, 0.9, 0.2};
  const auto loss = [&](const Values& at) {
    double sum = 0;
    const Values y = Run(forward, at);
    for (size_t i = 0; i < y.size(); ++i) sum += y[i] * dy[i];
    return sum;
  };
  const Values dx = Run(backward, dy);
  for (size_t i = 0; i < x.size(); ++i) {
    Values above = x, below = x;
    above[i] += 1e-3;
    below[i] -= 1e-3;
    CHECK((loss(above) - loss(below)) / 2e-3 == Approx(dx[i]).margin(1e-9));
  }
}

TEST_CASE("a scan between two flips of its axis is the scan from the other end") {
  const auto flipped = [](absl::string_view axes) {
    return Parse(absl::StrCat("%x = input f64[2,3]\n%f = flip %x axes=", axes,
                              "\n%s = cumsum %f axis=1\n%y = flip %s axes=", axes, "\noutput %y"));
  };
  const auto simple = Simplify(flipped("[1]"));
  REQUIRE(simple.ok());
  CHECK(simple->num_nodes() == 2);
  const Values x = {1, 2, 3, 4, 5, 6};
  CHECK(Run(*simple, x) == Values{6, 5, 3, 15, 11, 6});
  const auto both = Simplify(flipped("[0,1]"));  // the other axis is flipped too
  REQUIRE(both.ok());
  CHECK(both->num_nodes() == 4);
}

TEST_CASE("a scan needs an axis of its operand and numbers") {
  const auto refusal = [](absl::string_view type, absl::string_view attrs) {
    const auto graph =
        ParseGraph(absl::StrCat("%x = input ", type, "\n%y = cumsum %x ", attrs, "\noutput %y"));
    return graph.ok() ? "legal" : std::string(graph.status().message());
  };
  CHECK(refusal("f32[2]", "axis=0") == "legal");
  CHECK_THAT(refusal("f32[2]", "axis=1"), ContainsSubstring("axis 1 of a tensor with 1 dims"));
  CHECK_THAT(refusal("bool[2]", "axis=0"), ContainsSubstring("a scan takes numbers"));
  CHECK_THAT(refusal("f32[2]", "axis=0 reverse=2"), ContainsSubstring("has to be 0 or 1"));
  CHECK_THAT(refusal("f32[2]", "reverse=1"), ContainsSubstring("attribute axis is missing"));
}

TEST_CASE("a scan reads back from text and file, scales with its rows, and over one element is x") {
  const BackwardGraph graph = Scan("f32[6,4]", "axis=0 reverse=1");
  CHECK(Parse(Print(graph)) == graph);
  const auto back = ParseGraphProto(SerializeGraph(graph));
  REQUIRE(back.ok());
  CHECK(*back == graph);
  const auto scaled = RescaleRows(graph, 1, 2);
  REQUIRE(scaled.status().ToString() == "OK");
  CHECK(scaled->type(NodeId{1}).shape == Shape{3, 4});
  const auto simple = Simplify(Scan("f32[6,1]", "axis=1"));
  REQUIRE(simple.ok());
  CHECK(simple->op(simple->outputs()[0].value->node) == Op::input);
}

}  // namespace
}  // namespace retrograd
