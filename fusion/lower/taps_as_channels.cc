#include "fusion/lower/taps_as_channels.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "fusion/cost/pass_price.h"
#include "fusion/kernel/ir/scale.h"
#include "fusion/lower/indexed/axis_views.h"
#include "fusion/ops/call_op.h"
#include "fusion/ops/convolution/image_boxes.h"
#include "fusion/ops/convolution/packed_layout.h"
#include "graph/ir/library/convolution.h"
#include "graph/passes/rewriter.h"

namespace retrograd {
namespace {

constexpr int64_t kLeastChannels = kBoxWidth / 2;  // that boxes are made of
constexpr int64_t kChannelUnit = 8;                // of 16 bits: what a thread moves at once
// Of each element of x2, to find and bound its place along a folded dim: an estimate.
constexpr int64_t kInstructionsOfDim = 12;

// What a weight's gradient becomes when the taps along its last `dims` spatial dims are channels.
struct Folding {
  ConvolutionGeometry from;
  size_t dims = 0;

  size_t kept() const { return from.kernel.size() - dims; }
  int64_t parts() const {
    int64_t n = 1;
    for (size_t d = kept(); d < from.kernel.size(); ++d) n *= from.kernel[d];
    return n;
  }
  int64_t used() const { return parts() * from.in_channels; }
  int64_t channels() const {
    return std::max(kLeastChannels, CeilDiv(used(), kChannelUnit) * kChannelUnit);
  }
  Shape Image() const {
    Shape shape = {from.batch, channels()};
    for (size_t d = 0; d < from.in.size(); ++d) {
      shape.push_back(d < kept() ? from.in[d] : from.out[d]);
    }
    return shape;
  }
  Shape Filters() const {
    Shape shape = {from.out_channels, channels()};
    for (size_t d = 0; d < from.kernel.size(); ++d) {
      shape.push_back(d < kept() ? from.kernel[d] : 1);
    }
    return shape;
  }
  // dtype: of the gradient.
  Attrs Window(DType dtype) const {
    Shape stride = from.stride, padding = from.padding, dilation = from.dilation;
    std::fill(stride.begin() + static_cast<std::ptrdiff_t>(kept()), stride.end(), 1);
    std::fill(padding.begin() + static_cast<std::ptrdiff_t>(kept()), padding.end(), 0);
    std::fill(dilation.begin() + static_cast<std::ptrdiff_t>(kept()), dilation.end(), 1);
    return {{"stride", stride},          {"padding", padding},
            {"dilation", dilation},      {"groups", int64_t{1}},
            {"weight_shape", Filters()}, {"dtype", std::string(Name(dtype))}};
  }
};

class Chooser {
 public:
  Chooser(const BackwardGraph& g, const DeviceSpec& device) : g_(g), device_(device) {}

  std::optional<Folding> Choose(NodeId id) const {
    if (g_.op(id) != Op::convolution_weight_gradient) return std::nullopt;
    const TensorType& dy = g_.type(g_.operands(id)[0]);
    const TensorType& x = g_.type(g_.operands(id)[1]);
    if (SizeBytes(x.dtype) != 2 || x.elements() == 0 || dy.elements() == 0) return std::nullopt;
    const TensorType* const types[] = {&dy, &x};
    const auto geometry = ConvolutionGeometryOf(g_.op(id), types, g_.node(id).attrs);
    if (!geometry.ok() || geometry->groups != 1) return std::nullopt;
    if (geometry->in_channels >= kLeastChannels) return std::nullopt;
    const int64_t as_given = CallPs(id, x.shape, g_.type(id).shape, g_.node(id).attrs);
    int64_t least = as_given - std::max(device_.margin_ps, Share(as_given, device_.margin_ppm));
    std::optional<Folding> best;
    for (size_t dims = 1; dims <= geometry->kernel.size(); ++dims) {
      Folding folding{.from = *geometry, .dims = dims};
      const int64_t ps =
          CallPs(id, folding.Image(), folding.Filters(), folding.Window(g_.type(id).dtype)) +
          ImagePs(folding, x.dtype);
      if (ps >= least) continue;
      least = ps;
      best = std::move(folding);
    }
    return best;
  }

 private:
  // With the channels of all last.
  int64_t CallPs(NodeId id, const Shape& x, const Shape& w, const Attrs& attrs) const {
    const auto tensor = [](ValueId v, const Shape& shape, DType dtype) {
      return CallTensor{
          .value = v, .shape = shape, .strides = ChannelsLastStrides(shape), .dtype = dtype};
    };
    const ValueId dy = g_.operands(id)[0], given = g_.operands(id)[1];
    Call call{.node = id, .op = g_.op(id), .attributes = attrs, .tf32 = g_.numerics().allow_tf32};
    call.operands = {tensor(dy, g_.type(dy).shape, g_.type(dy).dtype),
                     tensor(given, x, g_.type(given).dtype)};
    call.results = {tensor({id, 0}, w, g_.type(id).dtype)};
    return CallOpOf(call.op).price(call, device_, /*explain=*/false).ps;
  }

  // The kernel that makes x2.
  int64_t ImagePs(const Folding& folding, DType dtype) const {
    const Shape image = folding.Image();
    const int64_t elements = Elements(image);
    const int64_t bytes = (elements + Elements(folding.from.XShape())) * SizeBytes(dtype);
    return PassPs(bytes,
                  Product({elements, static_cast<int64_t>(folding.dims), kInstructionsOfDim}),
                  device_);
  }

  const BackwardGraph& g_;
  const DeviceSpec& device_;
};

// Builds one gradient anew.
class Folder {
 public:
  Folder(Rewriter& rewriter, const Folding& folding)
      : b_(rewriter.builder()), folding_(folding), from_(folding.from) {}

