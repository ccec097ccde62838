// A text that two regions share exactly if they are planned alike: the layers of a model.
#ifndef RETROGRAD_FUSION_REGION_SIGNATURE_H_
#define RETROGRAD_FUSION_REGION_SIGNATURE_H_

#include <string>

#include "fusion/kernel/layout.h"
#include "fusion/regions.h"

namespace retrograd {

// Ops by position, operands by position or by order of first mention, types, layouts, attributes,
// and which results leave the region.
std::string RegionSignature(const BackwardGraph& graph, absl::Span<const Layout> layouts,
                            const Consumers& consumers, const Region& region);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_REGION_SIGNATURE_H_
