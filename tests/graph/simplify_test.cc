// Simplification: what goes, what stays, and that values do not change.
#include "graph/passes/simplify.h"

#include <cmath>

#include "graph/reference/reference.h"
#include "graph/text/text.h"
#include "tests/catch.h"
#include "tests/support/graphs/parsed_graph.h"
#include "tests/support/graphs/random_graph.h"

namespace retrograd {
namespace {

std::string Simplified(absl::string_view text, const SimplifyOptions& options = {}) {
  auto g = Simplify(Parse(text), options);
  REQUIRE(g.status().ToString() == "OK");
  REQUIRE(g->Verify().ToString() == "OK");
  return "\n" + Print(*g);
}

TEST_CASE("dead nodes go; inputs stay, read or not, in their order") {
  CHECK(Simplified(R"(
%a = input f32[2]
%b = neg %a
%c = input f32[3]
%d = neg %c
output %d
)") == R"(
%0 = input name="" kind=saved  f32[2]
%1 = input name="" kind=saved  f32[3]
%2 = neg %1  f32[3]
output %2
)");
}

TEST_CASE("equal nodes become one, with the first one's origin") {
  CHECK(Simplified(R"(
origin @0 op="first"
origin @1 op="second"
%a = input f32[2]
%b = exp %a ; @0
%c = exp %a ; @1
%d = mul %b %c
output %d
)") == R"(
origin @0 op="first"
origin @1 op="second"
%0 = input name="" kind=saved  f32[2]
%1 = exp %0  f32[2]  ; @0 first#0
%2 = mul %1 %1  f32[2]
output %2
)");
}

TEST_CASE("identity views, casts and neutral constants go, and views of views compose") {
  CHECK(Simplified(R"(
%a = input f32[2,3]
%zero = full dtype=f32 shape=[] value=0
%one = full dtype=f32 shape=[1] value=1
%b = add %zero %a
%c = mul %b %one
%d = reshape %c shape=[2,3]
%e = cast %d dtype=f32
%f = permute %e perm=[1,0]
%g = permute %f perm=[1,0]
%h = slice %g axis=0 start=0 stop=2 step=1
%i = reshape %h shape=[6]
%j = reshape %i shape=[3,2]
output %j
)") == R"(
%0 = input name="" kind=saved  f32[2,3]
%1 = reshape %0 shape=[3,2]  f32[3,2]
output %1
)");
}

TEST_CASE("a neutral constant that broadcasts its partner stays") {
  CHECK(Simplified(R"(
%a = input f32[1]
%zero = full dtype=f32 shape=[4] value=0
%b = add %a %zero
output %b
)") == R"(
%0 = input name="" kind=saved  f32[1]
%1 = full dtype=f32 shape=[4] value=0  f32[4]
%2 = add %0 %1  f32[4]
output %2
)");
}

TEST_CASE("a sum over extents of 1 is a reshape, and constants fold") {
  CHECK(Simplified(R"(
%a = input f32[1,4]
%s = sum %a axes=[0]
%n = full dtype=f32 shape=[] value=4.0
%r = reciprocal %n
%e = expand %r shape=[4]
%m = mul %s %e
output %m
)") == R"(
%0 = input name="" kind=saved  f32[1,4]
%1 = reshape %0 shape=[4]  f32[4]
%2 = full dtype=f32 shape=[4] value=0.25  f32[4]
%3 = mul %1 %2  f32[4]
output %3
)");
}

constexpr char kPair[] = R"(
%a = input f32[2,3]
%b = neg %a
%c = cast %b dtype=bf16
%d = permute %c perm=[1,0]
%e = cast %d dtype=f32
%f = exp %e
output %f
)";

TEST_CASE("a narrowing that is only widened again is dropped, through views") {
  CHECK(Simplified(kPair) == R"(
%0 = input name="" kind=saved  f32[2,3]
%1 = neg %0  f32[2,3]
%2 = permute %1 perm=[1,0]  f32[3,2]
%3 = exp %2  f32[3,2]
output %3
)");
}

TEST_CASE("a narrowing stays where it is switched off, stored, compared, masking or indexing") {
  const auto narrows = [](absl::string_view text, const SimplifyOptions& options = {}) {
    return Simplified(text, options).find("dtype=bf16") != std::string::npos;
  };
  CHECK_FALSE(narrows(kPair));
  CHECK(narrows(kPair, {.cast_pairs = false}));
  const std::string head = "%a = input f32[4]\n%b = neg %a\n%c = cast %b dtype=bf16\n";
  CHECK(narrows(head + "%d = cast %c dtype=f32\noutput %d\noutput %c"));
  CHECK(narrows(
      head + "%d = cast %c dtype=f32\n%e = neg %c\n%f = cast %e dtype=f32\noutput %f\noutput %d"));
  CHECK(narrows(head + "%d = cast %c dtype=f32\n%e = gt %d %a\n%f = where %e %a %d\noutput %f"));
  CHECK(narrows(head + "%d = cast %c dtype=f32\n%e = exp %d\n%f = lt %e %a\noutput %f"));
  CHECK(narrows(
      head +
      "%d = cast %c dtype=f32\n%i = cast %d dtype=i64\n%e = gather %a %i axis=0\noutput %e"));
  CHECK(narrows(head + "%d = cast %c dtype=f32\n%e = sign %d\noutput %e"));
  CHECK_FALSE(
      narrows(head + "%d = cast %c dtype=f32\n%z = gt %a %a\n%f = where %z %d %a\noutput %f"));
  // The narrow type rounds 0.1, which the pad would fill in; 0.5 is the same in both.
  const std::string padded = " low=[1] high=[0] value=";
  CHECK(narrows(head + "%d = pad %c" + padded + "0.1\n%e = cast %d dtype=f32\noutput %e"));
  CHECK_FALSE(narrows(head + "%d = pad %c" + padded + "0.5\n%e = cast %d dtype=f32\noutput %e"));
  // A narrower partner does not bring the source's digits back.
  CHECK(narrows(head + "%d = cast %c dtype=f16\noutput %d"));
}

TEST_CASE("a widening followed by its narrowing goes, cast pairs or not") {
  CHECK(Simplified("%a = input bf16[2]\n%b = cast %a dtype=f32\n%c = cast %b dtype=bf16\noutput %c",
                   {.cast_pairs = false}) == R"(
%0 = input name="" kind=saved  bf16[2]
output %0
)");
}

TEST_CASE("zeros of either sign stay apart: one divided by them is not the same") {
  for (const char* signs : {"0.0 -0.0", "-0.0 0.0"}) {
    const std::string first(signs, absl::string_view(signs).find(' '));
    const std::string second(absl::string_view(signs).substr(first.size() + 1));
    const BackwardGraph g =
        Parse("%a = input f32[2]\n%z = full dtype=f32 shape=[2] value=" + first +
              "\n%y = full dtype=f32 shape=[2] value=" + second +
              "\n%d = div %a %z\n%e = div %a %y\noutput %d\noutput %e");
    INFO(Print(g));
    auto s = Simplify(g);
    REQUIRE(s.status().ToString() == "OK");
    auto values = Evaluate(*s, {{1, 1}});
    REQUIRE(values.ok());
    const double d = (*values)[s->value_index(*s->outputs()[0].value)][0];
    const double e = (*values)[s->value_index(*s->outputs()[1].value)][0];
    CHECK(std::isinf(d));
    CHECK(d == -e);
    CHECK(std::signbit(d) == (first == "-0.0"));
  }
  // Fills of pads are constants, too.
  CHECK_THAT(Simplified("%a = input f32[2]\n%b = pad %a low=[1] high=[0] value=0.0\n"
                        "%c = pad %a low=[1] high=[0] value=-0.0\noutput %b\noutput %c"),
             ContainsSubstring("%2 = pad"));
}

TEST_CASE("copies are never merged") {
  const std::string text =
      Simplified("%a = input f32[2]\n%b = copy %a\n%c = copy %a\noutput %b\noutput %c");
  CHECK(text.find("%2 = copy %0") != std::string::npos);
}

// Number of elements in which the graphs' outputs differ by more than rounding of double.
void CheckSameValues(const BackwardGraph& before, const BackwardGraph& after, uint32_t seed) {
  const std::vector<Values> inputs = RandomInputs(before, seed);
  ReferenceOptions options;
  options.keep_all = true;
  auto expected = Evaluate(before, inputs, options);
  auto got = Evaluate(after, inputs);
  REQUIRE(expected.status().ToString() == "OK");
  REQUIRE(got.status().ToString() == "OK");
  auto scale = Magnitudes(before, *expected);
  REQUIRE(scale.ok());
  REQUIRE(before.outputs().size() == after.outputs().size());
  for (size_t o = 0; o < before.outputs().size(); ++o) {
    REQUIRE(before.outputs()[o].value.has_value() == after.outputs()[o].value.has_value());
    REQUIRE(before.outputs()[o].name == after.outputs()[o].name);
    REQUIRE(before.outputs()[o].strides == after.outputs()[o].strides);
    if (!before.outputs()[o].value.has_value()) continue;
    const size_t v = before.value_index(*before.outputs()[o].value);
    const size_t w = after.value_index(*after.outputs()[o].value);
    REQUIRE(before.type(*before.outputs()[o].value) == after.type(*after.outputs()[o].value));
    for (size_t i = 0; i < (*expected)[v].size(); ++i) {
      REQUIRE(std::fabs((*expected)[v][i] - (*got)[w][i]) <= 1e-11 * (*scale)[v][i]);
    }
  }
}

TEST_CASE("a value that goes leaves the result that it stood for, not its node's first one") {
  const auto simple =
      Simplify(Parse("%o = input f32[1,2,6,8]\n%q = input f32[1,2,6,8]\n%k = input f32[1,2,6,8]\n"
                     "%v = input f32[1,2,6,8]\n%y = input f32[1,2,6,8]\n%l = input f32[1,2,6]\n"
                     "%a:3 = attention_backward %o %q %k %v %y %l causal=0 dropout_p=0.0 scale=1.0 "
                     "variant=flash_cpu\n"
                     "%z = full dtype=f32 shape=[1,2,6,8] value=0.0\n"
                     "%b = add %z %a.1\n%c = add %a.2 %z\noutput %b\noutput %c\noutput %a.0"));
  REQUIRE(simple.status().ToString() == "OK");
  const BackwardGraph& g = *simple;
  REQUIRE(g.outputs().size() == 3);
  CHECK(g.outputs()[0].value->result == 1);
  CHECK(g.outputs()[1].value->result == 2);
  CHECK(g.outputs()[2].value->result == 0);
}

TEST_CASE("random graphs keep their values, and a second walk finds nothing") {
  for (uint32_t seed = 0; seed < 300; ++seed) {
    INFO("seed " << seed);
    const BackwardGraph g = RandomGraph(seed);
    auto s = Simplify(g);
    REQUIRE(s.status().ToString() == "OK");
    REQUIRE(s->Verify().ToString() == "OK");
    CHECK(s->num_nodes() <= g.num_nodes());
    CheckSameValues(g, *s, seed);
    auto again = Simplify(*s);
    REQUIRE(again.ok());
    CHECK(*again == *s);
  }
}

}  // namespace
}  // namespace retrograd
