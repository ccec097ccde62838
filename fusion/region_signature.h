// Texts that two regions share exactly if they are planned alike (the layers of a model), and two
// kernels if they cost the same.
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

// The same of a kernel that computes `ops` and stores `stores` (both ascending), with which of them
// the host waits for.
std::string KernelSignature(const BackwardGraph& graph, absl::Span<const Layout> layouts,
                            const Consumers& consumers, absl::Span<const NodeId> ops,
                            absl::Span<const ValueId> stores);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_REGION_SIGNATURE_H_
