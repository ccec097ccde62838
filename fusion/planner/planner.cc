#include "fusion/planner/planner.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "fusion/gemm_merge/merge_trials.h"
#include "fusion/planner/memory_ceiling.h"
#include "fusion/planner/plan_graph.h"
#include "fusion/planner/planning_context.h"
#include "graph/base/status.h"

namespace retrograd {
namespace {

absl::Status CheckNames(const PlanOptions& options) {
  std::vector<absl::string_view> names;
  for (const Feature& f : kFeatures) names.push_back(f.name);
  for (const std::string& name : options.disable) {
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("nothing named '", name, "' to disable: ", absl::StrJoin(names, ", ")));
    }
  }
  return absl::OkStatus();
}

// A graph made ready to be planned, and what planning it both ways has found already.
struct Preparation {
  Prepared prepared;
  SolvedRegions solved;            // without a price of memory
  std::optional<FusionPlan> plan;  // of the prepared graph, if it was asked for and had to be made

  static absl::StatusOr<Preparation> Make(const BackwardGraph& graph, const DeviceSpec& device,
                                          const PlanOptions& options, bool with_plan);

 private:
  // The graph that is most likely the one.
  absl::StatusOr<int64_t> PlanFirst(const BackwardGraph& graph, const DeviceSpec& device,
                                    const PlanOptions& options, bool keep_plan);
  absl::StatusOr<PlanPrice> Price(const BackwardGraph& graph, const DeviceSpec& device,
                                  const PlanOptions& options, int64_t enough_ps);

  int64_t sharing_ps_ = 0;  // what sharing launches wins the first plan
};

// Kernels that share launches are priced too, but in graphs so large that this would take as long
// as all the rest.
constexpr size_t kMostNodesForSharing = 20'000;

// Sharing launches wins about as much in one version of a graph as in another. A plan that would
// need more than so many times as much to catch up is beaten.
constexpr int64_t kSharingWinsTimes = 3;

absl::StatusOr<int64_t> Preparation::PlanFirst(const BackwardGraph& graph, const DeviceSpec& device,
                                               const PlanOptions& options, bool keep_plan) {
  RG_ASSIGN_OR_RETURN(FusionPlan whole,
                      PlanOnce(graph, device, options, 0, GroupOrder::kProgram, solved));
  sharing_ps_ = whole.summary.merged_ps;
  const int64_t price_ps = whole.summary.price_ps;
  if (keep_plan) plan = std::move(whole);
  return graph.num_nodes() <= kMostNodesForSharing ? price_ps : price_ps + sharing_ps_;
}

absl::StatusOr<PlanPrice> Preparation::Price(const BackwardGraph& graph, const DeviceSpec& device,
                                             const PlanOptions& options, int64_t enough_ps) {
  std::optional<int64_t> shared_ps;
  if (graph.num_nodes() <= kMostNodesForSharing) shared_ps = kSharingWinsTimes * sharing_ps_;
  return PriceOnce(graph, device, options, enough_ps, shared_ps, solved);
}

absl::StatusOr<Preparation> Preparation::Make(const BackwardGraph& graph, const DeviceSpec& device,
                                              const PlanOptions& options, bool with_plan) {
  using Merging = PlanOptions::Merging;
  Preparation made;
  Prepared& prepared = made.prepared;
  RG_ASSIGN_OR_RETURN(prepared.graph, Lower(graph, LowerOptionsOf(options)));
  if (!Enabled(options, "merged_matmuls") || options.merging == Merging::kNever) return made;
  const bool random = options.search.random_seed != 0 || options.random_schedules != 0;
  if (options.merging == Merging::kAlways || random) {  // prices of random plans decide nothing
    const MergeOptions merge{.regardless = options.merging == Merging::kAlways};
    RG_ASSIGN_OR_RETURN(MergedMatMuls merged, MergeMatMuls(prepared.graph, device, merge));
    prepared = {std::move(merged.graph), std::move(merged.decisions)};
    return made;
  }
  PlanOptions free = options;  // as Prepare promises, and without what only the final plan tells
  free.pairs.clear();
  free.max_memory_bytes = 0;
  free.decisions = false;
  bool first = true;
  const auto price = [&](const BackwardGraph& tried,
                         int64_t enough_ps) -> absl::StatusOr<PlanPrice> {
    if (!std::exchange(first, false)) return made.Price(tried, device, free, enough_ps);
    RG_ASSIGN_OR_RETURN(const int64_t price_ps,
                        made.PlanFirst(tried, device, with_plan ? options : free, with_plan));
    return PlanPrice{.ps = price_ps};
  };
  RG_ASSIGN_OR_RETURN(TriedMerges tried, TryMerges(prepared.graph, device, price));
  if (!tried.all) made.plan.reset();
  prepared = {std::move(tried.merged.graph), std::move(tried.merged.decisions)};
  return made;
}