  ValueId Gradient(ValueId dy, ValueId x, const TensorType& w) {
    const ValueId wide =
        b_.Add(Op::convolution_weight_gradient, {dy, Image(x)}, folding_.Window(w.dtype));
    const ValueId used = b_.Slice(wide, 1, 0, folding_.used());
    // [K, taps.., C, kept taps..], then the channels first.
    Shape apart = {from_.out_channels};
    const auto folded = from_.kernel.begin() + static_cast<std::ptrdiff_t>(folding_.kept());
    apart.insert(apart.end(), folded, from_.kernel.end());
    apart.push_back(from_.in_channels);
    apart.insert(apart.end(), from_.kernel.begin(), folded);
    std::vector<int64_t> order(apart.size());
    std::iota(order.begin(), order.end(), int64_t{0});
    const auto first = order.begin() + 1, channels = first + static_cast<std::ptrdiff_t>(dims());
    std::rotate(first, channels, order.end());
    return b_.Reshape(b_.Permute(b_.Reshape(used, std::move(apart)), std::move(order)), w.shape);
  }

 private:
  size_t dims() const { return folding_.dims; }

  ValueId Pad(ValueId v, const Shape& low, const Shape& high) {
    const bool none = std::all_of(high.begin(), high.end(), [](int64_t n) { return n == 0; }) &&
                      std::all_of(low.begin(), low.end(), [](int64_t n) { return n == 0; });
    return none ? v : b_.Add(Op::pad, {v}, {{"low", low}, {"high", high}, {"value", 0.0}});
  }

  // Taps along a folded dim: those of the first one go on until all channels are filled.
  int64_t TapsAlong(size_t d) const {
    if (d > folding_.kept()) return from_.kernel[d];
    return CeilDiv(folding_.channels() * from_.kernel[d], folding_.used());
  }

  // x with zeros wherever a tap of the folded dims lies outside.
  ValueId Padded(ValueId x) {
    const size_t rank = 2 + from_.in.size();
    Shape low(rank, 0), high(rank, 0);
    for (size_t d = folding_.kept(); d < from_.in.size(); ++d) {
      const int64_t reach =
          (from_.out[d] - 1) * from_.stride[d] + (TapsAlong(d) - 1) * from_.dilation[d] + 1;
      low[2 + d] = from_.padding[d];
      high[2 + d] = std::max<int64_t>(reach - from_.padding[d] - from_.in[d], 0);
    }
    return Pad(x, low, high);
  }

  // What the taps of the folded dims meet, as channels in front of the image's own.
  ValueId Taps(ValueId padded) {
    AxisViews views(b_, padded);
    for (size_t d = from_.in.size(); d-- > folding_.kept();) {
      views.TakeWindows(static_cast<int64_t>(2 + d), 0, {from_.stride[d], from_.dilation[d]},
                        {from_.out[d], TapsAlong(d)});
    }
    // [N, C, kept.., (out, taps)..] to [N, taps.., C, kept.., out..].
    const auto kept = static_cast<int64_t>(folding_.kept());
    std::vector<int64_t> order = {0};
    const auto add = [&](int64_t first, int64_t step, int64_t count) {
      for (int64_t i = 0; i < count; ++i) order.push_back(first + i * step);
    };
    const auto folded = static_cast<int64_t>(dims());
    add(3 + kept, 2, folded);
    add(1, 1, 1 + kept);
    add(2 + kept, 2, folded);
    Shape shape = folding_.Image();
    shape[1] = folding_.used() / from_.kernel[folding_.kept()] * TapsAlong(folding_.kept());
    const ValueId taps = b_.Permute(views.value(), std::move(order));
    return b_.Slice(b_.Reshape(taps, std::move(shape)), 1, 0, folding_.channels());
  }

  ValueId Image(ValueId x) {
    const ValueId image = Taps(Padded(x));
    const size_t rank = 2 + from_.in.size();
    std::vector<int64_t> last(rank), back(rank);
    std::iota(last.begin(), last.end(), int64_t{1});
    last[0] = 0, last[rank - 1] = 1;
    std::iota(last.begin() + 1, last.end() - 1, int64_t{2});
    std::iota(back.begin(), back.end(), int64_t{-1});
    back[0] = 0, back[1] = static_cast<int64_t>(rank) - 1;
    return b_.Permute(b_.Add(Op::copy, {b_.Permute(image, std::move(last))}), std::move(back));
  }

  GraphBuilder& b_;
  const Folding& folding_;
  const ConvolutionGeometry& from_;
};

}  // namespace

absl::StatusOr<BackwardGraph> TakeTapsAsChannels(const BackwardGraph& graph,
                                                 const DeviceSpec& device) {
  const Chooser chooser(graph, device);
  std::vector<std::optional<Folding>> foldings(graph.num_nodes());
  bool any = false;
  for (uint32_t i = 0; i < graph.num_nodes(); ++i) {
    foldings[i] = chooser.Choose(NodeId{i});
    any |= foldings[i].has_value();
  }
  if (!any) return graph;
  Rewriter rewriter(graph);
  for (uint32_t i = 0; i < graph.num_nodes(); ++i) {
    const NodeId id{i};
    if (!foldings[i]) {
      rewriter.Copy(id);
      continue;
    }
    rewriter.UseOrigin(id);
    const std::vector<ValueId> operands = rewriter.NewOperands(id);
    Folder folder(rewriter, *foldings[i]);
    rewriter.Set({id, 0}, folder.Gradient(operands[0], operands[1], graph.type(id)));
  }
  return rewriter.Finish();
}

}  // namespace retrograd
