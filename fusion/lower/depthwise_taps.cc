#include "fusion/lower/depthwise_taps.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "fusion/analysis/strided_view.h"
#include "fusion/cost/pass_price.h"
#include "fusion/kernel/ir/scale.h"
#include "fusion/ops/call_op.h"
#include "graph/ir/library/convolution.h"
#include "graph/passes/rewriter.h"

namespace retrograd {
namespace {

constexpr int64_t kMostTaps = 16;
// Of an element for each tap: a bound, an address, a load, a widening, a product with its sum.
constexpr int64_t kInstructionsOfTap = 5;
constexpr size_t kBatch = 0, kChannel = 1;  // dims of images

bool IsGradient(Op op) {
  return op == Op::convolution_input_gradient || op == Op::convolution_weight_gradient;
}

std::optional<ConvolutionGeometry> GeometryOf(const BackwardGraph& g, NodeId id) {
  std::vector<const TensorType*> types;
  for (const ValueId v : g.operands(id)) types.push_back(&g.type(v));
  auto geometry = ConvolutionGeometryOf(g.op(id), types, g.node(id).attrs);
  if (!geometry.ok()) return std::nullopt;
  return *std::move(geometry);
}

// Whether windows reach no further than over the image, on each side of it: what is padded is then
// at most three times as long.
bool StaysNear(const ConvolutionGeometry& c) {
  for (size_t d = 0; d < c.in.size(); ++d) {
    const int64_t reach = (c.kernel[d] - 1) * c.dilation[d];
    if (reach > c.in[d] || c.padding[d] > reach) return false;
  }
  return true;
}

// Whether the gradient is such a sum.
bool Expands(const ConvolutionGeometry& c, Op op) {
  const bool depthwise =
      c.groups > 1 && c.groups == c.in_channels && c.in_channels == c.out_channels;
  if (!depthwise || Elements(c.kernel) > kMostTaps || !StaysNear(c)) return false;
  const int64_t elements = Product({c.batch, c.in_channels, Elements(c.in)});
  if (elements == 0 || Elements(c.out) == 0 || elements > kMaxElements / 27) return false;
  // Between strides the image's gradient has pixels that no tap meets.
  return op == Op::convolution_weight_gradient ||
         std::all_of(c.stride.begin(), c.stride.end(), [](int64_t s) { return s == 1; });
}

bool Expands(const BackwardGraph& g, NodeId id) {
  if (!IsGradient(g.op(id)) || g.node(id).attrs.Int("groups", 1) <= 1) return false;
  const std::optional<ConvolutionGeometry> geometry = GeometryOf(g, id);
  return geometry.has_value() && Expands(*geometry, g.op(id));
}

class Chooser {
 public:
  Chooser(const BackwardGraph& g, std::vector<Layout> layouts, const DeviceSpec& device)
      : g_(g), layouts_(std::move(layouts)), device_(device) {}

  // Whether a kernel of its own takes less than the call.
  bool Wins(NodeId id) const {
    const int64_t call = CallPs(id);
    return SumsPs(id, *GeometryOf(g_, id)) <
           call - std::max(device_.margin_ps, Share(call, device_.margin_ppm));
  }

 private:
  CallTensor Tensor(ValueId v) const {
    const TensorType& type = g_.type(v);
    CallTensor tensor{.value = v, .shape = type.shape, .dtype = type.dtype};
    if (const auto view = AsStrided(g_, layouts_, v)) {
      tensor.strides = view->strides;
    } else {  // it is copied
      tensor.strides = DenseStrides(type.shape);
    }
    return tensor;
  }

  int64_t CallPs(NodeId id) const {
    Call call{.node = id,
              .op = g_.op(id),
              .attributes = g_.node(id).attrs,
              .tf32 = g_.numerics().allow_tf32};
    for (const ValueId v : g_.operands(id)) call.operands.push_back(Tensor(v));
    call.results = {Tensor({id, 0})};
    return CallOpOf(call.op).price(call, device_, /*explain=*/false).ps;
  }

  // A kernel of its own that makes the sums.
  int64_t SumsPs(NodeId id, const ConvolutionGeometry& c) const {
    int64_t bytes = 0;
    for (const ValueId v : {g_.operands(id)[0], g_.operands(id)[1], ValueId{id, 0}}) {
      bytes += g_.type(v).elements() * SizeBytes(g_.type(v).dtype);
    }
    const bool of_image = g_.op(id) == Op::convolution_input_gradient;
    const int64_t elements = Product({c.batch, c.in_channels, Elements(of_image ? c.in : c.out)});
    return PassPs(bytes, Product({elements, Elements(c.kernel), kInstructionsOfTap}), device_);
  }

  const BackwardGraph& g_;
  const std::vector<Layout> layouts_;
  const DeviceSpec& device_;
};

// Builds one gradient anew.
class Expander {
 public:
  Expander(GraphBuilder& b, ConvolutionGeometry geometry) : b_(b), c_(std::move(geometry)) {}

