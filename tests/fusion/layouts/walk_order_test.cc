// Elementwise values lie as most of what is walked with them, where the whole plan wins by it, and
// plans of it give the reference's values.
#include <cmath>

#include "fusion/device/device_spec.h"
#include "fusion/kernel/build/build.h"
#include "fusion/lower/layouts/layouts.h"
#include "fusion/lower/lower.h"
#include "fusion/planner/plan_pattern.h"
#include "fusion/planner/planner.h"
#include "tests/catch.h"
#include "tests/support/graphs/random_graph.h"
#include "tests/support/plans/run_plan.h"

namespace retrograd {
namespace {

// What a residual network saves behind a convolution: a tensor [images, tokens, channels] whose
// tokens lie side by side.
struct Tokens {
  GraphBuilder b{"tokens"};
  Shape shape;
  DType dtype;
  std::vector<int64_t> by_channels, by_tokens;

  explicit Tokens(Shape of, DType type = DType::kFp64) : shape(std::move(of)), dtype(type) {
    const int64_t tokens = shape[1], channels = shape[2];
    by_channels = {tokens * channels, channels, 1};
    by_tokens = {tokens * channels, 1, tokens};
  }

  ValueId Input(std::string name, const std::vector<int64_t>& strides) {
    return b.Input({dtype, shape}, {.name = std::move(name), .strides = strides});
  }

