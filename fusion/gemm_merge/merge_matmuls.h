// GEMM merges: matmuls that share an operand become one. Fewer, larger matmuls fill the chip and
// read the shared operand once. Two patterns, both from a layer whose input feeds several
// projections (q, k and v):
//
//   shared operand   a_i · x       ->  slices of cat(a_i) · x    the gradients of the weights
//   sum              Σ a_i · b_i   ->  cat(a_i) · cat(b_i)       the gradient of the input
//
// Where the a_i of both are the same, both read one cat. It costs nothing if its parts are stored
// side by side (fusion/lower/concat_in_place.h). This step stands after lowering, because sums must
// have their order, and before layouts, which it influences. A merged sum is rounded once where the
// graph rounds each matmul's result: less often, never more.
#ifndef RETROGRAD_FUSION_GEMM_MERGE_MERGE_MATMULS_H_
#define RETROGRAD_FUSION_GEMM_MERGE_MERGE_MATMULS_H_

#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "fusion/device/device_spec.h"
#include "fusion/lower/legalize.h"
#include "fusion/plan/plan.h"

namespace retrograd {

struct MergedMatMuls : LegalGraph {
  // One for each candidate, in ops of `graph`: the merged matmul, or the matmuls that stay
  // separate. Costs are those of the whole plans if plans decided, else those of the matmuls and of
  // the copies around them.
  std::vector<Decision> decisions;
  std::vector<NodeId> matmul_of;  // by op of the graph before: the matmul that computes it now
  std::vector<bool> done;         // by candidate
};

struct MergeOptions {
  bool place = true;        // cats may be made by storing their parts side by side
  bool regardless = false;  // merge whatever can be merged, at any price (for tests)
  LayoutOptions layouts;    // of the graph, and of the merged one
};

// The verdict on one kind of candidates. Equal candidates of equal layers are one kind: all merge
// or none.
struct MergeVerdict {
  bool keep = true;
  // Of the whole plan, with the kind merged and with it apart; 0: not planned.
  int64_t with_ps = 0, without_ps = 0;
  bool at_least = false;  // without_ps is a lower bound
};

class MatMulMerger {
 public:
  // The graph, which is lowered and whose values lie by options.layouts, and the device must
  // outlive it.
  MatMulMerger(const LegalGraph& graph, const DeviceSpec& device, const MergeOptions& options = {});
  ~MatMulMerger();

  // Kinds of candidates that win by the prices of the matmuls and of what must be copied around
  // them, in the order of the ops.
  int kinds() const;

  // The graph, lowered, with the kinds that are kept; a verdict for each kind, or none: all kept.
  absl::StatusOr<MergedMatMuls> Merge(absl::Span<const MergeVerdict> verdicts = {}) const;
  // The same with those of the candidates that are given (MergedMatMuls::done of another size of
  // the graph) and win here as well; no value where that one had other candidates.
  absl::StatusOr<std::optional<MergedMatMuls>> MergeAs(const std::vector<bool>& done) const;
  // The decisions about a graph that was merged so, with what the verdicts say.
  std::vector<Decision> Decisions(const MergedMatMuls& merged,
                                  absl::Span<const MergeVerdict> verdicts) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// All kinds.
absl::StatusOr<MergedMatMuls> MergeMatMuls(const LegalGraph& graph, const DeviceSpec& device,
                                           const MergeOptions& options = {});

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_GEMM_MERGE_MERGE_MATMULS_H_