  // dx[n,c,p] = sum over taps t of dy[n,c,p + padding - t dilation] w[c,t]
  ValueId OfImage(ValueId dy, ValueId w) const {
    const Shape image = c_.XShape();
    Shape low(image.size(), 0), high(image.size(), 0);
    for (size_t d = 0; d < c_.in.size(); ++d) {
      low[2 + d] = std::max<int64_t>((c_.kernel[d] - 1) * c_.dilation[d] - c_.padding[d], 0);
      high[2 + d] = std::max<int64_t>(c_.in[d] + c_.padding[d] - c_.out[d], 0);
    }
    const ValueId padded = Pad(dy, low, high);
    std::optional<ValueId> sum;
    for (int64_t t = 0; t < taps(); ++t) {
      const Shape tap = Tap(t);
      ValueId met = padded, element = w;
      for (size_t d = 0; d < tap.size(); ++d) {
        const auto dim = static_cast<int64_t>(2 + d);
        const int64_t start = low[2 + d] + c_.padding[d] - tap[d] * c_.dilation[d];
        met = b_.Slice(met, dim, start, start + c_.in[d]);
        element = b_.Slice(element, dim, tap[d], tap[d] + 1);
      }
      Shape of_channel(image.size(), 1);
      of_channel[kChannel] = c_.in_channels;
      element = b_.Expand(b_.Reshape(Wide(element), of_channel), image);
      const ValueId product = b_.Add(Op::mul, {Wide(met), element});
      sum = sum ? b_.Add(Op::add, {*sum, product}) : product;
    }
    return *sum;
  }

  // dw[c,t] = sum over n, q of dy[n,c,q] x[n,c,q stride + t dilation - padding]
  ValueId OfFilter(ValueId dy, ValueId x) const {
    const size_t rank = c_.XShape().size();
    Shape low(rank, 0), high(rank, 0);
    for (size_t d = 0; d < c_.in.size(); ++d) {
      const int64_t reach =
          (c_.out[d] - 1) * c_.stride[d] + (c_.kernel[d] - 1) * c_.dilation[d] + 1;
      low[2 + d] = c_.padding[d];
      high[2 + d] = std::max<int64_t>(reach - c_.padding[d] - c_.in[d], 0);
    }
    const ValueId padded = Pad(x, low, high), given = Wide(dy);
    std::vector<int64_t> all = {kBatch};
    for (size_t d = 0; d < c_.in.size(); ++d) all.push_back(static_cast<int64_t>(2 + d));
    std::vector<ValueId> sums;
    for (int64_t t = 0; t < taps(); ++t) {
      const Shape tap = Tap(t);
      ValueId met = padded;
      for (size_t d = 0; d < tap.size(); ++d) {
        const int64_t start = tap[d] * c_.dilation[d];
        met = b_.Slice(met, static_cast<int64_t>(2 + d), start,
                       start + (c_.out[d] - 1) * c_.stride[d] + 1, c_.stride[d]);
      }
      const ValueId sum = b_.Sum(b_.Add(Op::mul, {given, Wide(met)}), all);
      sums.push_back(b_.Reshape(sum, {c_.in_channels, 1}));
    }
    return b_.Cat(sums, 1);
  }

 private:
  int64_t taps() const { return Elements(c_.kernel); }

  // Where tap number `t` lies, by spatial dim.
  Shape Tap(int64_t t) const {
    Shape tap(c_.kernel.size(), 0);
    for (size_t d = tap.size(); d-- > 0; t /= c_.kernel[d]) tap[d] = t % c_.kernel[d];
    return tap;
  }

  ValueId Wide(ValueId v) const { return b_.Cast(v, ComputeType(b_.type(v).dtype)); }

  ValueId Pad(ValueId v, const Shape& low, const Shape& high) const {
    if (low == high && low == Shape(low.size(), 0)) return v;
    return b_.Add(Op::pad, {v}, {{"low", low}, {"high", high}, {"value", 0.0}});
  }

  GraphBuilder& b_;
  const ConvolutionGeometry c_;
};

void Expand(NodeId id, Rewriter& rewriter) {
  const BackwardGraph& g = rewriter.graph();
  GraphBuilder& b = rewriter.builder();
  rewriter.UseOrigin(id);
  const std::vector<ValueId> operands = rewriter.NewOperands(id);
  const Expander expander(b, *GeometryOf(g, id));
  const ValueId sums = g.op(id) == Op::convolution_input_gradient
                           ? expander.OfImage(operands[0], operands[1])
                           : expander.OfFilter(operands[0], operands[1]);
  const TensorType& result = g.type(id);
  rewriter.Set({id, 0}, b.Reshape(b.Cast(sums, result.dtype), result.shape));
}

}  // namespace

absl::StatusOr<BackwardGraph> ExpandDepthwiseTaps(const BackwardGraph& graph,
                                                  const LayoutOptions& layouts,
                                                  const DeviceSpec& device) {
  std::vector<bool> chosen(graph.num_nodes());
  for (uint32_t i = 0; i < graph.num_nodes(); ++i) chosen[i] = Expands(graph, NodeId{i});
  if (std::find(chosen.begin(), chosen.end(), true) == chosen.end()) return graph;
  const Chooser chooser(graph, AssignLayouts(graph, layouts).of, device);
  for (uint32_t i = 0; i < graph.num_nodes(); ++i) {
    chosen[i] = chosen[i] && chooser.Wins(NodeId{i});
  }
  if (std::find(chosen.begin(), chosen.end(), true) == chosen.end()) return graph;
  Rewriter rewriter(graph);
  for (uint32_t i = 0; i < graph.num_nodes(); ++i) {
    chosen[i] ? Expand(NodeId{i}, rewriter) : rewriter.Copy(NodeId{i});
  }
  return rewriter.Finish();
}

}  // namespace retrograd
