// Chains of images: what convolutions, and ops between them that keep the order of an image's
// elements, hand on to one another. One order in memory for all of a chain, row-major or channels
// last, is one that no kernel between two convolutions has to change.
#ifndef RETROGRAD_FUSION_LOWER_IMAGE_CHAINS_H_
#define RETROGRAD_FUSION_LOWER_IMAGE_CHAINS_H_

#include <cstddef>
#include <optional>
#include <vector>

#include "graph/ir/backward_graph.h"

namespace retrograd {

// Of a convolution or one of its gradients: the images, [N,C,spatial..], and the filters,
// [K,C/groups,spatial..]. Two of the three are operands, one is the result.
struct ConvolutionValues {
  ValueId image, other_image, filters;
};
// nullopt of any other op.
std::optional<ConvolutionValues> ConvolutionValuesOf(const BackwardGraph& graph, NodeId id);

// Whether the order of a tensor's elements differs between row-major and channels last: [N,C,
// spatial..] of several channels and several pixels.
bool HasImageOrder(const Shape& shape);

// Which values belong together: images of one convolution, and those of elementwise ops, slices,
// pads and joins. Views of any other kind end a chain.
class ImageChains {
 public:
  explicit ImageChains(const BackwardGraph& graph);

  // The same number for all values of a chain.
  size_t Of(ValueId value) const;

 private:
  void Link(ValueId a, ValueId b);
  void LinkNode(NodeId id);

  const BackwardGraph& g_;
  std::vector<size_t> parent_;  // by value_index
};

// Whether the op reads an image and gives another in the order of its elements.
bool HandsImagesOn(const BackwardGraph& graph, NodeId id);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_LOWER_IMAGE_CHAINS_H_
