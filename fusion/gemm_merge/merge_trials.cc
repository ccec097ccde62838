#include "fusion/gemm_merge/merge_trials.h"

#include <algorithm>
#include <limits>

#include "graph/base/status.h"

namespace retrograd {
namespace {

// Nodes of all graphs that are planned to try kinds one by one. Beyond it all kinds are tried at
// once, so that planning stays linear in the size of the graph.
constexpr int64_t kMostNodes = 100'000;

constexpr int64_t kNeverEnough = std::numeric_limits<int64_t>::max();

}  // namespace

absl::StatusOr<TriedMerges> TryMerges(const LegalGraph& lowered, const DeviceSpec& device,
                                      const MergeOptions& options, PricePlan price) {
  TriedMerges result;
  const MatMulMerger merger(lowered, device, options);
  const auto kinds = static_cast<size_t>(merger.kinds());
  RG_ASSIGN_OR_RETURN(result.merged, merger.Merge());
  if (kinds == 0) return result;
  std::vector<MergeVerdict> verdicts(kinds);
  RG_ASSIGN_OR_RETURN(const PlanPrice all, price(result.merged, kNeverEnough));
  int64_t best_ps = all.ps;
  const bool one_by_one =
      kinds > 1 &&
      static_cast<int64_t>(kinds) * static_cast<int64_t>(lowered.graph.num_nodes()) <= kMostNodes;
  for (size_t k = 0; k < kinds && one_by_one; ++k) {
    std::vector<MergeVerdict> without = verdicts;
    without[k].keep = false;
    RG_ASSIGN_OR_RETURN(const MergedMatMuls other, merger.Merge(without));
    RG_ASSIGN_OR_RETURN(const PlanPrice apart, price(other, best_ps));
    verdicts[k] = {.keep = best_ps < apart.ps,
                   .with_ps = best_ps,
                   .without_ps = apart.ps,
                   .at_least = !apart.exact};
    best_ps = std::min(best_ps, apart.ps);
  }
  RG_ASSIGN_OR_RETURN(const PlanPrice none, price(lowered, best_ps));
  const bool loses = none.ps <= best_ps;
  for (MergeVerdict& verdict : verdicts) {
    if (!verdict.keep || (one_by_one && !loses)) continue;
    verdict = {.keep = !loses, .with_ps = best_ps, .without_ps = none.ps, .at_least = !none.exact};
  }
  result.all = std::all_of(verdicts.begin(), verdicts.end(), [](const auto& v) { return v.keep; });
  if (result.all) {
    result.merged.decisions = merger.Decisions(result.merged, verdicts);
    return result;
  }
  RG_ASSIGN_OR_RETURN(result.merged, merger.Merge(verdicts));
  return result;
}

}  // namespace retrograd
