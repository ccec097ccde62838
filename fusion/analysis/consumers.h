// Who reads each op's results, looking through views; found once a graph.
#ifndef RETROGRAD_FUSION_ANALYSIS_CONSUMERS_H_
#define RETROGRAD_FUSION_ANALYSIS_CONSUMERS_H_

#include <vector>

#include "graph/ir/backward_graph.h"

namespace retrograd {

class Consumers {
 public:
  explicit Consumers(const BackwardGraph& graph);

  // Ops that compute, ascending, once each.
  absl::Span<const NodeId> of(NodeId id) const {
    return absl::MakeSpan(users_).subspan(first_[Index(id)],
                                          first_[Index(id) + 1] - first_[Index(id)]);
  }
  bool is_output(NodeId id) const { return output_[Index(id)]; }

  // Results of the ops (ascending) that the host or something outside the set reads. What is
  // computed here `unstored` (ascending) is computed again by whoever reads it outside; `kept`
  // (ascending) is stored in any case.
  std::vector<ValueId> Stores(absl::Span<const NodeId> ops, absl::Span<const NodeId> unstored = {},
                              absl::Span<const NodeId> kept = {}) const;

 private:
  std::vector<NodeId> users_;    // of all ops
  std::vector<uint32_t> first_;  // by node, one more at the end
  std::vector<bool> output_;
};

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_ANALYSIS_CONSUMERS_H_
