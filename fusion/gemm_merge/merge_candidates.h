// Sets of matmuls that one could replace: what merge_matmuls.h chooses from.
#ifndef RETROGRAD_FUSION_GEMM_MERGE_MERGE_CANDIDATES_H_
#define RETROGRAD_FUSION_GEMM_MERGE_MERGE_CANDIDATES_H_

#include <optional>
#include <vector>

#include "fusion/analysis/consumers.h"
#include "graph/ir/backward_graph.h"

namespace retrograd {

// Values to be joined along an axis; `transposed` if the matmul reads the join with rows and
// columns exchanged.
struct Join {
  std::vector<ValueId> parts;
  int64_t axis = 0;
  bool transposed = false;
  friend bool operator==(const Join&, const Join&) = default;
};

struct MergeCandidate {
  enum Kind : uint8_t { kProducts, kSum };
  Kind kind = kProducts;
  std::vector<NodeId> matmuls;  // in the order of their parts
  Join left;                    // kProducts: of the operands that are not shared, left or right
  Join right;                   // kSum alone
  int shared = 1;               // kProducts: the number of the operand that all read
  // kSum: the accumulate steps that add the products, first to last, and what the first of them
  // adds to if that is no product; `cast`: products are widened before they are added.
  std::vector<NodeId> steps;
  std::optional<ValueId> before;
  bool cast = false;
  NodeId last{};  // the old op in whose place the merged matmul stands
};

// In the order of `last`; no matmul is in two.
std::vector<MergeCandidate> FindMergeCandidates(const BackwardGraph& graph,
                                                const Consumers& consumers);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_GEMM_MERGE_MERGE_CANDIDATES_H_
