// The result of sort_indices: where each part of it begins.
#ifndef RETROGRAD_GRAPH_IR_SORTED_INDICES_H_
#define RETROGRAD_GRAPH_IR_SORTED_INDICES_H_

#include <cstdint>

#include "absl/status/status.h"
#include "graph/ir/backward_graph.h"

namespace retrograd {

// int32[2 ceil((1 + rows) / 2) + 2 indices]. Positions are those of sorted indices.
struct SortedIndices {
  int64_t rows = 0, indices = 0;

  // Of each row: its first position; then the first of an index that names none; then, where that
  // is an odd number of words, the number of indices.
  int64_t starts() const { return 0; }
  // By position two words: the row, or `rows` for none, and where the index stood.
  int64_t pairs() const { return (rows + 2) / 2 * 2; }
  int64_t key(int64_t position) const { return pairs() + 2 * position; }
  int64_t order(int64_t position) const { return key(position) + 1; }
  int64_t elements() const { return pairs() + 2 * indices; }
};

// Refuses a segment_add whose second operand is not made by a sort_indices over as many rows as its
// base has, so that every sorted index is one. `maker`: the node of that operand.
absl::Status CheckSorted(const Attrs& attrs, const TensorType& base, const Node& maker);

}  // namespace retrograd

#endif  // RETROGRAD_GRAPH_IR_SORTED_INDICES_H_
