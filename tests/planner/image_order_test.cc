// Chains of row-major convolutions: which are given channels-last copies of what they read, how
// calls and kernels then see their tensors, and that the graph means the same.
#include "fusion/lower/image_order.h"

#include "fusion/lower/image_chains.h"
#include "fusion/planner/planner.h"
#include "tests/catch.h"
#include "tests/support/plans/changed_spec.h"
#include "tests/support/plans/same_outputs.h"

namespace retrograd {
namespace {

DeviceSpec Device(const std::vector<DeviceNumber>& numbers = {}) {
  return ChangedSpec("h100", numbers);
}

struct Layers {
  int spatial = 3;
  int64_t channels = 64, extent = 8, groups = 1;
  DType dtype = DType::kBf16;
  bool last = false;     // the host's tensors have their channels last
  bool crosses = false;  // each gradient goes through a matrix, and leaves the graph
};

Shape Image(const Layers& l) {
  Shape shape = {2, l.channels};
  shape.resize(2 + static_cast<size_t>(l.spatial), l.extent);
  return shape;
}

Attrs Window(const Layers& l) {
  const auto dims = static_cast<size_t>(l.spatial);
  return {{"stride", Shape(dims, 1)},
          {"padding", Shape(dims, 1)},
          {"dilation", Shape(dims, 1)},
          {"groups", l.groups}};
}

std::vector<int64_t> ChannelsLast(const Shape& shape) {
  std::vector<int64_t> strides(shape.size());
  int64_t span = 1;
  strides[1] = span, span *= shape[1];
  for (size_t d = shape.size(); d-- > 2; span *= shape[d]) strides[d] = span;
  strides[0] = span;
  return strides;
}

// Two layers of y = relu(x * w), backward: each masks its gradient by its saved result, which is
// the next one's input.
BackwardGraph TwoLayers(const Layers& l) {
  GraphBuilder b("layers");
  const Shape image = Image(l);
  Shape filters = {l.channels, l.channels / l.groups};
  filters.resize(2 + static_cast<size_t>(l.spatial), 3);
  const auto input = [&](std::string name, const Shape& shape) {
    return b.Input({l.dtype, shape},
                   {.name = std::move(name),
                    .strides = l.last ? ChannelsLast(shape) : std::vector<int64_t>{}});
  };
  const ValueId zero = b.Full(0, l.dtype);
  const ValueId first = input("y1", image);
  const auto layer = [&](ValueId dy, ValueId y, ValueId x, std::string name) {
    if (l.crosses) {
      dy = b.Reshape(b.Add(Op::exp, {b.Reshape(dy, {2, Elements(image) / 2})}), image);
    }
    const ValueId masked = b.Add(Op::where, {b.Add(Op::gt, {y, zero}), dy, zero});
    Attrs of_input = Window(l), of_weight = Window(l);
    of_input.Set("input_shape", image);
    of_weight.Set("weight_shape", filters);
    b.Output(b.Add(Op::convolution_weight_gradient, {masked, x}, of_weight), name);
    const ValueId w = input("w" + name, filters);
    const ValueId dx = b.Add(Op::convolution_input_gradient, {masked, w}, of_input);
    if (l.crosses) b.Output(dx, "dx" + name);
    return dx;
  };
  const ValueId dx = layer(input("dy", image), input("y2", image), first, "2");
  b.Output(b.Sum(layer(dx, first, input("x", image), "1"), {0, 2}), "db");
  auto graph = b.Build();
  INFO(graph.status());
  REQUIRE(graph.ok());
  return *std::move(graph);
}

BackwardGraph Ordered(const BackwardGraph& graph, const DeviceSpec& device = Device()) {
  auto ordered = OrderImages(graph, device);
  INFO(ordered.status());
  REQUIRE(ordered.ok());
  return *std::move(ordered);
}

int Copies(const BackwardGraph& g) {
  int count = 0;
  for (uint32_t i = 0; i < g.num_nodes(); ++i) count += g.op(NodeId{i}) == Op::copy;
  return count;
}

TEST_CASE("row-major tensors of 16-bit convolutions are copied once each, and mean the same") {
  for (const int spatial : {1, 2, 3}) {
    const BackwardGraph graph = TwoLayers({.spatial = spatial});
    const BackwardGraph ordered = Ordered(graph);
    INFO(spatial << " spatial dims");
    CHECK(Copies(ordered) == 6);  // dy, both results, the input and two weights
    CHECK(LargestDifference(graph, ordered) <= 1e-2);
  }
}

TEST_CASE("all that calls then read has its channels last, without another copy") {
  const BackwardGraph graph = TwoLayers({});
  auto planned = PlanFusion(graph, Device(), {});
  INFO(planned.status());
  REQUIRE(planned.ok());
  INFO(planned->plan.Print(planned->graph));
  REQUIRE(planned->plan.Verify(planned->graph).ToString() == "OK");
  CHECK(Copies(planned->graph) == 6);
  int calls = 0;
  for (const Group& group : planned->plan.groups) {
    const Call* const call = CallOf(group);
    if (call == nullptr) continue;
    ++calls;
    for (const CallTensor& t : call->operands) CHECK(t.strides[1] == 1);
    // What leaves the graph lies as the host wants it.
    if (call->op == Op::convolution_input_gradient) CHECK(call->results[0].strides[1] == 1);
  }
  CHECK(calls == 4);
  PlanOptions without;
  without.disable = {"image_order"};
  auto row_major = PlanFusion(graph, Device(), without);
  REQUIRE(row_major.ok());
  CHECK(Copies(row_major->graph) == 0);
  CHECK(planned->plan.summary.price_ps < row_major->plan.summary.price_ps);
}

TEST_CASE("a ceiling that copies do not fit under is planned without them") {
  const BackwardGraph graph = TwoLayers({.extent = 16});
  const auto plan = [&](bool ordered, int64_t most_bytes) {
    PlanOptions options;
    if (!ordered) options.disable = {"image_order"};
    options.max_memory_bytes = most_bytes;
    return PlanFusion(graph, Device(), options);
  };
  const auto copied = plan(true, 0), given = plan(false, 0);
  REQUIRE(given.ok());
  const int64_t ceiling = given->plan.summary.peak_bytes;
  REQUIRE(copied->plan.summary.peak_bytes > ceiling);
  const auto below = plan(true, ceiling);
  REQUIRE(below.status().ToString() == "OK");
  CHECK(below->plan.summary.peak_bytes <= ceiling);
}

// Half of the channels of a larger tensor, as of a split network.
TEST_CASE("a copy of what has gaps lies as the call's other operand") {
  GraphBuilder b("half");
  const auto input = [&](std::string name, std::vector<int64_t> strides) {
    return b.Input({DType::kBf16, {32, 64, 28, 28}},
                   {.name = std::move(name), .strides = std::move(strides)});
  };
  const ValueId dy = input("dy", {50176, 1, 1792, 64}), x = input("x", {100352, 1, 3584, 128});
  Attrs window = Window({.spatial = 2});
  window.Set("weight_shape", Shape{64, 64, 3, 3});
  b.Output(b.Add(Op::convolution_weight_gradient, {dy, x}, window), "dw");
  const auto planned = PlanFusion(*b.Build(), Device(), {});
  REQUIRE(planned.status().ToString() == "OK");
  for (const Group& group : planned->plan.groups) {
    const Call* const call = CallOf(group);
    if (call == nullptr) continue;
    for (const CallTensor& t : call->operands) CHECK(t.strides[1] == 1);
  }
}

TEST_CASE("a library's transposes take their factor of what their bytes take") {
  const auto price = [](double factor) {
    const DeviceSpec device = Device({{"convolution_transpose_factor", factor},
                                      {"convolution_cycles_factor", 1000},
                                      {"convolution_boxes_factor", 1000}});
    PlanOptions row_major;
    row_major.disable = {"image_order"};
    const auto planned = PlanFusion(TwoLayers({.extent = 16}), device, row_major);
    REQUIRE(planned.status().ToString() == "OK");
    return planned->plan.summary.price_ps;
  };
  CHECK(price(2) > price(1));
  CHECK(price(3) - price(2) == price(2) - price(1));
}

TEST_CASE("what gains nothing by it stays") {
  const auto stays = [](const Layers& layers, const DeviceSpec& device = Device()) {
    return Copies(Ordered(TwoLayers(layers), device)) == 0;
  };
  CHECK(stays({.last = true}));
  CHECK(stays({.dtype = DType::kFp32}));                       // libraries multiply it row-major
  CHECK(stays({.spatial = 2, .groups = 64}));                  // depthwise
  CHECK(stays({.extent = 16}, Device({{"margin_us", 1e6}})));  // less than prices tell
  // Nobody transposes, and no kernel asks for one order.
  CHECK(stays({}, Device({{"convolution_transpose_factor", 0},  //
                          {"convolution_boxes_factor", 1000}})));
  CHECK(stays({.channels = 8}));  // a pixel's channels are less than what memory moves at once
}

TEST_CASE("an image that is read, made or left in row-major order counts as copied") {
  const DeviceSpec device = Device({{"launch_graph_us", 0.001}, {"hbm_bytes_per_s", 1e11}});
  const auto calls_alone = Ordered(TwoLayers({.extent = 16}), device);
  const auto crossing = Ordered(TwoLayers({.extent = 16, .crosses = true}), device);
  CHECK(Copies(calls_alone) == 6);
  CHECK(Copies(crossing) == 0);
}

TEST_CASE("chains go through ops that keep an image's order and end at others") {
  GraphBuilder b("chains");
  const Shape image = {2, 32, 4, 4};
  const ValueId x = b.Input({DType::kBf16, image}, {.name = "x"});
  const ValueId same = b.Add(Op::exp, {x});
  const ValueId half = b.Add(
      Op::slice, {same},
      {{"axis", int64_t{1}}, {"start", int64_t{0}}, {"step", int64_t{1}}, {"stop", int64_t{16}}});
  const ValueId flat = b.Reshape(same, {2, 32, 16});
  const ValueId vector = b.Input({DType::kBf16, {1, 32, 1, 1}}, {.name = "v"});
  const ValueId scaled = b.Add(Op::mul, {same, vector});
  for (const ValueId v : {half, flat, scaled}) b.Output(v, "out");
  const auto graph = b.Build();
  REQUIRE(graph.status().ToString() == "OK");
  const ImageChains chains(*graph);
  CHECK(chains.Of(x) == chains.Of(same));
  CHECK(chains.Of(x) == chains.Of(half));
  CHECK(chains.Of(x) == chains.Of(scaled));
  CHECK(chains.Of(x) != chains.Of(flat));
  CHECK(chains.Of(x) != chains.Of(vector));
}

}  // namespace
}  // namespace retrograd
