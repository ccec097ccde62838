// Sums of contributions: collecting and ordering.
#include "graph/passes/accumulate.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "graph/reference/reference.h"
#include "graph/text/text.h"
#include "tests/catch.h"
#include "tests/support/graphs/parsed_graph.h"
#include "tests/support/graphs/random_graph.h"

namespace retrograd {
namespace {

std::string Collected(absl::string_view text) {
  auto g = CollectAccumulates(Parse(text));
  REQUIRE(g.status().ToString() == "OK");
  REQUIRE(g->Verify().ToString() == "OK");
  return "\n" + Print(*g);
}

std::string Ordered(absl::string_view text, bool first_writer = true) {
  auto g = OrderAccumulates(Parse(text), first_writer);
  REQUIRE(g.status().ToString() == "OK");
  REQUIRE(g->Verify().ToString() == "OK");
  return "\n" + Print(*g);
}

TEST_CASE("a tree of adds becomes one accumulate, its terms depth first") {
  CHECK(Collected(R"(
%a = input f32[2]
%b = input f32[2]
%c = add %a %b
%d = neg %a
%e = add %b %d
%f = add %c %e
output %f
)") == R"(
%0 = input name="" kind=saved  f32[2]
%1 = input name="" kind=saved  f32[2]
%2 = neg %0  f32[2]
%3 = accumulate %0 %1 %1 %2 shape=[2] starts=[0,0,0,0]  f32[2]
output %3
)");
}

TEST_CASE(
    "adds that broadcast, count integers, are read twice or are outputs are not taken apart") {
  const auto count = [](absl::string_view text, absl::string_view what) {
    size_t n = 0;
    for (size_t at = 0; (at = text.find(what, at)) != absl::string_view::npos; ++at) ++n;
    return n;
  };
  CHECK(count(Collected("%a = input f32[2]\n%b = input f32[1]\n%c = add %a %b\noutput %c"),
              "accumulate") == 0);
  CHECK(count(Collected("%a = input i32[2]\n%c = add %a %a\noutput %c"), "accumulate") == 0);
  const std::string head = "%a = input f32[2]\n%b = input f32[2]\n%c = add %a %b\n";
  CHECK(count(Collected(head + "%d = add %c %c\noutput %d"), "= accumulate") == 2);
  CHECK(count(Collected(head + "%d = add %c %a\noutput %d\noutput %c"), "= accumulate") == 2);
  CHECK(count(Collected(head + "%d = add %c %a\noutput %d"), "= accumulate") == 1);
}

TEST_CASE("scatters into zeros become regions: alone, chained, added; pads that are added too") {
  const std::string head = R"(%s = input f32[1]
%t = input f32[2]
%x = input f32[4]
%zero = full dtype=f32 shape=[4] value=0
)";
  CHECK_THAT(
      Collected(head + "%a = slice_scatter %zero %s axis=0 start=2 stop=3 step=1\noutput %a"),
      ContainsSubstring("accumulate %0 shape=[4] starts=[2]"));
  CHECK_THAT(Collected(head + "%a = slice_scatter %zero %s axis=0 start=2 stop=3 step=1\n"
                              "%b = slice_scatter %a %t axis=0 start=0 stop=2 step=1\noutput %b"),
             ContainsSubstring("accumulate %0 %1 shape=[4] starts=[2,0]"));
  CHECK_THAT(Collected(head + "%a = slice_scatter %zero %s axis=0 start=2 stop=3 step=1\n"
                              "%b = add %x %a\n%p = pad %t low=[1] high=[1]\n%c = add %p %b\n"
                              "output %c"),
             ContainsSubstring("accumulate %1 %2 %0 shape=[4] starts=[1,0,2]"));
}

TEST_CASE("a scatter that overwrites, steps, or lands on more than zeros stays a scatter") {
  const std::string head = R"(%s = input f32[1]
%t = input f32[2]
%x = input f32[4]
%zero = full dtype=f32 shape=[4] value=0
)";
  for (const std::string tail :
       {"%a = slice_scatter %zero %s axis=0 start=1 stop=2 step=1\n"
        "%b = slice_scatter %a %t axis=0 start=0 stop=2 step=1\noutput %b",
        "%b = slice_scatter %zero %t axis=0 start=0 stop=4 step=2\noutput %b",
        "%b = slice_scatter %x %t axis=0 start=0 stop=2 step=1\noutput %b"}) {
    CHECK_THAT(Collected(head + tail), ContainsSubstring("= slice_scatter"));
  }
}

TEST_CASE("contributions are added where they become available, the first of them stored") {
  CHECK(Ordered(R"(
%a = input f32[2,2]
%m1 = matmul %a %a
%m2 = matmul %m1 %a
%m3 = matmul %m2 %a
%s = accumulate %m3 %m1 %m2 shape=[2,2] starts=[0,0,0,0,0,0]
output %s
)") == R"(
%0 = input name="" kind=saved  f32[2,2]
%1 = matmul %0 %0  f32[2,2]
%2 = matmul %1 %0  f32[2,2]
%3 = accumulate %1 %2 shape=[2,2] starts=[0,0,0,0]  f32[2,2]
%4 = matmul %2 %0  f32[2,2]
%5 = accumulate %3 %4 shape=[2,2] starts=[0,0,0,0]  f32[2,2]
output %5
)");
}

TEST_CASE("smaller regions wait for a whole contribution and join the next step") {
  CHECK(Ordered(R"(
%a = input f32[1]
%x = input f32[4]
%y = neg %x
%z = exp %y
%b = neg %a
%s = accumulate %a %y %z %b shape=[4] starts=[3,0,0,1]
output %s
)") == R"(
%0 = input name="" kind=saved  f32[1]
%1 = input name="" kind=saved  f32[4]
%2 = neg %1  f32[4]
%3 = exp %2  f32[4]
%4 = accumulate %2 %0 %3 shape=[4] starts=[0,3,0]  f32[4]
%5 = neg %0  f32[1]
%6 = accumulate %4 %5 shape=[4] starts=[0,1]  f32[4]
output %6
)");
}

TEST_CASE("sums of smaller regions alone, and single contributions, stay one op") {
  const std::string text = R"(
%0 = input name="" kind=saved  f32[1]
%1 = neg %0  f32[1]
%2 = accumulate %0 %1 shape=[4] starts=[0,2]  f32[4]
output %2
)";
  CHECK(Ordered(text) == text);
}

TEST_CASE("without a first writer every sum starts from zeros") {
  CHECK(Ordered(R"(
%a = input f32[2]
%b = neg %a
%s = accumulate %a %b shape=[2] starts=[0,0]
output %s
)",
                false) == R"(
%0 = input name="" kind=saved  f32[2]
%1 = full dtype=f32 shape=[2] value=0.0  f32[2]
%2 = accumulate %1 %0 shape=[2] starts=[0,0]  f32[2]
%3 = neg %0  f32[2]
%4 = accumulate %2 %3 shape=[2] starts=[0,0]  f32[2]
output %4
)");
}

TEST_CASE("a chain of 20,000 adds collects and orders without deep recursion") {
  GraphBuilder b;
  const ValueId x = b.Input({DType::kFp32, {2}}, {});
  ValueId sum = x;
  for (int i = 0; i < 20000; ++i) sum = b.Add(Op::add, {sum, x});
  b.Output(sum, "");
  auto g = b.Build();
  REQUIRE(g.ok());
  auto c = CollectAccumulates(*g);
  REQUIRE(c.ok());
  CHECK(c->num_nodes() == 2);
  auto o = OrderAccumulates(*c, true);
  REQUIRE(o.ok());
  CHECK(o->num_nodes() == 20001);
}

TEST_CASE("random graphs keep their values through collecting and ordering") {
  for (uint32_t seed = 0; seed < 300; ++seed) {
    INFO("seed " << seed);
    const BackwardGraph g = RandomGraph(seed);
    const std::vector<Values> inputs = RandomInputs(g, seed);
    ReferenceOptions options;
    options.keep_all = true;
    auto expected = Evaluate(g, inputs, options);
    REQUIRE(expected.status().ToString() == "OK");
    auto scale = Magnitudes(g, *expected);
    REQUIRE(scale.ok());
    auto collected = CollectAccumulates(g);
    REQUIRE(collected.status().ToString() == "OK");
    for (bool first_writer : {true, false}) {
      auto ordered = OrderAccumulates(*collected, first_writer);
      REQUIRE(ordered.status().ToString() == "OK");
      REQUIRE(ordered->Verify().ToString() == "OK");
      auto got = Evaluate(*ordered, inputs);
      REQUIRE(got.status().ToString() == "OK");
      for (size_t o = 0; o < g.outputs().size(); ++o) {
        if (!g.outputs()[o].value.has_value()) continue;
        const size_t v = g.value_index(*g.outputs()[o].value);
        const size_t w = ordered->value_index(*ordered->outputs()[o].value);
        REQUIRE((*expected)[v].size() == (*got)[w].size());
        for (size_t i = 0; i < (*expected)[v].size(); ++i) {
          REQUIRE(std::fabs((*expected)[v][i] - (*got)[w][i]) <= 1e-11 * (*scale)[v][i]);
        }
      }
    }
  }
}

}  // namespace
}  // namespace retrograd
