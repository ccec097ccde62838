// Concats in place: a `cat` without a copy. The kernels that make its parts store them side by
// side, as slices of the bytes of the whole. This step stands after layouts, which it changes for
// the parts alone, and before anything is priced.
#ifndef RETROGRAD_FUSION_LOWER_CONCAT_IN_PLACE_H_
#define RETROGRAD_FUSION_LOWER_CONCAT_IN_PLACE_H_

#include <optional>
#include <vector>

#include "fusion/analysis/consumers.h"
#include "fusion/plan/plan.h"

namespace retrograd {

// Where the parts of a row-major whole of this shape would be stored, and their strides there;
// nullopt where one cannot be: it is not computed by an op that writes any strides, the host or
// another reader needs it elsewhere, or it would start off the alignment that kernels count on.
// `layouts` are changed while it looks, and back.
struct PlacedParts {
  std::vector<Alias::Part> parts;
  std::vector<Layout> layouts;
};
std::optional<PlacedParts> PlaceParts(const BackwardGraph& graph, const Consumers& consumers,
                                      std::vector<Layout>& layouts, absl::Span<const ValueId> parts,
                                      int64_t axis, absl::Span<const int64_t> whole_shape);

// The cats of the graph that are made in place, in the order of their ids. Changes the layouts of
// their parts. A cat is a candidate if only library calls read it or if library calls make all of
// its parts: a kernel for such a cat could only copy.
std::vector<Alias> PlaceConcats(const BackwardGraph& graph, const Consumers& consumers,
                                std::vector<Layout>& layouts);

// The group of a concat in place: no launch, no time.
Group AliasGroup(const Alias& join);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_LOWER_CONCAT_IN_PLACE_H_
