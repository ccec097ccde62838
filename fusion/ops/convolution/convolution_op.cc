// The rows of convolution and of its two gradients.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "fusion/kernel/ir/scale.h"
#include "fusion/ops/call_op.h"
#include "fusion/ops/convolution/convolution_call.h"
#include "fusion/ops/convolution/convolution_cost.h"
#include "fusion/ops/convolution/packed_layout.h"

namespace retrograd {
namespace {

constexpr int64_t kTile = 128;  // rows and columns of the result that a block makes

// Channels last beside an operand whose channels are last: a library transposes what is mixed.
std::vector<int64_t> BesideOther(absl::Span<const int64_t> shape,
                                 absl::Span<const int64_t> other_shape,
                                 absl::Span<const int64_t> other_strides) {
  if (IsRowMajor(other_shape, other_strides) || !IsPacked(other_shape, other_strides)) return {};
  return ChannelsLastStrides(shape);
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
          .price = PriceConvolution,
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
