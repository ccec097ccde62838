// Matmuls that share an operand become one: fewer, larger matmuls fill the chip and read the shared
// operand once. Two patterns, both from a layer whose input feeds several projections (q, k and v):
//
//   products   a_i · x         ->  slices of  cat(a_i) · x     their weight gradients
//   sums       Σ a_i · b_i     ->  cat(a_i) · cat(b_i)         the gradient of their input
//
// where the a_i are the same in both, they share one cat, which costs nothing if its parts are
// stored side by side (placed_joins.h). Stands behind lowering, because sums must have their order,
// and before layouts, which it decides about. A sum of products that was rounded product by product
// is rounded less often afterwards, never more.
#ifndef RETROGRAD_FUSION_GEMM_MERGE_MERGE_MATMULS_H_
#define RETROGRAD_FUSION_GEMM_MERGE_MERGE_MATMULS_H_

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "fusion/device/device_spec.h"
#include "fusion/plan/plan.h"

namespace retrograd {

struct MergedMatMuls {
  BackwardGraph graph;
  // One for each candidate, of ops of `graph`: together, the matmul that they became; apart, the
  // matmuls that they stayed. Costs are of the matmuls and what merging adds around them, unless
  // whole plans decided: then they are of the plans.
  std::vector<Decision> decisions;
  std::vector<NodeId> matmul_of;  // by op of the graph before: the matmul that computes it now
  std::vector<bool> done;         // by candidate
};

struct MergeOptions {
  bool place = true;        // cats may be made by storing their parts side by side
  bool regardless = false;  // merge whatever can be merged, at any price (for tests)
};

// What is known of the candidates of one kind: equal ones, of equal layers, which merge or stay
// apart together.
struct MergeVerdict {
  bool keep = true;
  // Of the whole plan, with the kind merged and with it apart; 0: not planned.
  int64_t with_ps = 0, without_ps = 0;
  bool at_least = false;  // without_ps is a lower bound
};

class MatMulMerger {
 public:
  // The graph, which is lowered, and the device must outlive it.
  MatMulMerger(const BackwardGraph& graph, const DeviceSpec& device,
               const MergeOptions& options = {});
  ~MatMulMerger();

  // Kinds of candidates that win by the prices of the matmuls and of what must be copied around
  // them, in the order of the ops.
  int kinds() const;

  // The graph, lowered, with the kinds that are kept; a verdict for each kind, or none: all kept.
  absl::StatusOr<MergedMatMuls> Merge(absl::Span<const MergeVerdict> verdicts = {}) const;
  // The decisions about a graph that was merged so, with what the verdicts say.
  std::vector<Decision> Decisions(const MergedMatMuls& merged,
                                  absl::Span<const MergeVerdict> verdicts) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// All kinds.
absl::StatusOr<MergedMatMuls> MergeMatMuls(const BackwardGraph& graph, const DeviceSpec& device,
                                           const MergeOptions& options = {});

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_GEMM_MERGE_MERGE_MATMULS_H_
