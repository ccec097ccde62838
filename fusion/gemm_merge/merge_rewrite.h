// Replaces sets of matmuls by one each.
#ifndef RETROGRAD_FUSION_GEMM_MERGE_MERGE_REWRITE_H_
#define RETROGRAD_FUSION_GEMM_MERGE_MERGE_REWRITE_H_

#include <vector>

#include "absl/status/statusor.h"
#include "fusion/gemm_merge/merge_candidates.h"

namespace retrograd {

struct MergeRewrite {
  BackwardGraph graph;
  std::vector<bool> done;         // by candidate: false where merging would make a cycle
  std::vector<NodeId> matmul_of;  // by old matmul: the new one that computes it
};

// Candidates that `chosen` marks are merged; nodes keep their order but for what must move. `kind`
// numbers equal candidates alike: where many make cycles, their like is left apart as well.
absl::StatusOr<MergeRewrite> RewriteMerged(const BackwardGraph& graph,
                                           const std::vector<MergeCandidate>& candidates,
                                           std::vector<bool> chosen, const std::vector<int>& kind);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_GEMM_MERGE_MERGE_REWRITE_H_
