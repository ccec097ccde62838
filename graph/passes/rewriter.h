// What passes over a graph share: a builder for the new graph and, per value of the old one, the
// value of the new one that stands for it.
#ifndef RETROGRAD_GRAPH_PASSES_REWRITER_H_
#define RETROGRAD_GRAPH_PASSES_REWRITER_H_

#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "graph/ir/backward_graph.h"

namespace retrograd {

class Rewriter {
 public:
  // Takes over name, numerics and the whole table of origins.
  explicit Rewriter(const BackwardGraph& graph);

  GraphBuilder& builder() { return builder_; }
  const BackwardGraph& graph() const { return graph_; }

  // What stands for an old value. It must have been set.
  ValueId New(ValueId old) const;
  bool IsSet(ValueId old) const { return new_[graph_.value_index(old)].has_value(); }
  void Set(ValueId old, ValueId value) { new_[graph_.value_index(old)] = value; }
  std::vector<ValueId> NewOperands(NodeId id) const;

  // Nodes added from here on have the origin of this old node.
  void UseOrigin(NodeId id) { builder_.SetOriginIndex(graph_.node(id).origin); }

  // Adds the node as it is, over the new operands, and sets its results. Over operands of the old
  // types the two graphs share the node.
  void Copy(NodeId id);
  // The same over other operands.
  void CopyOver(NodeId id, absl::Span<const ValueId> operands);

  // Outputs as before, then the new graph.
  absl::StatusOr<BackwardGraph> Finish();

 private:
  bool TypesAreOld(NodeId id, absl::Span<const ValueId> operands) const;
  NodeId AddAnew(NodeId id, absl::Span<const ValueId> operands);

  const BackwardGraph& graph_;
  GraphBuilder builder_;
  std::vector<std::optional<ValueId>> new_;  // by value index
  std::vector<ValueId> operands_;            // scratch of Copy
};

}  // namespace retrograd

#endif  // RETROGRAD_GRAPH_PASSES_REWRITER_H_
