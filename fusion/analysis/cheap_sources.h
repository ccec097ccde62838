// Values that cost no more to make again than to read.
#ifndef RETROGRAD_FUSION_ANALYSIS_CHEAP_SOURCES_H_
#define RETROGRAD_FUSION_ANALYSIS_CHEAP_SOURCES_H_

#include <optional>
#include <vector>

#include "fusion/analysis/free_reads.h"
#include "graph/ir/backward_graph.h"

namespace retrograd {

// Whether the node casts a large value to a type of more bytes.
bool IsWideningCast(const BackwardGraph& graph, NodeId id, const FreeReads& free = {});

// By node: the one large value that a large pointwise op is made of, by itself or through others
// such that are made of it, if reading it moves no more bytes than reading the result. It lies in
// memory anyway (an input, what a library call made), or is narrower than the result. At most
// free.remade_ops ops lead from it to the result, casts not counted; one that is dearer than a
// division may be among them if all of them take less time than memory takes for the result.
std::vector<std::optional<ValueId>> Sources(const BackwardGraph& graph, const FreeReads& free);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_ANALYSIS_CHEAP_SOURCES_H_