// A plan under options.max_memory_bytes, of the prepared graph.
absl::Status PlanBelowCeiling(const DeviceSpec& device, const PlanOptions& options,
                              Planned& planned) {
  RG_ASSIGN_OR_RETURN(const auto ground, Groundwork::Lay(planned.graph, device, options, 0));
  std::map<int64_t, SolvedRegions> solved;  // by the price of memory
  const auto plan = [&](const CeilingChoice& choice, bool decisions) {
    PlanOptions under = options;
    under.decisions = decisions;
    under.pairs.insert(under.pairs.end(), choice.parted.begin(), choice.parted.end());
    return PlanOnce(planned.graph, device, under, choice.memory_ps_per_mib, choice.order,
                    solved[choice.memory_ps_per_mib]);
  };
  RG_ASSIGN_OR_RETURN(
      const CeilingChoice choice,
      FindBelowCeiling(*ground, options.max_memory_bytes,
                       [&](const CeilingChoice& tried) { return plan(tried, false); }));
  RG_ASSIGN_OR_RETURN(planned.plan, plan(choice, options.decisions));
  planned.memory_ps_per_mib = choice.memory_ps_per_mib;
  planned.parted = choice.parted;
  if (!options.decisions) return absl::OkStatus();
  std::vector<Decision> parted = ExplainParted(planned.graph, choice, options.max_memory_bytes);
  planned.plan.decisions.insert(planned.plan.decisions.begin(), parted.begin(), parted.end());
  return absl::OkStatus();
}

// The prepared graph under a ceiling; the lowered one where matmuls that are one keep too much
// alive.
absl::Status PlanBelowCeiling(const BackwardGraph& graph, const DeviceSpec& device,
                              const PlanOptions& options, Preparation& preparation,
                              Planned& planned) {
  const absl::Status merged = PlanBelowCeiling(device, options, planned);
  const bool any =
      std::any_of(preparation.prepared.merges.begin(), preparation.prepared.merges.end(),
                  [](const Decision& d) { return d.together; });
  if (merged.ok() || !any || !options.pairs.empty()) return merged;
  PlanOptions apart = options;
  apart.merging = PlanOptions::Merging::kNever;
  RG_ASSIGN_OR_RETURN(planned.graph, Lower(graph, LowerOptionsOf(apart)));
  preparation.prepared.merges.clear();
  const absl::Status lowered = PlanBelowCeiling(device, apart, planned);
  return lowered.ok() ? lowered : merged;
}

}  // namespace

LowerOptions LowerOptionsOf(const PlanOptions& options) {
  return {.cast_pairs = Enabled(options, "cast_pairs"),
          .first_writer = Enabled(options, "first_writer"),
          .recompute = Enabled(options, "recompute")};
}

absl::StatusOr<Prepared> Prepare(const BackwardGraph& graph, const DeviceSpec& device,
                                 const PlanOptions& options) {
  RG_RETURN_IF_ERROR(CheckNames(options));
  RG_ASSIGN_OR_RETURN(Preparation preparation,
                      Preparation::Make(graph, device, options, /*with_plan=*/false));
  return std::move(preparation.prepared);
}

absl::StatusOr<Planned> PlanFusion(const BackwardGraph& graph, const DeviceSpec& device,
                                   const PlanOptions& options) {
  RG_RETURN_IF_ERROR(CheckNames(options));
  Planned planned;
  RG_ASSIGN_OR_RETURN(Preparation preparation,
                      Preparation::Make(graph, device, options,
                                        options.max_memory_bytes == 0 && options.pairs.empty()));
  planned.graph = std::move(preparation.prepared.graph);
  if (options.max_memory_bytes > 0) {
    RG_RETURN_IF_ERROR(PlanBelowCeiling(graph, device, options, preparation, planned));
  } else if (preparation.plan) {
    planned.plan = *std::move(preparation.plan);
  } else {
    RG_ASSIGN_OR_RETURN(planned.plan, PlanOnce(planned.graph, device, options, 0,
                                               GroupOrder::kProgram, preparation.solved));
  }
  if (options.decisions) {
    std::vector<Decision>& merges = preparation.prepared.merges;
    planned.plan.decisions.insert(planned.plan.decisions.begin(),
                                  std::make_move_iterator(merges.begin()),
                                  std::make_move_iterator(merges.end()));
  }
  return planned;
}

}  // namespace retrograd
