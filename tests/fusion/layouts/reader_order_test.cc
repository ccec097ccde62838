// Products lie as what their readers read beside them, and plans of it give the reference's values.
#include <cmath>
#include <string_view>

#include "fusion/lower/layouts/layouts.h"
#include "graph/ir/backward_graph.h"
#include "tests/catch.h"
#include "tests/support/graphs/random_graph.h"
#include "tests/support/plans/run_plan.h"

namespace retrograd {
namespace {

constexpr int64_t kHeads = 3, kRows = 20, kColumns = 12, kInner = 8;
const Shape kProduct = {kHeads, kRows, kColumns};
const std::vector<int64_t> kNatural = {kRows * kColumns, kColumns, 1};
const std::vector<int64_t> kTransposed = {kRows * kColumns, 1, kRows};

// A product [heads, rows, columns] and what is read beside its transpose.
struct Scores {
  GraphBuilder b{"scores"};
  ValueId product, transpose;

  Scores() {
    product = b.MatMul(Input("left", {kHeads, kRows, kInner}),
                       Input("right", {kHeads, kInner, kColumns}));
    transpose = b.Permute(product, {0, 2, 1});
  }

  ValueId Input(const char* name, Shape shape) {
    return b.Input({DType::kFp64, std::move(shape)}, {.name = name});
  }
  ValueId Beside(const char* name) { return Input(name, {kHeads, kColumns, kRows}); }
};

// How the product lies, of a graph that is built once; the whole plan gives the reference's values.
std::vector<int64_t> StridesOf(Scores& scores, const LayoutOptions& options = {}) {
  const auto graph = scores.b.Build();
  REQUIRE(graph.status().ToString() == "OK");
  const std::vector<Values> inputs = RandomInputs(*graph, 5);
  RunSetup setup;
  if (!options.follow) setup.plan.disable.insert("layouts");
  const auto run = RunOnHost(*graph, inputs, setup);
  INFO(run.status());
  REQUIRE(run.ok());
  const auto expected = Evaluate(*graph, inputs, {.mode = ReferenceOptions::kFloat64});
  REQUIRE(expected.ok());
  for (size_t o = 0; o < graph->outputs().size(); ++o) {
    const Values& want = (*expected)[graph->value_index(*graph->outputs()[o].value)];
    REQUIRE(run->outputs[o].size() == want.size());
    for (size_t i = 0; i < want.size(); ++i) {
      REQUIRE(std::fabs(run->outputs[o][i] - want[i]) <= 1e-10 * (1 + std::fabs(want[i])));
    }
  }
  return AssignLayouts(*graph, options).of[graph->value_index(scores.product)].strides;
}

TEST_CASE("a product whose transpose is read beside a tensor lies as the tensor does") {
  for (const bool follow : {true, false}) {
    Scores s;
    s.b.Output(s.b.Sum(s.b.Add(Op::mul, {s.transpose, s.Beside("saved")}), {1}), "sums");
    CHECK(StridesOf(s, {.follow = follow}) == (follow ? kTransposed : kNatural));
  }
}

TEST_CASE("a product is found behind views and ops of one tensor, the tensor behind ops of it") {
  Scores s;
  const Shape split = {kHeads, kColumns, 4, kRows / 4};
  const ValueId seen = s.b.Reshape(s.b.Permute(s.b.Add(Op::exp, {s.product}), {0, 2, 1}), split);
  const ValueId saved = s.b.Add(Op::neg, {s.b.Reshape(s.Beside("saved"), split)});
  const ValueId gradient = s.b.Add(Op::mul, {s.b.Add(Op::neg, {seen}), saved});
  s.b.Output(s.b.Sum(gradient, {1}), "sums");
  CHECK(StridesOf(s) == kTransposed);
}

TEST_CASE("a product lies as most of what is read beside it, row-major in doubt") {
  for (const int across : {1, 2}) {
    Scores s;
    ValueId sum = s.b.Add(Op::mul, {s.product, s.Input("along", kProduct)});
    sum = s.b.Sum(sum, {1, 2});
    for (const char* name : {"across", "across_too"}) {
      if (name == std::string_view("across_too") && across == 1) continue;
      const ValueId product = s.b.Add(Op::mul, {s.transpose, s.Beside(name)});
      sum = s.b.Add(Op::add, {sum, s.b.Sum(product, {1, 2})});
    }
    s.b.Output(sum, "sums");
    CHECK(StridesOf(s) == (across == 1 ? kNatural : kTransposed));
  }
}

TEST_CASE("other products and tensors that repeat elements ask for no order") {
  Scores s;
  const ValueId other =
      s.b.MatMul(s.Input("a", {kHeads, kColumns, kInner}), s.Input("b", {kHeads, kInner, kRows}));
  const ValueId row = s.b.Expand(s.Input("row", {kHeads, kColumns, 1}), {kHeads, kColumns, kRows});
  const ValueId gradient = s.b.Add(Op::mul, {s.b.Add(Op::mul, {s.transpose, other}), row});
  s.b.Output(s.b.Sum(gradient, {1}), "sums");
  CHECK(StridesOf(s) == kNatural);
}

TEST_CASE("what a product becomes counts as much as what is read beside it") {
  for (const bool as_seen : {true, false}) {
    Scores s;
    const ValueId gradient = s.b.Add(Op::mul, {s.transpose, s.Beside("saved")});
    s.b.Output(as_seen ? gradient : s.b.Permute(gradient, {0, 2, 1}), "gradient");
    CHECK(StridesOf(s) == (as_seen ? kTransposed : kNatural));
  }
}

TEST_CASE("a product's part of a join goes where the join goes") {
  for (const bool as_seen : {true, false}) {
    Scores s;
    const ValueId gradient = s.b.Add(Op::mul, {s.transpose, s.Beside("saved")});
    const ValueId join = s.b.Add(Op::cat, {gradient, s.Beside("other")}, {{"axis", int64_t{0}}});
    const ValueId parts = s.b.Reshape(join, {2, kHeads, kColumns, kRows});
    s.b.Output(as_seen ? parts : s.b.Permute(parts, {1, 3, 0, 2}), "gradients");
    CHECK(StridesOf(s) == (as_seen ? kTransposed : kNatural));
  }
}

TEST_CASE("a product that the host reads lies as the host asks") {
  Scores s;
  s.b.Output(s.product, "product");
  s.b.Output(s.b.Sum(s.b.Add(Op::mul, {s.transpose, s.Beside("saved")}), {1}), "sums");
  CHECK(StridesOf(s) == kNatural);
}

TEST_CASE("a product that another product reads lies as that one can read it") {
  Scores s;
  s.b.Output(s.b.Sum(s.b.Add(Op::mul, {s.transpose, s.Beside("saved")}), {1}), "sums");
  s.b.Output(s.b.MatMul(s.product, s.Input("third", {kHeads, kColumns, kInner})), "next");
  CHECK(StridesOf(s) == kNatural);
}

}  // namespace
}  // namespace retrograd
