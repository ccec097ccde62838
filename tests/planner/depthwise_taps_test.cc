// Depthwise gradients of few taps: which become sums of shifted products, and that they mean the
// same.
#include "fusion/lower/depthwise_taps.h"

#include "fusion/planner/planner.h"
#include "tests/catch.h"
#include "tests/support/drawn_convolutions.h"
#include "tests/support/plans/changed_spec.h"
#include "tests/support/plans/same_outputs.h"

namespace retrograd {
namespace {

DeviceSpec Device(const std::vector<DeviceNumber>& numbers = {}) {
  return ChangedSpec("h200", numbers);
}

// Where a call costs much more than another kernel.
DeviceSpec SlowCalls() {
  return Device({{"library_call_us", 100}, {"launch_graph_us", 0.001}, {"margin_us", 0.001}});
}

struct Layer {
  Shape x, w, y, stride, padding, dilation;
  int64_t groups = 1;
  DType dtype = DType::kBf16;
};

// A convolution of [batch, channels, length], causal: what lies ahead of a place is padded.
Layer Causal(int64_t batch, int64_t channels, int64_t length, int64_t taps) {
  return {.x = {batch, channels, length},
          .w = {channels, 1, taps},
          .y = {batch, channels, length + taps - 1},
          .stride = {1},
          .padding = {taps - 1},
          .dilation = {1},
          .groups = channels};
}

BackwardGraph Gradients(const Layer& l) {
  GraphBuilder b("depthwise");
  const ValueId dy = b.Input({l.dtype, l.y}, {.name = "dy"});
  const ValueId x = b.Input({l.dtype, l.x}, {.name = "x"});
  const ValueId w = b.Input({l.dtype, l.w}, {.name = "w", .kind = InputKind::kParameter});
  Attrs attrs = {
      {"stride", l.stride}, {"padding", l.padding}, {"dilation", l.dilation}, {"groups", l.groups}};
  Attrs of_image = attrs, of_filter = attrs;
  of_image.Set("input_shape", l.x);
  of_filter.Set("weight_shape", l.w);
  b.Output(b.Add(Op::convolution_input_gradient, {dy, w}, of_image), "dx");
  b.Output(b.Add(Op::convolution_weight_gradient, {dy, x}, of_filter), "dw");
  auto graph = b.Build();
  INFO(graph.status());
  REQUIRE(graph.ok());
  return *std::move(graph);
}

BackwardGraph Expanded(const BackwardGraph& graph, const DeviceSpec& device = Device()) {
  auto expanded = ExpandDepthwiseTaps(graph, {}, device);
  INFO(expanded.status());
  REQUIRE(expanded.ok());
  return *std::move(expanded);
}

int Calls(const BackwardGraph& g) {
  int calls = 0;
  for (uint32_t i = 0; i < g.num_nodes(); ++i) calls += g.pattern(NodeId{i}) == Pattern::kLibrary;
  return calls;
}

TEST_CASE("four taps along row-major lines of time are sums") {
  const BackwardGraph graph = Gradients(Causal(8, 1536, 2048, 4));
  CHECK(Calls(graph) == 2);
  CHECK(Calls(Expanded(graph)) == 0);
}

TEST_CASE("what gains nothing by it, or is no such sum, stays") {
  const auto calls = [](const Layer& layer, const DeviceSpec& device) {
    return Calls(Expanded(Gradients(layer), device));
  };
  CHECK(calls(Causal(8, 1536, 2048, 17), SlowCalls()) == 2);  // too many taps
  Layer grouped = Causal(8, 1536, 2048, 4);
  grouped.groups = 768, grouped.w[1] = 2;
  CHECK(calls(grouped, SlowCalls()) == 2);  // two channels a filter
  Layer strided = Causal(8, 1536, 2047, 4);
  strided.stride = {2}, strided.y[2] = 1025;
  CHECK(calls(strided, SlowCalls()) == 1);  // the image's gradient has gaps
  Layer far = Causal(8, 1536, 2048, 4);
  far.padding = {100}, far.y[2] = 2048 + 197;
  CHECK(calls(far, SlowCalls()) == 2);  // padded by more than the taps reach
  Layer apart = Causal(8, 1536, 16, 3);
  apart.dilation = {9}, apart.padding = {18}, apart.y[2] = 34;
  CHECK(calls(apart, SlowCalls()) == 2);  // taps reach further than the image
  // Calls at the rate of fp32 are faster than so many instructions.
  CHECK(calls(Causal(8, 1536, 2048, 16), Device({{"depthwise_row_major_share", 1}})) == 2);
}

TEST_CASE("gradients as sums of shifted products are the same") {
  int expanded_some = 0;
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    Draw draw(seed);
    const int dims = static_cast<int>(draw.Int(1, 3));
    Layer l{.x = {draw.Int(1, 2), draw.Int(2, 5)}};
    l.groups = l.x[1];
    l.w = {l.x[1], 1};
    l.y = {l.x[0], l.x[1]};
    for (int d = 0; d < dims; ++d) {
      const int64_t taps = draw.Int(1, 4), step = draw.Int(1, 2), pad = draw.Int(0, 3);
      const int64_t apart = draw.Int(1, 2), window = apart * (taps - 1) + 1;
      const int64_t extent = std::max<int64_t>(window - 2 * pad, 1) + draw.Int(0, 5);
      l.x.push_back(extent), l.w.push_back(taps);
      l.y.push_back((extent + 2 * pad - window) / step + 1);
      l.stride.push_back(step), l.padding.push_back(pad), l.dilation.push_back(apart);
    }
    l.dtype = draw.Int(0, 1) == 0 ? DType::kBf16 : DType::kFp32;
    INFO("seed " << seed);
    const BackwardGraph graph = Gradients(l), expanded = Expanded(graph, SlowCalls());
    expanded_some += Calls(expanded) < 2;
    CHECK(LargestDifference(graph, expanded) <= (l.dtype == DType::kBf16 ? 2e-2 : 1e-5));
  }
  CHECK(expanded_some > 25);
}

TEST_CASE("a plan of sums is predicted to take less than one of calls") {
  const BackwardGraph graph = Gradients(Causal(8, 1536, 2048, 4));
  auto planned = PlanFusion(graph, Device(), {});
  INFO(planned.status());
  REQUIRE(planned.ok());
  REQUIRE(planned->plan.Verify(planned->graph).ToString() == "OK");
  CHECK(Calls(planned->graph) == 0);
  PlanOptions options;
  options.disable = {"depthwise_taps"};
  auto without = PlanFusion(graph, Device(), options);
  REQUIRE(without.ok());
  CHECK(Calls(without->graph) == 2);
  CHECK(planned->plan.summary.price_ps < without->plan.summary.price_ps);
}

}  // namespace
}  // namespace retrograd
