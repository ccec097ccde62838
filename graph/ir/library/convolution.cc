#include "graph/ir/library/convolution.h"

#include <limits>

#include "absl/strings/str_cat.h"
#include "graph/base/status.h"
#include "graph/ir/library/library_rows.h"
#include "graph/ir/library/refusals.h"
#include "graph/ir/shape_rules.h"

namespace retrograd {
namespace {

using Operands = LibraryOp::Operands;

constexpr AttrRule kForwardAttrs[] = {{"dilation", AttrKind::kInts},
                                      {"dtype", AttrKind::kDType, false},
                                      {"groups", AttrKind::kInt},
                                      {"padding", AttrKind::kInts},
                                      {"stride", AttrKind::kInts}};
constexpr AttrRule kInputGradientAttrs[] = {
    {"dilation", AttrKind::kInts}, {"dtype", AttrKind::kDType, false},
    {"groups", AttrKind::kInt},    {"input_shape", AttrKind::kInts},
    {"padding", AttrKind::kInts},  {"stride", AttrKind::kInts}};
constexpr AttrRule kWeightGradientAttrs[] = {
    {"dilation", AttrKind::kInts}, {"dtype", AttrKind::kDType, false},
    {"groups", AttrKind::kInt},    {"padding", AttrKind::kInts},
    {"stride", AttrKind::kInts},   {"weight_shape", AttrKind::kInts}};

// Strides, paddings, dilations and kernel extents lie below it, so that their products fit.
constexpr int64_t kMost = std::numeric_limits<int32_t>::max();

absl::Status Misfit(absl::string_view rule) {
  return Malformed(Malformation::kConvolutionShape, rule);
}

Shape Joined(int64_t first, int64_t second, absl::Span<const int64_t> rest) {
  Shape shape = {first, second};
  shape.insert(shape.end(), rest.begin(), rest.end());
  return shape;
}

absl::StatusOr<std::vector<int64_t>> SpatialAttr(const Attrs& attrs, absl::string_view name,
                                                 size_t dims, int64_t least) {
  const absl::Span<const int64_t> list = attrs.Ints(name);
  if (list.size() != dims) {
    return Malformed(Malformation::kAttrRange,
                     absl::StrCat("attribute ", name, " is ", PrintInts(list), "; ", dims,
                                  " spatial dims need ", dims, " numbers"));
  }
  for (int64_t number : list) {
    if (number >= least && number <= kMost) continue;
    return Malformed(Malformation::kAttrRange,
                     absl::StrCat("attribute ", name, " is ", PrintInts(list),
                                  "; its numbers lie between ", least, " and 2^31 - 1"));
  }
  return std::vector<int64_t>(list.begin(), list.end());
}

absl::Status CheckRanks(absl::Span<const int64_t> x, absl::Span<const int64_t> w) {
  if (x.size() < 3 || x.size() > 5 || w.size() != x.size()) {
    return Misfit(absl::StrCat(
        "the input ", PrintInts(x), " and the weight ", PrintInts(w),
        " need one rank of 3 to 5: [N,C,spatial..] and [K,C/groups,spatial..] of 1 to 3 "
        "spatial dims"));
  }
  return absl::OkStatus();
}

absl::Status CheckChannels(const ConvolutionGeometry& g, absl::Span<const int64_t> w) {
  if (g.groups < 1) {
    return Malformed(Malformation::kAttrRange,
                     absl::StrCat("attribute groups is ", g.groups, "; it has to be at least 1"));
  }
  if (g.in_channels % g.groups != 0 || g.out_channels % g.groups != 0) {
    return Misfit(absl::StrCat(g.in_channels, " input channels and ", g.out_channels,
                               " output channels are no multiples of ", g.groups, " groups"));
  }
  if (w[1] != g.in_channels / g.groups) {
    return Misfit(absl::StrCat("the weight ", PrintInts(w), " takes ", w[1], " channels a group; ",
                               g.in_channels, " channels in ", g.groups, " groups are ",
                               g.in_channels / g.groups));
  }
  return absl::OkStatus();
}

// What a convolution makes of the extent `in`, or why it cannot.
absl::StatusOr<int64_t> OutExtent(int64_t in, int64_t kernel, int64_t stride, int64_t padding,
                                  int64_t dilation) {
  if (kernel < 1 || kernel > kMost) {
    return Misfit(absl::StrCat("a kernel extent is ", kernel, "; it lies between 1 and 2^31 - 1"));
  }
  const int64_t window = dilation * (kernel - 1) + 1, padded = in + 2 * padding;
  if (window > padded) {
    return Misfit(absl::StrCat("a window of ", window, " (kernel ", kernel, ", dilation ", dilation,
                               ") does not fit into an extent of ", padded, " (", in,
                               ", padded by ", padding, " on both sides)"));
  }
  return (padded - window) / stride + 1;
}

absl::StatusOr<ConvolutionGeometry> GeometryOfShapes(absl::Span<const int64_t> x,
                                                     absl::Span<const int64_t> w,
                                                     const Attrs& attrs) {
  RG_RETURN_IF_ERROR(CheckRanks(x, w));
  ConvolutionGeometry g{
      .batch = x[0], .in_channels = x[1], .out_channels = w[0], .groups = attrs.Int("groups")};
  RG_RETURN_IF_ERROR(CheckChannels(g, w));
  const size_t dims = x.size() - 2;
  g.in.assign(x.begin() + 2, x.end());
  g.kernel.assign(w.begin() + 2, w.end());
  RG_ASSIGN_OR_RETURN(g.stride, SpatialAttr(attrs, "stride", dims, 1));
  RG_ASSIGN_OR_RETURN(g.padding, SpatialAttr(attrs, "padding", dims, 0));
  RG_ASSIGN_OR_RETURN(g.dilation, SpatialAttr(attrs, "dilation", dims, 1));
  for (size_t d = 0; d < dims; ++d) {
    RG_ASSIGN_OR_RETURN(const int64_t extent,
                        OutExtent(g.in[d], g.kernel[d], g.stride[d], g.padding[d], g.dilation[d]));
    g.out.push_back(extent);
  }
  RG_RETURN_IF_ERROR(CheckShape(g.YShape()));
  return g;
}

absl::StatusOr<std::vector<TensorType>> InferOf(Op op, Operands operands, const Attrs& attrs,
                                                Shape (ConvolutionGeometry::*shape)() const) {
  RG_ASSIGN_OR_RETURN(const ConvolutionGeometry g, ConvolutionGeometryOf(op, operands, attrs));
  RG_ASSIGN_OR_RETURN(const DType dtype, ResultDType(attrs, operands[0]->dtype));
  return std::vector<TensorType>{{dtype, (g.*shape)()}};
}

absl::StatusOr<std::vector<TensorType>> InferForward(Operands operands, const Attrs& attrs) {
  return InferOf(Op::convolution, operands, attrs, &ConvolutionGeometry::YShape);
}
absl::StatusOr<std::vector<TensorType>> InferInputGradient(Operands operands, const Attrs& attrs) {
  return InferOf(Op::convolution_input_gradient, operands, attrs, &ConvolutionGeometry::XShape);
}
absl::StatusOr<std::vector<TensorType>> InferWeightGradient(Operands operands, const Attrs& attrs) {
  return InferOf(Op::convolution_weight_gradient, operands, attrs, &ConvolutionGeometry::WShape);
}

// The two tensors that have a batch share it; attributes hold what the other extents hang on.
LibraryDims BatchOf(Operands tensors, int one, int other) {
  LibraryDims dims;
  dims.equal.push_back({{one, 0}, {other, 0}});
  for (int t = 0; t < static_cast<int>(tensors.size()); ++t) {
    for (int d = t == one || t == other ? 1 : 0; d < tensors[t]->rank(); ++d) {
      dims.fixed.push_back({t, d});
    }
  }
  return dims;
}

LibraryDims BatchOfResult(Operands tensors, int) { return BatchOf(tensors, 0, 2); }
LibraryDims BatchOfOperands(Operands tensors, int) { return BatchOf(tensors, 0, 1); }

}  // namespace

Shape ConvolutionGeometry::XShape() const { return Joined(batch, in_channels, in); }
Shape ConvolutionGeometry::WShape() const {
  return Joined(out_channels, in_channels / groups, kernel);
}
Shape ConvolutionGeometry::YShape() const { return Joined(batch, out_channels, out); }

absl::StatusOr<ConvolutionGeometry> ConvolutionGeometryOf(Op op, Operands operands,
                                                          const Attrs& attrs) {
  const bool input_gradient = op == Op::convolution_input_gradient;
  const bool weight_gradient = op == Op::convolution_weight_gradient;
  RG_CHECK(op == Op::convolution || input_gradient || weight_gradient);
  if (!SameDType(operands) || !IsFloat(operands[0]->dtype) || IsFp8(operands[0]->dtype)) {
    return BadOperands(Malformation::kOperandDType, operands,
                       "a convolution takes two of one floating dtype");
  }
  const Shape& first = operands[0]->shape;
  const Shape& second = operands[1]->shape;
  const absl::Span<const int64_t> x = input_gradient    ? attrs.Ints("input_shape")
                                      : weight_gradient ? absl::MakeConstSpan(second)
                                                        : absl::MakeConstSpan(first);
  const absl::Span<const int64_t> w =
      weight_gradient ? attrs.Ints("weight_shape") : absl::MakeConstSpan(second);
  RG_RETURN_IF_ERROR(CheckShape(x));
  RG_RETURN_IF_ERROR(CheckShape(w));
  RG_ASSIGN_OR_RETURN(ConvolutionGeometry g, GeometryOfShapes(x, w, attrs));
  if ((input_gradient || weight_gradient) && first != g.YShape()) {
    return Misfit(absl::StrCat("the output's gradient is ", operands[0]->Print(), "; the input ",
                               PrintInts(x), ", the weight ", PrintInts(w),
                               " and the attributes give ", PrintInts(g.YShape())));
  }
  return g;
}

const LibraryOp kConvolutionOp = {.op = Op::convolution,
                                  .attrs = kForwardAttrs,
                                  .infer = InferForward,
                                  .dims = BatchOfResult,
                                  .zero_of_empty = true};
const LibraryOp kConvolutionInputGradientOp = {.op = Op::convolution_input_gradient,
                                               .attrs = kInputGradientAttrs,
                                               .infer = InferInputGradient,
                                               .dims = BatchOfResult,
                                               .zero_of_empty = true,
                                               .result_shape_attr = "input_shape"};
const LibraryOp kConvolutionWeightGradientOp = {.op = Op::convolution_weight_gradient,
                                                .attrs = kWeightGradientAttrs,
                                                .infer = InferWeightGradient,
                                                .dims = BatchOfOperands,
                                                .zero_of_empty = true,
                                                .result_shape_attr = "weight_shape"};

}  // namespace retrograd
