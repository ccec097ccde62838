#include "fusion/lower/image_chains.h"

#include <algorithm>
#include <numeric>

namespace retrograd {

std::optional<ConvolutionValues> ConvolutionValuesOf(const BackwardGraph& g, NodeId id) {
  const ValueId result{id, 0};
  switch (g.op(id)) {
    case Op::convolution: return ConvolutionValues{g.operands(id)[0], result, g.operands(id)[1]};
    case Op::convolution_input_gradient:
      return ConvolutionValues{g.operands(id)[0], result, g.operands(id)[1]};
    case Op::convolution_weight_gradient:
      return ConvolutionValues{g.operands(id)[0], g.operands(id)[1], result};
    default: return std::nullopt;
  }
}

bool HasImageOrder(const Shape& shape) {
  return shape.size() > 2 && shape[1] > 1 &&
         std::any_of(shape.begin() + 2, shape.end(), [](int64_t extent) { return extent > 1; });
}

bool HandsImagesOn(const BackwardGraph& g, NodeId id) {
  const Pattern pattern = g.pattern(id);
  const bool elementwise = pattern == Pattern::kPointwise || pattern == Pattern::kAccumulate;
  const bool moves = g.op(id) == Op::slice || g.op(id) == Op::pad || g.op(id) == Op::cat;
  return elementwise || moves;
}

ImageChains::ImageChains(const BackwardGraph& graph) : g_(graph), parent_(graph.num_values()) {
  std::iota(parent_.begin(), parent_.end(), size_t{0});
  for (uint32_t i = 0; i < g_.num_nodes(); ++i) LinkNode(NodeId{i});
  for (size_t& parent : parent_) {
    while (parent_[parent] != parent) parent = parent_[parent];
  }
}

size_t ImageChains::Of(ValueId value) const { return parent_[g_.value_index(value)]; }

void ImageChains::Link(ValueId a, ValueId b) {
  const auto root = [&](ValueId v) {
    size_t at = g_.value_index(v);
    while (parent_[at] != at) at = parent_[at] = parent_[parent_[at]];
    return at;
  };
  const size_t first = root(a), second = root(b);
  parent_[std::max(first, second)] = std::min(first, second);
}

void ImageChains::LinkNode(NodeId id) {
  if (const auto of = ConvolutionValuesOf(g_, id)) return Link(of->image, of->other_image);
  if (!HandsImagesOn(g_, id)) return;
  const ValueId result{id, 0};
  for (const ValueId operand : g_.operands(id)) {
    const bool both = HasImageOrder(g_.type(operand).shape) && HasImageOrder(g_.type(id).shape);
    if (both && g_.type(operand).rank() == g_.type(id).rank()) Link(operand, result);
  }
}

}  // namespace retrograd
