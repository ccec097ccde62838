// How the operands and results of convolutions lie in a plan, what is copied for it, which casts
// the calls do themselves, and that the plan then gives the reference's values.
#include <cmath>

#include "fusion/lower/layouts/layouts.h"
#include "fusion/ops/convolution/packed_layout.h"
#include "graph/text/text.h"
#include "tests/catch.h"
#include "tests/support/graphs/random_graph.h"
#include "tests/support/plans/run_plan.h"

namespace retrograd {
namespace {

const Shape kX = {2, 4, 7, 5}, kW = {6, 4, 3, 3}, kY = {2, 6, 4, 5};

Attrs Window() {
  return {{"stride", Shape{2, 1}},
          {"padding", Shape{1, 1}},
          {"dilation", Shape{1, 1}},
          {"groups", int64_t{1}}};
}

// [N,C,H,W] with its channels last in memory.
std::vector<int64_t> ChannelsLast(const Shape& s) {
  return {s[1] * s[2] * s[3], 1, s[1] * s[3], s[1]};
}

ValueId Input(GraphBuilder& b, std::string name, const Shape& shape,
              std::vector<int64_t> strides = {}) {
  return b.Input({DType::kFp64, shape}, {.name = std::move(name), .strides = std::move(strides)});
}

ValueId InputGradient(GraphBuilder& b, ValueId dy, ValueId w) {
  Attrs attrs = Window();
  attrs.Set("input_shape", kX);
  return b.Add(Op::convolution_input_gradient, {dy, w}, attrs);
}

ValueId WeightGradient(GraphBuilder& b, ValueId dy, ValueId x) {
  Attrs attrs = Window();
  attrs.Set("weight_shape", kW);
  return b.Add(Op::convolution_weight_gradient, {dy, x}, attrs);
}

// Plans and runs the graph; its outputs are the reference's.
Planned CheckedPlan(GraphBuilder& b) {
  auto graph = b.Build();
  REQUIRE(graph.status().ToString() == "OK");
  const std::vector<Values> inputs = RandomInputs(*graph, 3);
  auto run = RunOnHost(*graph, inputs, {});
  INFO(run.status());
  REQUIRE(run.ok());
  INFO(run->planned.plan.Print(run->planned.graph));
  REQUIRE(run->planned.plan.Verify(run->planned.graph).ToString() == "OK");
  auto expected = Evaluate(*graph, inputs, {.mode = ReferenceOptions::kFloat64});
  REQUIRE(expected.ok());
  for (size_t o = 0; o < graph->outputs().size(); ++o) {
    const Values& want = (*expected)[graph->value_index(*graph->outputs()[o].value)];
    REQUIRE(run->outputs[o].size() == want.size());
    for (size_t i = 0; i < want.size(); ++i) {
      REQUIRE(std::fabs(run->outputs[o][i] - want[i]) <= 1e-10 * (1 + std::fabs(want[i])));
    }
  }
  return std::move(run->planned);
}

std::vector<const Call*> CallsOf(const Planned& planned) {
  std::vector<const Call*> calls;
  for (const Group& group : planned.plan.groups) {
    if (const Call* call = CallOf(group)) calls.push_back(call);
  }
  return calls;
}

int Count(const BackwardGraph& g, Op op) {
  int count = 0;
  for (uint32_t i = 0; i < g.num_nodes(); ++i) count += g.op(NodeId{i}) == op;
  return count;
}

TEST_CASE("a gradient that repeats its elements is copied once for both of its convolutions") {
  GraphBuilder b("expanded");
  const bool by_the_host = GENERATE(false, true);
  const ValueId dy = by_the_host ? Input(b, "dy", kY, {6, 1, 0, 0})
                                 : b.Expand(Input(b, "pooled", {2, 6, 1, 1}), kY);
  b.Output(InputGradient(b, dy, Input(b, "w", kW)), "dx");
  b.Output(WeightGradient(b, dy, Input(b, "x", kX)), "dw");
  const Planned planned = CheckedPlan(b);
  const std::vector<const Call*> calls = CallsOf(planned);
  REQUIRE(calls.size() == 2);
  CHECK(Count(planned.graph, Op::copy) == 1);
  CHECK(calls[0]->operands[0].value == calls[1]->operands[0].value);
  for (const Call* call : calls) {
    for (int64_t stride : call->operands[0].strides) CHECK(stride > 0);
  }
}

TEST_CASE("an expanded weight and an expanded input are copied, too") {
  GraphBuilder b("expanded");
  const ValueId dy = Input(b, "dy", kY);
  b.Output(InputGradient(b, dy, b.Expand(Input(b, "w", {6, 1, 3, 3}), kW)), "dx");
  b.Output(WeightGradient(b, dy, b.Expand(Input(b, "x", {1, 4, 7, 5}), kX)), "dw");
  CHECK(Count(CheckedPlan(b).graph, Op::copy) == 2);
}

// dx = dgrad(where(y > 0, dy, 0), w) + residual, dw = wgrad of the same: a layer between an
// activation and a join.
ValueId Layer(GraphBuilder& b, bool last, bool gradient_last) {
  const auto like = [&](const Shape& shape, bool channels_last) {
    return channels_last ? ChannelsLast(shape) : std::vector<int64_t>{};
  };
  const ValueId dy = Input(b, "dy", kY, like(kY, gradient_last));
  const ValueId y = Input(b, "y", kY, like(kY, gradient_last));
  const ValueId zero = b.Full(0, DType::kFp64);
  const ValueId masked = b.Add(Op::where, {b.Add(Op::gt, {y, zero}), dy, zero});
  const ValueId dx = InputGradient(b, masked, Input(b, "w", kW, like(kW, last)));
  const ValueId residual = Input(b, "residual", kX, like(kX, last));
  b.Output(b.Add(Op::add, {dx, residual}), "dx", like(kX, last));
  b.Output(WeightGradient(b, masked, Input(b, "x", kX, like(kX, last))), "dw", like(kW, last));
  b.Output(b.Sum(masked, {0, 2, 3}), "db");
  return masked;
}

bool HasChannelsLast(const CallTensor& t) { return t.strides[1] == 1; }

TEST_CASE("channels-last stays so through calls and their pointwise neighbours, without a copy") {
  GraphBuilder b("layer");
  Layer(b, true, true);
  const Planned planned = CheckedPlan(b);
  CHECK(Count(planned.graph, Op::copy) == 0);
  const std::vector<const Call*> calls = CallsOf(planned);
  REQUIRE(calls.size() == 2);
  for (const Call* call : calls) {
    for (const CallTensor& t : call->operands) CHECK(HasChannelsLast(t));
    CHECK(HasChannelsLast(call->results[0]));
  }
}

TEST_CASE("row-major stays so") {
  GraphBuilder b("layer");
  Layer(b, false, false);
  const Planned planned = CheckedPlan(b);
  CHECK(Count(planned.graph, Op::copy) == 0);
  for (const Call* call : CallsOf(planned)) {
    for (const CallTensor& t : call->operands) CHECK(t.strides[3] == 1);
    CHECK(call->results[0].strides[3] == 1);
  }
}

TEST_CASE("what a kernel makes for a convolution takes the order of channels-last operands") {
  GraphBuilder b("layer");
  Layer(b, true, false);
  const Planned planned = CheckedPlan(b);
  CHECK(Count(planned.graph, Op::copy) == 0);
  for (const Call* call : CallsOf(planned)) {
    for (const CallTensor& t : call->operands) CHECK(HasChannelsLast(t));
  }
}

TEST_CASE("a channels-last gradient stays so beside row-major operands") {
  GraphBuilder b("layer");
  Layer(b, false, true);
  const Planned planned = CheckedPlan(b);
  CHECK(Count(planned.graph, Op::copy) == 0);
  for (const Call* call : CallsOf(planned)) {
    CHECK(HasChannelsLast(call->operands[0]));
    CHECK_FALSE(HasChannelsLast(call->operands[1]));
  }
}

TEST_CASE("no convolution is given a tensor with gaps") {
  GraphBuilder b("strided");
  // Rows of 5 elements, 8 apart; and pixels of 6 channels, 8 apart.
  const bool rows = GENERATE(false, true);
  const std::vector<int64_t> strides =
      rows ? std::vector<int64_t>{192, 32, 8, 1} : std::vector<int64_t>{160, 1, 40, 8};
  const ValueId dy = Input(b, "dy", kY, strides);
  b.Output(InputGradient(b, dy, Input(b, "w", kW)), "dx");
  b.Output(WeightGradient(b, dy, Input(b, "x", kX)), "dw");
  const Planned planned = CheckedPlan(b);
  CHECK(Count(planned.graph, Op::copy) == 1);
  for (const Call* call : CallsOf(planned)) {
    for (const CallTensor& t : call->operands) CHECK(IsPacked(t.shape, t.strides));
  }
}

TEST_CASE("what a convolution reads has no gaps after its rows, unlike what a matmul reads") {
  // A patch of 2x2 pixels, as of ConvNeXt: dy is made by a kernel and has rows of 5 elements, which
  // a matmul would have begin aligned.
  GraphBuilder b("patches");
  const Shape x = {2, 4, 6, 10}, w = {6, 4, 2, 2}, y = {2, 6, 3, 5};
  const ValueId dy = b.Add(Op::mul, {Input(b, "dy", y), Input(b, "mask", y)});
  Attrs attrs = Window();
  attrs.Set("stride", Shape{2, 2});
  attrs.Set("padding", Shape{0, 0});
  attrs.Set("weight_shape", w);
  b.Output(b.Add(Op::convolution_weight_gradient, {dy, Input(b, "x", x, ChannelsLast(x))}, attrs),
           "dw");
  const Planned planned = CheckedPlan(b);
  const std::vector<const Call*> calls = CallsOf(planned);
  REQUIRE(calls.size() == 1);
  CHECK(calls[0]->operands[0].strides == ChannelsLast(y));
  CHECK(calls[0]->operands[1].strides == ChannelsLast(x));
}

TEST_CASE("what is made of slices lies in their order, without the gaps") {
  const Shape whole = {2, 6, 7, 5}, part = {2, 4, 7, 5};
  GraphBuilder b("g");
  const auto sum = [&](ValueId x, ValueId y) {
    return b.Add(Op::accumulate, {x, y}, {{"shape", part}, {"starts", Shape(8, 0)}});
  };
  const auto slice = [&](ValueId x) {
    return b.Add(
        Op::slice, {x},
        {{"axis", int64_t{1}}, {"start", int64_t{1}}, {"step", int64_t{1}}, {"stop", int64_t{5}}});
  };
  const ValueId last = slice(Input(b, "last", whole, ChannelsLast(whole)));
  const ValueId rows = slice(Input(b, "rows", whole));
  const ValueId repeated = b.Expand(Input(b, "one", {1, 4, 1, 1}), part);
  const ValueId of_last = sum(last, rows), of_rows = sum(rows, last);
  const ValueId of_repeated = sum(repeated, repeated), of_one = b.Add(Op::exp, {last});
  for (const ValueId v : {of_last, of_rows, of_repeated, of_one}) {
    b.Output(b.Sum(v, {0, 1, 2, 3}), "sum");
  }
  const auto graph = b.Build();
  REQUIRE(graph.status().ToString() == "OK");
  const std::vector<Layout> layouts = AssignLayouts(*graph).of;
  CHECK(layouts[graph->value_index(of_last)].strides == ChannelsLast(part));
  CHECK(layouts[graph->value_index(of_rows)].strides == DenseStrides(part));
  CHECK(layouts[graph->value_index(of_repeated)].strides == DenseStrides(part));
  CHECK(layouts[graph->value_index(of_one)].strides == ChannelsLast(part));
}

// Half of the channels of two images, as of a network that splits them.
TEST_CASE("copies of slices lie in their order, where a convolution reads them so") {
  const bool permuted = GENERATE(false, true);
  const Shape whole = {2, 12, 4, 5};
  GraphBuilder b("halves");
  const auto half = [&](ValueId image, int64_t channels) {
    return b.Add(Op::slice, {image},
                 {{"axis", int64_t{permuted ? 3 : 1}},
                  {"start", int64_t{2}},
                  {"step", int64_t{1}},
                  {"stop", channels + 2}});
  };
  const auto image = [&](std::string name, Shape shape) {
    if (!permuted) return Input(b, std::move(name), shape, ChannelsLast(shape));
    return Input(b, std::move(name), {shape[0], shape[2], shape[3], shape[1]});
  };
  const auto channels_second = [&](ValueId v) { return permuted ? b.Permute(v, {0, 3, 1, 2}) : v; };
  const ValueId made = b.Add(Op::exp, {image("dy", whole)});
  const ValueId dy = channels_second(half(made, kY[1]));
  const ValueId x = channels_second(half(image("x", {2, 12, 7, 5}), kX[1]));
  b.Output(InputGradient(b, dy, Input(b, "w", kW)), "dx");
  b.Output(WeightGradient(b, dy, x), "dw");
  const Planned planned = CheckedPlan(b);
  CHECK(Count(planned.graph, Op::copy) == 2);
  const std::vector<const Call*> calls = CallsOf(planned);
  REQUIRE(calls.size() == 2);
  for (const Call* call : calls) {
    CHECK(call->operands[0].strides == ChannelsLast(kY));
    if (call->op == Op::convolution_weight_gradient) {
      CHECK(call->operands[1].strides == ChannelsLast(kX));
    }
  }
}

TEST_CASE("a join lies as most elements that it joins") {
  const Shape few = {2, 4, 7, 5}, many = {2, 6, 7, 5}, joined = {2, 14, 7, 5};
  GraphBuilder b("join");
  const auto last = [&](std::string name, const Shape& shape) {
    return Input(b, std::move(name), shape, ChannelsLast(shape));
  };
  const auto join = [&](ValueId one, ValueId other, ValueId third) {
    return b.Add(Op::cat, {one, other, third}, {{"axis", int64_t{1}}});
  };
  const ValueId rows = join(last("a", few), Input(b, "b", many), Input(b, "c", few));
  const ValueId pixels = join(last("d", few), last("e", many), Input(b, "f", few));
  const Shape one = {2, 1, 7, 5};
  const ValueId stack = join(last("g", one), last("h", one), last("i", one));
  const Shape image = {1, 4, 7, 5};
  const ValueId images =
      b.Add(Op::cat, {last("j", image), last("k", image)}, {{"axis", int64_t{0}}});
  for (const ValueId v : {rows, pixels, stack, images}) b.Output(b.Sum(v, {0, 1, 2, 3}), "sum");
  const auto graph = b.Build();
  REQUIRE(graph.status().ToString() == "OK");
  const std::vector<Layout> layouts = AssignLayouts(*graph).of;
  CHECK(layouts[graph->value_index(stack)].strides == DenseStrides({2, 3, 7, 5}));
  CHECK(layouts[graph->value_index(images)].strides == ChannelsLast({2, 4, 7, 5}));
  CHECK(layouts[graph->value_index(rows)].strides == DenseStrides(joined));
  CHECK(layouts[graph->value_index(pixels)].strides == ChannelsLast(joined));
}

// As the gradient of a pool reads the numbers of its largest elements.
TEST_CASE("what is made of repeated pixels lies as they do") {
  const Shape image = {2, 6, 4, 5}, twice = {2, 6, 9, 10};
  GraphBuilder b("repeated");
  const auto repeat = [&](ValueId x) {
    x = b.Expand(b.Reshape(x, {2, 6, 4, 1, 5, 1}), {2, 6, 4, 2, 5, 2});
    return b.Add(Op::pad, {b.Reshape(x, {2, 6, 8, 10})},
                 {{"low", Shape{0, 0, 1, 0}}, {"high", Shape{0, 0, 0, 0}}, {"value", 0.0}});
  };
  const ValueId pixels = b.Add(Op::exp, {repeat(Input(b, "p", image, ChannelsLast(image)))});
  const ValueId rows = b.Add(Op::exp, {repeat(Input(b, "r", image))});
  for (const ValueId v : {pixels, rows}) b.Output(b.Sum(v, {0, 1, 2, 3}), "sum");
  const auto graph = b.Build();
  REQUIRE(graph.status().ToString() == "OK");
  const std::vector<Layout> layouts = AssignLayouts(*graph).of;
  CHECK(layouts[graph->value_index(pixels)].strides == ChannelsLast(twice));
  CHECK(layouts[graph->value_index(rows)].strides == DenseStrides(twice));
}

// dw of bf16, channels last, before anything is done with it.
ValueId NarrowWeightGradient(GraphBuilder& b) {
  const auto input = [&](std::string name, const Shape& shape) {
    return b.Input({DType::kBf16, shape},
                   {.name = std::move(name), .strides = ChannelsLast(shape)});
  };
  return WeightGradient(b, input("dy", kY), input("x", kX));
}

// The results that the plan's calls of convolutions store.
std::vector<CallTensor> StoredByCalls(const BackwardGraph& graph) {
  auto spec = LoadDeviceSpec("h200");
  REQUIRE(spec.ok());
  auto planned = PlanFusion(graph, *spec, {});
  INFO(planned.status());
  REQUIRE(planned.ok());
  REQUIRE(planned->plan.Verify(planned->graph).ToString() == "OK");
  std::vector<CallTensor> results;
  for (const Call* call : CallsOf(*planned)) results.push_back(call->results[0]);
  return results;
}

TEST_CASE("a gradient of a weight that is cast to fp32 and leaves the graph is stored as fp32") {
  GraphBuilder b("cast");
  b.Output(b.Cast(NarrowWeightGradient(b), DType::kFp32), "dw", ChannelsLast(kW));
  auto graph = b.Build();
  REQUIRE(graph.ok());
  const std::vector<CallTensor> stored = StoredByCalls(*graph);
  REQUIRE(stored.size() == 1);
  CHECK(stored[0].dtype == DType::kFp32);
  CHECK(HasChannelsLast(stored[0]));

  // From the sums: bf16 would be off by up to 2e-3 of each element.
  const std::vector<Values> inputs = RandomInputs(*graph, 3);
  auto run = RunOnHost(*graph, inputs, {});
  INFO(run.status());
  REQUIRE(run.ok());
  CHECK(run->planned.plan.groups.size() == 1);
  auto expected = Evaluate(*graph, inputs, {.mode = ReferenceOptions::kFloat64});
  REQUIRE(expected.ok());
  const Values& want = (*expected)[graph->value_index(*graph->outputs()[0].value)];
  for (size_t i = 0; i < want.size(); ++i) {
    CHECK(std::fabs(run->outputs[0][i] - want[i]) <= 1e-5 * (1 + std::fabs(want[i])));
  }
}

TEST_CASE("a gradient of an input that is cast to fp32 and leaves the graph is stored as fp32") {
  GraphBuilder b("cast");
  const ValueId dy = b.Input({DType::kBf16, kY}, {.name = "dy"});
  const ValueId w = b.Input({DType::kBf16, kW}, {.name = "w"});
  b.Output(b.Cast(InputGradient(b, dy, w), DType::kFp32), "dx");
  auto graph = b.Build();
  REQUIRE(graph.ok());
  const std::vector<CallTensor> stored = StoredByCalls(*graph);
  REQUIRE(stored.size() == 1);
  CHECK(stored[0].dtype == DType::kFp32);
}

TEST_CASE("a cast stays apart where its result lies in another order, or somebody reads either") {
  GraphBuilder b("cast");
  const ValueId dw = NarrowWeightGradient(b), wide = b.Cast(dw, DType::kFp32);
  SECTION("the order of the weight is not that of the gradient") { b.Output(wide, "dw"); }
  SECTION("the narrow gradient leaves the graph, too") {
    b.Output(wide, "dw", ChannelsLast(kW));
    b.Output(dw, "narrow", ChannelsLast(kW));
  }
  SECTION("a kernel reads the wide one, and widens for nothing") {
    b.Output(b.Add(Op::mul, {wide, wide}), "squares", ChannelsLast(kW));
  }
  auto graph = b.Build();
  REQUIRE(graph.ok());
  const std::vector<CallTensor> stored = StoredByCalls(*graph);
  REQUIRE(stored.size() == 1);
  CHECK(stored[0].dtype == DType::kBf16);
}

TEST_CASE("a convolution adds its gradient to nothing") {
  GraphBuilder b("tied");
  const ValueId first = b.Cast(NarrowWeightGradient(b), DType::kFp32);
  b.Output(
      b.Add(Op::add, {first, b.Cast(WeightGradient(b, b.Input({DType::kBf16, kY}, {.name = "dy2"}),
                                                   b.Input({DType::kBf16, kX}, {.name = "x2"})),
                                    DType::kFp32)}),
      "dw");
  auto graph = b.Build();
  REQUIRE(graph.ok());
  for (const CallTensor& stored : StoredByCalls(*graph)) CHECK(stored.dtype == DType::kBf16);
}

}  // namespace
}  // namespace retrograd
