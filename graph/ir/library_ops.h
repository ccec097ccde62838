// The ops that stay whole for a library call, one row an op. What the graph has to know of such an
// op is in its row, which stands in the op's own file in graph/ir/library/; its reference is a row
// of graph/reference/library_references.def.
#ifndef RETROGRAD_GRAPH_IR_LIBRARY_OPS_H_
#define RETROGRAD_GRAPH_IR_LIBRARY_OPS_H_

#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "graph/ir/attribute_rules.h"
#include "graph/ir/backward_graph.h"

namespace retrograd {

// A dim of one of a node's tensors: the operands are counted first, then the results.
struct TensorDim {
  int tensor = 0;
  int dim = 0;
};

// How the extents of a node's tensors hang together: dims that have one extent by definition, and
// dims that an attribute has a say in, so that their extents do not change alone.
struct LibraryDims {
  std::vector<std::pair<TensorDim, TensorDim>> equal;
  std::vector<TensorDim> fixed;
};

struct LibraryOp {
  using Operands = absl::Span<const TensorType* const>;

  Op op;
  absl::Span<const AttrRule> attrs;
  // Called with as many operands as the op takes and with attributes of the right types.
  absl::StatusOr<std::vector<TensorType>> (*infer)(Operands operands, const Attrs& attrs);
  // Of a legal node; `tensors` are so many operands, then the results.
  LibraryDims (*dims)(Operands tensors, int operands);
  // Whether an operand without elements makes the result zeros.
  bool zero_of_empty = false;
  // The attribute that repeats the shape of the result; empty: none does.
  absl::string_view result_shape_attr = "";
};

// The row of an op whose pattern is kLibrary.
const LibraryOp& LibraryOpOf(Op op);

}  // namespace retrograd

#endif  // RETROGRAD_GRAPH_IR_LIBRARY_OPS_H_