  // The gradient of normalised rows (x of each of `layers` has its tokens side by side), each of
  // which is read beside `beside` tensors whose channels lie side by side. The first layer's values
  // are listed in `made`.
  BackwardGraph Backward(int layers, int beside, std::vector<ValueId>* made = nullptr) {
    ValueId gradient = Input("dy", by_channels);
    for (int layer = 0; layer < layers; ++layer) {
      const std::string n = std::to_string(layer);
      const ValueId x = Input("x" + n, by_tokens);
      const ValueId normal = b.Add(Op::sub, {x, b.Sum(x, {2}, true)});
      ValueId product = gradient;
      for (int i = 0; i < beside; ++i) {
        const std::string name = "saved" + n + "_" + std::to_string(i);
        product = b.Add(Op::mul, {product, Input(name, by_channels)});
      }
      product = b.Add(Op::mul, {product, normal});
      b.Output(b.Sum(product, {0, 1}), "dw" + n);
      const ValueId down = b.Sum(product, {2}, true);
      if (made != nullptr && layer == 0) *made = {normal, product};
      gradient = b.Add(Op::add, {gradient, b.Add(Op::mul, {normal, down})});
    }
    b.Output(gradient, "dx");
    auto graph = b.Build();
    INFO(graph.status());
    REQUIRE(graph.ok());
    return *std::move(graph);
  }
};

std::vector<std::vector<int64_t>> StridesOf(const BackwardGraph& graph,
                                            const std::vector<ValueId>& values, bool walk_order) {
  const std::vector<Layout> layouts = AssignLayouts(graph, {.walk_order = walk_order}).of;
  std::vector<std::vector<int64_t>> strides;
  for (const ValueId v : values) strides.push_back(layouts[graph.value_index(v)].strides);
  return strides;
}

TEST_CASE("a value lies as most of what is walked with it, and as its operand in doubt") {
  for (const int beside : {0, 1, 2}) {
    INFO(beside);
    Tokens t({2, 6, 4});
    std::vector<ValueId> made;
    const BackwardGraph graph = t.Backward(1, beside, &made);
    // Of the walk: x lies by tokens; dy, what is saved, and dx do not.
    CHECK(StridesOf(graph, made, true) ==
          std::vector<std::vector<int64_t>>{t.by_channels, t.by_channels});
    CHECK(StridesOf(graph, made, false)[0] == t.by_tokens);
    CHECK(AssignLayouts(graph).walks_decide);
  }
  // As many lie in either order.
  Tokens t({2, 6, 4});
  const ValueId x = t.Input("x", t.by_tokens);
  const ValueId twice = t.b.Add(Op::mul, {x, x});
  const ValueId product = t.b.Add(Op::mul, {twice, t.Input("saved", t.by_channels)});
  t.b.Output(t.b.Sum(product, {1}), "sums");
  const auto graph = t.b.Build();
  REQUIRE(graph.ok());
  CHECK(StridesOf(*graph, {twice, product}, true) ==
        std::vector<std::vector<int64_t>>{t.by_tokens, t.by_tokens});
  CHECK_FALSE(AssignLayouts(*graph).walks_decide);
}

// The gradient of scores that are normalised along both axes, as contrastive losses have it: each
// half is less a mask of the diagonal, which no tensor of its size is read for.
TEST_CASE("what no tensor is read for has no say in the order of others, and joins no walks") {
  for (const bool walk_order : {false, true}) {
    GraphBuilder b("scores");
    const Shape shape = {6, 6};
    const ValueId scores = b.Input({DType::kFp32, shape}, {.name = "scores"});
    const ValueId rows = b.Add(Op::iota, {},
                               {{"dtype", "f32"},
                                {"shape", shape},
                                {"axis", int64_t{0}},
                                {"start", int64_t{0}},
                                {"step", int64_t{1}}});
    const ValueId columns = b.Add(Op::iota, {},
                                  {{"dtype", "f32"},
                                   {"shape", shape},
                                   {"axis", int64_t{1}},
                                   {"start", int64_t{0}},
                                   {"step", int64_t{1}}});
    const ValueId mask = b.Cast(b.Add(Op::eq, {rows, columns}), DType::kFp32);
    const ValueId across = b.Add(Op::sub, {mask, b.Add(Op::exp, {b.Permute(scores, {1, 0})})});
    // More tensors lie along the rows, which has no say in the other half.
    const ValueId weight = b.Input({DType::kFp32, shape}, {.name = "weight"});
    const ValueId along =
        b.Add(Op::mul, {b.Add(Op::sub, {mask, b.Add(Op::exp, {scores})}), weight});
    const ValueId both = b.Add(Op::add, {b.Permute(across, {1, 0}), along});
    b.Output(b.Sum(both, {1}), "sums");
    const auto graph = b.Build();
    REQUIRE(graph.status().ToString() == "OK");
    CHECK(StridesOf(*graph, {across, along, both}, walk_order) ==
          std::vector<std::vector<int64_t>>{{1, 6}, {6, 1}, {6, 1}});
  }
}

TEST_CASE("a walk ends at views but reshapes, and results of calls have no say in it") {
  Tokens t({2, 6, 4});
  const ValueId x = t.Input("x", t.by_tokens);
  const ValueId twice = t.b.Add(Op::mul, {x, x});
  // Two products would lie by channels.
  ValueId product = twice;
  for (const char* name : {"left", "right"}) {
    const ValueId left = t.b.Input({t.dtype, {2, 6, 3}}, {.name = name});
    const ValueId right = t.b.Input({t.dtype, {2, 3, 4}}, {.name = std::string("of_") + name});
    product = t.b.Add(Op::mul, {product, t.b.MatMul(left, right)});
  }
  t.b.Output(t.b.Sum(product, {1}), "sums");
  // So would what is read beside a view of the value.
  const ValueId seen = t.b.Permute(twice, {1, 0, 2});
  ValueId other = t.b.Input({t.dtype, {6, 2, 4}}, {.name = "other"});
  other = t.b.Add(Op::mul, {other, t.b.Input({t.dtype, {6, 2, 4}}, {.name = "another"})});
  t.b.Output(t.b.Sum(t.b.Add(Op::mul, {seen, other}), {0}), "other_sums");
  const auto graph = t.b.Build();
  REQUIRE(graph.ok());
  CHECK(StridesOf(*graph, {twice, product}, true) ==
        std::vector<std::vector<int64_t>>{t.by_tokens, t.by_tokens});
}

// A value of shape [2, 6, 12], and others that follow it in other shapes: channels in groups,
// tokens in two dims, and images and tokens in one.
std::vector<ValueId> ThroughReshapes(GraphBuilder& b, ValueId first) {
  std::vector<ValueId> made = {first};
  for (const Shape& shape : std::vector<Shape>{{2, 6, 3, 4}, {2, 2, 3, 12}, {12, 12}}) {
    made.push_back(b.Add(Op::exp, {b.Reshape(made.back(), shape)}));
  }
  return made;
}

TEST_CASE("a walk goes through reshapes, whose dims lie along the same neighbours") {
  Tokens t({2, 6, 12}, DType::kFp32);
  const ValueId x = t.Input("x", t.by_tokens);
  const ValueId twice = t.b.Add(Op::mul, {x, x});
  const std::vector<ValueId> made = ThroughReshapes(t.b, twice);
  for (const char* name : {"left", "right"}) {
    const ValueId beside = t.b.Input({t.dtype, {12, 12}}, {.name = name});
    const ValueId product = t.b.Add(Op::mul, {made.back(), beside});
    t.b.Output(t.b.Sum(product, {1}), std::string("sums_of_") + name);
  }
  const auto by_channels = t.b.Build();
  REQUIRE(by_channels.ok());
  CHECK(StridesOf(*by_channels, made, true) ==
        std::vector<std::vector<int64_t>>{{72, 12, 1}, {72, 12, 4, 1}, {72, 36, 12, 1}, {12, 1}});
  CHECK(StridesOf(*by_channels, made, false)[0] == t.by_tokens);

  // Tokens side by side in most: a dim of images and tokens has no such neighbours of its own.
  Tokens u({2, 6, 12}, DType::kFp32);
  const ValueId y = u.Input("y", u.by_channels);
  const ValueId square = u.b.Add(Op::mul, {y, y});
  const std::vector<ValueId> like = ThroughReshapes(u.b, square);
  const ValueId again = u.b.Reshape(like.back(), {2, 6, 12});
  for (const char* name : {"left", "right"}) {
    const ValueId product = u.b.Add(Op::mul, {again, u.Input(name, u.by_tokens)});
    u.b.Output(u.b.Sum(product, {1}), std::string("sums_of_") + name);
  }
  const auto by_tokens = u.b.Build();
  REQUIRE(by_tokens.ok());
  CHECK(StridesOf(*by_tokens, like, true) ==
        std::vector<std::vector<int64_t>>{{72, 1, 6}, {72, 1, 24, 6}, {72, 3, 1, 6}, {12, 1}});
}

TEST_CASE("tensors without elements have no order") {
  GraphBuilder b("empty");
  const ValueId x = b.Input({DType::kFp32, {4, 0, 3}}, {.name = "x"});
  const ValueId twice = b.Add(Op::mul, {x, x});
  const ValueId y = b.Input({DType::kFp32, {0, 4}}, {.name = "y", .strides = {1, 1}});
  const ValueId seen = b.Add(Op::mul, {b.Reshape(twice, {0, 4}), y});
  b.Output(b.Sum(seen, {0}), "sums");
  const auto graph = b.Build();
  REQUIRE(graph.ok());
  CHECK_FALSE(AssignLayouts(*graph).walks_decide);
}

DeviceSpec H200() {
  auto spec = LoadDeviceSpec("h200");
  INFO(spec.status());
  REQUIRE(spec.ok());
  return *std::move(spec);
}

int64_t PriceOf(const BackwardGraph& graph, const DeviceSpec& device,
                const std::vector<std::string>& disable = {}) {
  PlanOptions options;
  options.disable.insert(disable.begin(), disable.end());
  const auto planned = PlanFusion(graph, device, options);
  INFO(planned.status());
  REQUIRE(planned.ok());
  return planned->plan.summary.price_ps;
}

// Their plan takes less by the order of walks: each of few gradients is read beside a saved tensor.
BackwardGraph Winning() {
  Tokens t({32, 256, 768}, DType::kFp32);
  return t.Backward(4, 1);
}

// More: nothing is read beside what many layers read of one gradient.
BackwardGraph Losing() {
  Tokens t({2, 2048, 1024}, DType::kBf16);
  return t.Backward(4, 0);
}

TEST_CASE("whole plans decide whether values lie as what is walked with them") {
  const DeviceSpec device = H200();
  const BackwardGraph winning = Winning(), losing = Losing();
  REQUIRE(AssignLayouts(winning).walks_decide);
  REQUIRE(AssignLayouts(losing).walks_decide);
  const std::vector<std::string> off = {"walk_order"};
  CHECK(PriceOf(winning, device) < PriceOf(winning, device, off) * 95 / 100);
  CHECK(PriceOf(losing, device) == PriceOf(losing, device, off));
  int decided = 0;
  for (uint32_t seed = 1; seed <= 40; ++seed) {
    INFO("seed " << seed);
    const BackwardGraph graph = RandomGraph(seed);
    decided += AssignLayouts(graph).walks_decide ? 1 : 0;
    CHECK(PriceOf(graph, device) <= PriceOf(graph, device, off));
  }
  CHECK(decided > 0);
}

std::vector<Layout> LayoutsOf(const BackwardGraph& graph, const PlanOptions& options = {}) {
  const auto planned = PlanFusion(graph, H200(), options);
  INFO(planned.status());
  REQUIRE(planned.ok());
  return planned->plan.layouts;
}

TEST_CASE("plans by a pattern, under a ceiling and for pairs lie as the whole plan decided") {
  for (const bool wins : {true, false}) {
    INFO(wins);
    const BackwardGraph graph = wins ? Winning() : Losing();
    const std::vector<Layout> expected = LayoutsOf(graph);
    REQUIRE((expected == LayoutsOf(graph, {.disable = {"walk_order"}})) == !wins);
    const auto pattern = PatternOf(graph, H200(), {});
    REQUIRE(pattern.ok());
    CHECK((*pattern)->without ==
          (wins ? std::vector<std::string>{} : std::vector<std::string>{"walk_order"}));
    CHECK(LayoutsOf(graph, {.pattern = *pattern}) == expected);
    CHECK(LayoutsOf(graph, {.max_memory_bytes = int64_t{1} << 40}) == expected);
    const auto lowered = LowerAndMerge(graph, H200());
    REQUIRE(lowered.ok());
    CHECK(lowered->without == (*pattern)->without);
    uint32_t last = static_cast<uint32_t>(lowered->graph.num_nodes()) - 1;
    while (!IsElementwise(lowered->graph, NodeId{last})) --last;
    const ValueId operand = lowered->graph.operands(NodeId{last})[0];
    const PairChoice apart{.a = operand.node, .b = NodeId{last}, .together = false};
    CHECK(LayoutsOf(graph, {.pairs = {apart}}) == expected);
  }
}

TEST_CASE("a tensor counts in each walk that reads it, once") {
  Tokens t({2, 6, 4});
  const ValueId x = t.Input("x", t.by_tokens);
  const ValueId square = t.b.Add(Op::mul, {x, x});
  t.b.Output(t.b.Sum(square, {1}), "squares");
  // One lies either way in this walk.
  const ValueId product = t.b.Add(Op::mul, {x, t.Input("saved", t.by_channels)});
  t.b.Output(t.b.Sum(product, {1}), "sums");
  const auto graph = t.b.Build();
  REQUIRE(graph.ok());
  CHECK(StridesOf(*graph, {square, product}, true) ==
        std::vector<std::vector<int64_t>>{t.by_tokens, t.by_tokens});
}

// The gradient of a norm over groups of channels, whose input lies by channels and whose gradient
// does not.
BackwardGraph OfGroupNorm(int64_t images, int64_t channels, int64_t places, DType dtype) {
  GraphBuilder b("group_norm");
  const int64_t groups = 4;
  const std::vector<int64_t> by_channels = {channels * places, 1, channels};
  const Shape shape = {images, channels, places};
  const Shape apart = {images, groups, channels / groups, places};
  const DType wide = dtype == DType::kFp32 ? DType::kFp64 : DType::kFp32;
  const ValueId x =
      b.Cast(b.Input({dtype, shape}, {.name = "x", .strides = by_channels, .alignment = 16}), wide);
  const ValueId dy = b.Cast(b.Input({dtype, shape}, {.name = "dy", .alignment = 16}), wide);
  const ValueId scale = b.Input({wide, {1, groups, channels / groups, 1}}, {.name = "w"});
  const ValueId down =
      b.Reshape(b.Sum(b.Add(Op::mul, {dy, x}), {2}), {images, groups, channels / groups, 1});
  const ValueId of_groups = b.Sum(b.Add(Op::mul, {down, scale}), {2}, true);
  const ValueId dx = b.Add(Op::add, {b.Add(Op::mul, {b.Reshape(dy, apart), scale}),
                                     b.Add(Op::mul, {b.Reshape(x, apart), of_groups})});
  const ValueId result = b.Reshape(dx, shape);
  b.Output(wide == DType::kFp64 ? result : b.Cast(result, dtype), "dx", by_channels);
  b.Output(b.Sum(down, {0}), "dw");
  auto graph = b.Build();
  INFO(graph.status());
  REQUIRE(graph.ok());
  return *std::move(graph);
}

TEST_CASE("a norm over groups of channels turns one tensor around, and stores it narrow") {
  const DeviceSpec device = H200();
  const BackwardGraph graph = OfGroupNorm(8, 320, 4096, DType::kBf16);
  CHECK(PriceOf(graph, device) < PriceOf(graph, device, {"walk_order"}) * 7 / 10);
  const auto planned = PlanFusion(graph, device, {});
  REQUIRE(planned.ok());
  std::vector<std::string> copied;
  for (const Group& group : planned->plan.groups) {
    for (const ValueId v : group.outputs) {
      const TensorType& type = planned->graph.type(v);
      if (type.elements() != 8 * 320 * 4096) continue;
      CHECK(type.dtype == DType::kBf16);
      copied.push_back(planned->plan.layouts[planned->graph.value_index(v)].strides[1] == 1
                           ? "by channels"
                           : "by places");
    }
  }
  CHECK(copied == std::vector<std::string>{"by channels", "by channels"});  // dy, and dx
}

TEST_CASE("plans with the order of walks give the reference's values") {
  for (const int beside : {0, 2, -1}) {
    Tokens t({3, 20, 12});
    const BackwardGraph graph =
        beside < 0 ? OfGroupNorm(2, 12, 35, DType::kFp32) : t.Backward(3, beside);
    const auto lowered = Lower(graph);
    REQUIRE(lowered.ok());
    int copies = 0;
    for (uint32_t i = 0; i < lowered->num_nodes(); ++i)
      copies += lowered->op(NodeId{i}) == Op::copy;
    CHECK(copies == (beside < 0 ? 1 : 0));
    const std::vector<Values> inputs = RandomInputs(graph, 7);
    const auto expected = Evaluate(graph, inputs, {.mode = ReferenceOptions::kFloat64});
    REQUIRE(expected.ok());
    for (const bool walk_order : {true, false}) {
      RunSetup setup;
      if (!walk_order) setup.plan.disable.insert("walk_order");
      setup.plan.merging = PlanOptions::Merging::kAlways;  // no trial takes the order away
      const auto run = RunOnHost(graph, inputs, setup);
      INFO(run.status());
      REQUIRE(run.ok());
      for (size_t o = 0; o < graph.outputs().size(); ++o) {
        const Values& want = (*expected)[graph.value_index(*graph.outputs()[o].value)];
        REQUIRE(run->outputs[o].size() == want.size());
        for (size_t i = 0; i < want.size(); ++i) {
          REQUIRE(std::fabs(run->outputs[o][i] - want[i]) <= 1e-10 * (1 + std::fabs(want[i])));
        }
      }
    }
  }
}

}  // namespace
}  // namespace retrograd
