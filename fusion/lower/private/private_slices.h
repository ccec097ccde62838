// Columns of a tensor, or other slices, may have readers all over a graph. Where the tensor costs
// no more to make than to read (fusion/analysis/cheap_sources.h) and nothing but slices of it is
// read, each slice is made by itself, from slices of what the tensor is made of: it is never
// stored, and its readers need share no kernel.
#ifndef RETROGRAD_FUSION_LOWER_PRIVATE_PRIVATE_SLICES_H_
#define RETROGRAD_FUSION_LOWER_PRIVATE_PRIVATE_SLICES_H_

#include "absl/status/statusor.h"
#include "fusion/analysis/free_reads.h"
#include "graph/ir/backward_graph.h"

namespace retrograd {

absl::StatusOr<BackwardGraph> PrivateSlices(const BackwardGraph& graph, const FreeReads& free);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_LOWER_PRIVATE_PRIVATE_SLICES_H_
