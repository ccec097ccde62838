// Weight gradients of images of few channels: which get taps as channels, and that they mean the
// same.
#include "fusion/lower/taps_as_channels.h"

#include "fusion/planner/planner.h"
#include "tests/catch.h"
#include "tests/support/drawn_convolutions.h"
#include "tests/support/plans/changed_spec.h"
#include "tests/support/plans/same_outputs.h"

namespace retrograd {
namespace {

DeviceSpec Device(const std::vector<DeviceNumber>& numbers = {}) {
  return ChangedSpec("h100", numbers);
}

// Where another kernel costs nothing and an odd number of channels much.
DeviceSpec Wasteful() {
  return Device({{"launch_graph_us", 0.001},
                 {"block_us", 0.001},
                 {"margin_us", 0.001},
                 {"matmul_odd_pitch_factor", 100},
                 {"convolution_narrow_factor", 100}});
}

struct Layer {
  Shape x, w, y, stride, padding, dilation;
  DType dtype = DType::kBf16;
  bool widens = false;  // the gradient is stored as fp32 from its sums
};

BackwardGraph WeightGradient(const Layer& l) {
  GraphBuilder b("first");
  const ValueId dy = b.Input({l.dtype, l.y}, {.name = "dy"});
  const ValueId x = b.Input({l.dtype, l.x}, {.name = "x"});
  Attrs attrs = {{"stride", l.stride},
                 {"padding", l.padding},
                 {"dilation", l.dilation},
                 {"groups", int64_t{1}},
                 {"weight_shape", l.w}};
  if (l.widens) attrs.Set("dtype", std::string(Name(DType::kFp32)));
  b.Output(b.Cast(b.Add(Op::convolution_weight_gradient, {dy, x}, attrs), DType::kFp32), "dw");
  auto graph = b.Build();
  INFO(graph.status());
  REQUIRE(graph.ok());
  return *std::move(graph);
}

// Of 7 x 7 taps in strides of 2, as of a ResNet.
Layer First(int64_t batch, int64_t channels = 3, int64_t extent = 224) {
  const int64_t out = extent / 2;
  return {.x = {batch, channels, extent, extent},
          .w = {64, channels, 7, 7},
          .y = {batch, 64, out, out},
          .stride = {2, 2},
          .padding = {3, 3},
          .dilation = {1, 1}};
}

BackwardGraph Taken(const BackwardGraph& graph, const DeviceSpec& device = Device()) {
  auto taken = TakeTapsAsChannels(graph, device);
  INFO(taken.status());
  REQUIRE(taken.ok());
  return *std::move(taken);
}

// The shape of the image that the gradient reads.
Shape ImageOf(const BackwardGraph& g) {
  for (uint32_t i = 0; i < g.num_nodes(); ++i) {
    const NodeId id{i};
    if (g.op(id) == Op::convolution_weight_gradient) return g.type(g.operands(id)[1]).shape;
  }
  return {};
}

TEST_CASE("seven taps along the last dim of three channels are 21 of 32 channels") {
  const BackwardGraph taken = Taken(WeightGradient(First(32)));
  CHECK(ImageOf(taken) == Shape{32, 32, 224, 112});
}

TEST_CASE("one load reads all taps of an image") {
  Layer layer = First(32);
  layer.w = {64, 3, 3, 3}, layer.padding = {1, 1};  // both dims become channels: 27 of 32
  const BackwardGraph graph = WeightGradient(layer);
  CHECK(ImageOf(Taken(graph)) == Shape{32, 32, 112, 112});
  auto planned = PlanFusion(graph, Device());
  REQUIRE(planned.ok());
  int loads = 0;
  for (const Group& group : planned->plan.groups) {
    const KernelBody* const kernel = KernelOf(group);
    if (kernel == nullptr || planned->graph.op(group.nodes.front()) != Op::copy) continue;
    for (const Instr& instr : kernel->ir.instrs) loads += instr.kind == InstrKind::kLoad;
  }
  CHECK(loads == 1);
}

TEST_CASE("a gradient that is stored as fp32 still is") {
  Layer layer = First(32);
  layer.widens = true;
  const BackwardGraph graph = WeightGradient(layer), taken = Taken(graph);
  CHECK(ImageOf(taken) == Shape{32, 32, 224, 112});
  CHECK(taken.type(*taken.outputs()[0].value) == graph.type(*graph.outputs()[0].value));
}

TEST_CASE("what gains nothing by it stays") {
  const auto stays = [](const Layer& layer, const DeviceSpec& device) {
    return ImageOf(Taken(WeightGradient(layer), device)) == layer.x;
  };
  CHECK(stays(First(32, 32), Device()));  // channels enough
  Layer wide = First(32);
  wide.dtype = DType::kFp32;
  CHECK(stays(wide, Device()));
  CHECK(stays(First(32), Device({{"hbm_bytes_per_s", 1e9}})));  // another image is the dearer one
}

TEST_CASE("gradients over taps as channels are the same") {
  int taken_some = 0;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    Draw draw(seed);
    const int dims = static_cast<int>(draw.Int(1, 3));
    Layer l{.x = {draw.Int(1, 2), 1 + 2 * draw.Int(0, 2)}, .w = {2 * draw.Int(1, 4), 0}};
    l.w[1] = l.x[1];
    l.y = {l.x[0], l.w[0]};
    for (int d = 0; d < dims; ++d) {
      const int64_t taps = draw.Int(1, 4), step = draw.Int(1, 3), pad = draw.Int(0, 3);
      const int64_t apart = draw.Int(1, 2), window = apart * (taps - 1) + 1;
      const int64_t extent = std::max<int64_t>(window - 2 * pad, 1) + draw.Int(0, 5);
      l.x.push_back(extent), l.w.push_back(taps);
      l.y.push_back((extent + 2 * pad - window) / step + 1);
      l.stride.push_back(step), l.padding.push_back(pad), l.dilation.push_back(apart);
    }
    INFO("seed " << seed);
    const BackwardGraph graph = WeightGradient(l);
    const BackwardGraph taken = Taken(graph, Wasteful());
    taken_some += ImageOf(taken) != l.x;
    CHECK(LargestDifference(graph, taken) <= 1e-2);
  }
  CHECK(taken_some > 10);
}

TEST_CASE("a plan with taps as channels reads them channels last and is predicted to take less") {
  const BackwardGraph graph = WeightGradient(First(32));
  auto planned = PlanFusion(graph, Device(), {});
  INFO(planned.status());
  REQUIRE(planned.ok());
  REQUIRE(planned->plan.Verify(planned->graph).ToString() == "OK");
  CHECK(ImageOf(planned->graph) == Shape{32, 32, 224, 112});
  PlanOptions options;
  options.disable = {"taps_as_channels"};
  auto without = PlanFusion(graph, Device(), options);
  REQUIRE(without.ok());
  CHECK(ImageOf(without->graph) == graph.type(NodeId{1}).shape);
  CHECK(planned->plan.summary.price_ps < without->plan.summary.price_ps);
}

}  // namespace
}  // namespace retrograd
