// Tensors that hold nothing but zeros.
#ifndef RETROGRAD_FUSION_LOWER_INDEXED_ZEROS_H_
#define RETROGRAD_FUSION_LOWER_INDEXED_ZEROS_H_

#include "graph/ir/backward_graph.h"

namespace retrograd {

// Whether the value is a constant of zeros, or a view of one that adds no other elements.
bool IsZero(const BackwardGraph& graph, ValueId value);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_LOWER_INDEXED_ZEROS_H_
