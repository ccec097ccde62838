// Sums of slices that are slices of one sum: which graphs change, and that no element does.
#include "graph/passes/sums/sums_of_slices.h"

#include <random>

#include "absl/strings/str_cat.h"
#include "graph/reference/reference.h"
#include "graph/text/text.h"
#include "tests/catch.h"
#include "tests/support/graphs/random_graph.h"

namespace retrograd {
namespace {

BackwardGraph Parse(absl::string_view text) {
  auto g = ParseGraph(text);
  INFO(text);
  REQUIRE(g.status().ToString() == "OK");
  return *std::move(g);
}

BackwardGraph Summed(const BackwardGraph& g) {
  auto summed = SumSlicesAtOnce(g);
  REQUIRE(summed.status().ToString() == "OK");
  REQUIRE(summed->Verify().ToString() == "OK");
  return *std::move(summed);
}

int Sums(const BackwardGraph& g) {
  int count = 0;
  for (uint32_t i = 0; i < g.num_nodes(); ++i) count += g.op(NodeId{i}) == Op::add;
  return count;
}

void CheckSameBits(const BackwardGraph& before, const BackwardGraph& after, uint32_t seed) {
  const std::vector<Values> inputs = RandomInputs(before, seed);
  const auto results = [&](const BackwardGraph& g) {
    auto values = Evaluate(g, inputs, {.mode = ReferenceOptions::kRoundEveryOp});
    REQUIRE(values.status().ToString() == "OK");
    std::vector<Values> outputs;
    for (const GraphOutput& out : g.outputs()) {
      outputs.push_back((*values)[g.value_index(*out.value)]);
    }
    return outputs;
  };
  CHECK(results(before) == results(after));
}

// What the layers of a DenseNet hand back: each to the concat of all earlier ones.
constexpr char kDense[] = R"(
%x = input bf16[2,16]
%y = input bf16[2,12]
%z = input bf16[2,8]
%x0 = slice %x axis=1 start=0 step=1 stop=4
%x1 = slice %x axis=1 start=4 step=1 stop=8
%x2 = slice %x axis=1 start=8 step=1 stop=12
%y0 = slice %y axis=1 start=0 step=1 stop=4
%y1 = slice %y axis=1 start=4 step=1 stop=8
%y2 = slice %y axis=1 start=8 step=1 stop=12
%z0 = slice %z axis=1 start=0 step=1 stop=4
%z1 = slice %z axis=1 start=4 step=1 stop=8
%a0 = add %x0 %y0
%a1 = add %y1 %x1
%a2 = add %x2 %y2
%b0 = add %a0 %z0
%b1 = add %a1 %z1
)";

TEST_CASE("sums of layers' slices are slices of one sum, and of sums of it") {
  const BackwardGraph g = Parse(absl::StrCat(kDense, "%c0 = exp %b0\n%c1 = exp %b1\n",
                                             "output %c0\noutput %c1\noutput %a2\n"));
  const BackwardGraph summed = Summed(g);
  // x + y at once, of which two slices are added to z's: these end there and stay apart.
  CHECK(Sums(summed) == 3);
  CheckSameBits(g, summed, 1);
}

TEST_CASE("sums whose slices go elsewhere stay apart") {
  const BackwardGraph g = Parse(R"(
%x = input f32[2,8]
%y = input f32[2,8]
%x0 = slice %x axis=1 start=0 step=1 stop=4
%x1 = slice %x axis=1 start=4 step=1 stop=8
%y0 = slice %y axis=1 start=0 step=1 stop=4
%y1 = slice %y axis=1 start=4 step=1 stop=8
%a0 = add %x0 %y0
%a1 = add %x1 %y1
output %a0
output %a1
)");
  CHECK(Summed(g) == g);
}

TEST_CASE("slices that are not neighbours, that step, or that meet otherwise stay apart") {
  const auto with = [](absl::string_view x1, absl::string_view y1) {
    return Parse(absl::StrCat(
        R"(
%x = input f32[2,12]
%y = input f32[2,12]
%z = input f32[2,8]
%x0 = slice %x axis=1 start=0 step=1 stop=4
%x1 = slice %x axis=1 )",
        x1, "\n%y0 = slice %y axis=1 start=0 step=1 stop=4\n%y1 = slice %y axis=1 ", y1, R"(
%z0 = slice %z axis=1 start=0 step=1 stop=4
%z1 = slice %z axis=1 start=4 step=1 stop=8
%a0 = add %x0 %y0
%a1 = add %x1 %y1
%b0 = add %a0 %z0
%b1 = add %a1 %z1
output %b0
output %b1
)"));
  };
  CHECK(Sums(Summed(with("start=4 step=1 stop=8", "start=4 step=1 stop=8"))) == 3);
  for (const auto& [x1, y1] : {std::pair("start=5 step=1 stop=9", "start=5 step=1 stop=9"),
                               {"start=4 step=1 stop=8", "start=5 step=1 stop=9"},
                               {"start=4 step=2 stop=12", "start=4 step=2 stop=12"},
                               {"start=0 step=1 stop=4", "start=0 step=1 stop=4"}}) {
    INFO(x1 << " and " << y1);
    const BackwardGraph g = with(x1, y1);
    CHECK(Summed(g) == g);
  }
}

// Layers that each add slices of their own tensor to what earlier ones left.
std::string RandomLayers(uint32_t seed) {
  std::mt19937_64 random(seed);
  const int pieces = 2 + static_cast<int>(random() % 5),
            layers = 2 + static_cast<int>(random() % 4);
  std::vector<int> begins = {0};
  for (int p = 0; p < pieces; ++p)
    begins.push_back(begins.back() + 1 + static_cast<int>(random() % 4));
  std::string text;
  std::vector<std::string> last(pieces);
  for (int l = 0; l <= layers; ++l) {
    const int shift = static_cast<int>(random() % 3), axis = static_cast<int>(random() % 8 != 0);
    const int width = begins.back() + shift;
    absl::StrAppend(&text, "%x", l, " = input bf16[", axis == 1 ? 3 : width, ",",
                    axis == 1 ? width : 3, "]\n");
    if (axis == 0) {  // lies the other way round
      absl::StrAppend(&text, "%w", l, " = permute %x", l, " perm=[1,0]\n");
    }
    for (int p = 0; p < pieces; ++p) {
      if (l > 0 && random() % 6 == 0) continue;  // a layer that does not reach it
      absl::StrAppend(&text, "%s", l, "_", p, " = slice %", axis == 1 ? "x" : "w", l,
                      " axis=1 start=", begins[p] + shift, " step=1 stop=", begins[p + 1] + shift,
                      "\n");
      const std::string own = absl::StrCat("%s", l, "_", p);
      if (last[p].empty()) {
        last[p] = own;
        continue;
      }
      const bool first = random() % 2 == 0;
      absl::StrAppend(&text, "%a", l, "_", p, " = add ", first ? own : last[p], " ",
                      first ? last[p] : own, "\n");
      last[p] = absl::StrCat("%a", l, "_", p);
      if (random() % 8 == 0) absl::StrAppend(&text, "output ", last[p], "\n");
    }
  }
  for (int p = 0; p < pieces; ++p) absl::StrAppend(&text, "output ", last[p], "\n");
  return text;
}

TEST_CASE("whatever layers add up, each element has the sum that it had") {
  const auto seed = GENERATE(range<uint32_t>(0, 200));
  const std::string text = RandomLayers(seed);
  INFO("seed " << seed << "\n" << text);
  const BackwardGraph g = Parse(text);
  CheckSameBits(g, Summed(g), seed);
}

}  // namespace
}  // namespace retrograd
