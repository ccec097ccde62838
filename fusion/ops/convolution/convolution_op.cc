// The rows of convolution and of its two gradients.
//
// Each is a matmul for every group: of pixels by channels of the filter. A library makes it so, or,
// where groups are thin, multiplies and adds element by element; it is taken to choose the faster.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "fusion/kernel/ir/scale.h"
#include "fusion/ops/call_op.h"
#include "fusion/ops/convolution/convolution_call.h"
#include "fusion/ops/convolution/packed_layout.h"
#include "fusion/ops/matmul/matmul_cost.h"

namespace retrograd {
namespace {

constexpr int64_t kTile = 128;  // rows and columns of the result that a block makes

int64_t Volume(const SpatialExtents& e) { return Product({e[0], e[1], e[2]}); }

// Channels last beside an operand whose channels are last: a library transposes what is mixed.
std::vector<int64_t> BesideOther(absl::Span<const int64_t> shape,
                                 absl::Span<const int64_t> other_shape,
                                 absl::Span<const int64_t> other_strides) {
  if (IsRowMajor(other_shape, other_strides) || !IsPacked(other_shape, other_strides)) return {};
  return ChannelsLastStrides(shape);
}

// The matmul that makes the result, one for each group.
MatMulCall AsMatMul(const ConvolutionCall& c) {
  const int64_t pixels_out = Product({c.geometry.batch, Volume(c.out)});
  const int64_t pixels_in = Product({c.geometry.batch, Volume(c.in)});
  const int64_t taps = Volume(c.kernel);
  MatMulCall m{.batch = {c.geometry.groups}};
  if (c.op == Op::convolution_input_gradient) {
    // A pixel meets one tap of each stride.
    const int64_t met = std::max<int64_t>(taps / Volume(c.stride), 1);
    m.m = pixels_in, m.n = c.in_channels_of_group(), m.k = c.out_channels_of_group() * met;
    m.in_dtype = c.y.dtype, m.out_dtype = c.x.dtype;
  } else if (c.op == Op::convolution_weight_gradient) {
    m.m = c.out_channels_of_group(), m.n = c.in_channels_of_group() * taps, m.k = pixels_out;
    m.in_dtype = c.y.dtype, m.out_dtype = c.w.dtype;
  } else {
    m.m = pixels_out, m.n = c.out_channels_of_group(), m.k = c.in_channels_of_group() * taps;
    m.in_dtype = c.x.dtype, m.out_dtype = c.y.dtype;
  }
  return m;
}

Price PriceCall(const Call& call, const DeviceSpec& d, bool explain) {
  const MatMulCall m = AsMatMul(ConvolutionOf(call));
  Price price;
  for (const CallTensor& t : call.operands) {
    price.read_bytes += Elements(t.shape) * SizeBytes(t.dtype);
  }
  for (const CallTensor& t : call.results) {
    price.written_bytes += Elements(t.shape) * SizeBytes(t.dtype);
  }
  const int64_t launch = d.launch_graph_ps + d.library_call_ps;
  const int64_t hbm = TransferPs(price.read_bytes + price.written_bytes, d.hbm_bytes_per_s);
  const int64_t tiled = std::max<int64_t>(PriceMatMul(m, d).ps - launch, 0);
  const int64_t flops = Product({2, m.batch[0], m.m, m.n, m.k});
  const int64_t rate = m.in_dtype == DType::kFp64 ? d.matmul_fp64_flops : d.matmul_fp32_flops;
  const int64_t direct = MulDiv(std::max<int64_t>(flops, 1), kPsPerSecond, rate);
  const bool tiles = tiled <= direct;
  const int64_t compute = tiles ? tiled : direct;
  price.ps = std::min(kHuge, launch + std::max(compute, hbm));
  if (explain) {
    price.terms = {
        {"launch", launch, false, "one library call"},
        {"flops", compute, compute >= hbm,
         tiles ? absl::StrFormat("as %d matmuls of %d x %d x %d", m.batch[0], m.m, m.n, m.k)
               : absl::StrFormat("%d flops without tensor cores / %.0f TFLOP/s", flops,
                                 static_cast<double>(rate) / 1e12)},
        {"hbm", hbm, hbm > compute,
         absl::StrCat(price.read_bytes, " B read + ", price.written_bytes, " B written")}};
  }
  return price;
}

int64_t Blocks(const Call& call) {
  const MatMulCall m = AsMatMul(ConvolutionOf(call));
  return Product({m.batch[0], CeilDiv(m.m, kTile), CeilDiv(m.n, kTile)});
}

std::string Describe(const Call& call) {
  const ConvolutionCall c = ConvolutionOf(call);
  const ConvolutionGeometry& g = c.geometry;
  std::string text = absl::StrCat(
      Name(call.op), " ", g.batch, "x", g.in_channels, "x", absl::StrJoin(g.in, "x"), " with ",
      g.out_channels, " filters of ", absl::StrJoin(g.kernel, "x"), " ", Name(c.y.dtype));
  const auto add = [&](absl::string_view name, const std::vector<int64_t>& list, int64_t usual) {
    if (std::all_of(list.begin(), list.end(), [&](int64_t v) { return v == usual; })) return;
    absl::StrAppend(&text, ", ", name, " ", absl::StrJoin(list, "x"));
  };
  add("stride", g.stride, 1);
  add("padding", g.padding, 0);
  add("dilation", g.dilation, 1);
  if (g.groups > 1) absl::StrAppend(&text, ", ", g.groups, " groups");
  const DType result = call.results[0].dtype;
  if (result != call.operands[0].dtype) absl::StrAppend(&text, ", into ", Name(result));
  return text;
}

CallSizes Sizes(const Call& call) {
  const ConvolutionGeometry g = ConvolutionOf(call).geometry;
  CallSizes sizes = {{"batch", g.batch},
                     {"in_channels", g.in_channels},
                     {"out_channels", g.out_channels},
                     {"groups", g.groups}};
  for (size_t d = 0; d < g.in.size(); ++d) {
    sizes.push_back({absl::StrCat("in", d), g.in[d]});
    sizes.push_back({absl::StrCat("kernel", d), g.kernel[d]});
    sizes.push_back({absl::StrCat("out", d), g.out[d]});
  }
  return sizes;
}

// Results lie in the order of the pixels that they are made of.
constexpr CallOp Row(Op op, int (*result_like)(int), bool widens) {
  return {.op = op,
          .name = "convolution",
          .reads = IsPacked,
          .stores = IsPacked,
          .beside = BesideOther,
          .result_like = result_like,
          .widens = widens,
          .price = PriceCall,
          .blocks = Blocks,
          .work_kind = WorkKind::kConvolution,
          .describe = Describe,
          .sizes = Sizes};
}

}  // namespace

const CallOp kConvolutionCalls = Row(
    Op::convolution, [](int) { return 0; }, false);
const CallOp kConvolutionInputGradientCalls = Row(
    Op::convolution_input_gradient, [](int) { return 0; }, true);
const CallOp kConvolutionWeightGradientCalls = Row(
    Op::convolution_weight_gradient, [](int) { return 1; }, true);

}  // namespace retrograd
