#include "fusion/planner/planner.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "fusion/gemm_merge/merge_trials.h"
#include "fusion/lower/image_chains.h"
#include "fusion/lower/indexed/order_positions.h"
#include "fusion/planner/memory_ceiling.h"
#include "fusion/planner/plan_graph.h"
#include "fusion/planner/plan_pattern.h"
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
struct TrialPlans {
  LoweredGraph lowered;
  BackwardGraph unmerged;  // the same with no matmuls merged
  // Without a price of memory. Lowerings of one graph share most of their regions.
  std::shared_ptr<RegionResults> solved;
  std::vector<bool> merges;        // by candidate: whether it is merged
  std::optional<FusionPlan> plan;  // of the lowered graph, if it was asked for and had to be made

  // With those of kTriedFeatures by which the plan takes less.
  static absl::StatusOr<TrialPlans> Make(const BackwardGraph& graph, const DeviceSpec& device,
                                         const PlanOptions& options, bool with_plan);

  // Whether the pattern says which candidates are merged; the graph is then merged so.
  absl::StatusOr<bool> MergeByPattern(const DeviceSpec& device, const PlanOptions& options,
                                      const MergeOptions& merge);

 private:
  // Of a graph that was lowered under the options.
  static absl::StatusOr<TrialPlans> MakeOnce(LegalGraph legal, const DeviceSpec& device,
                                             const PlanOptions& options, bool with_plan,
                                             std::shared_ptr<RegionResults> solved);
  // The price of the lowered graph's plan, which is kept.
  absl::StatusOr<int64_t> PlanPs(const DeviceSpec& device, const PlanOptions& options);
  // The graph that is most likely the one.
  absl::StatusOr<int64_t> PlanFirst(const LegalGraph& graph, const DeviceSpec& device,
                                    const PlanOptions& options, bool keep_plan);
  absl::StatusOr<PlanPrice> Price(const LegalGraph& graph, const DeviceSpec& device,
                                  const PlanOptions& options, int64_t enough_ps);

  int64_t sharing_ps_ = 0;  // what sharing launches wins the first plan
};

// Search bound. Kernels that share launches are priced too, but in graphs so large that this would
// take as long as all the rest.
constexpr size_t kMostNodesForSharing = 20'000;

// Search bound. Sharing launches wins about as much in one version of a graph as in another. A plan
// that would need more than so many times as much to catch up is beaten.
constexpr int64_t kSharingWinsTimes = 3;

absl::StatusOr<int64_t> TrialPlans::PlanFirst(const LegalGraph& graph, const DeviceSpec& device,
                                              const PlanOptions& options, bool keep_plan) {
  RG_ASSIGN_OR_RETURN(
      FusionPlan whole,
      PlanGraph(graph.graph, device, options, 0, GroupOrder::kProgram, *solved, &graph.layouts.of));
  sharing_ps_ = whole.summary.shared_launch_ps;
  const int64_t price_ps = whole.summary.price_ps;
  if (keep_plan) plan = std::move(whole);
  return graph.graph.num_nodes() <= kMostNodesForSharing ? price_ps : price_ps + sharing_ps_;
}

absl::StatusOr<PlanPrice> TrialPlans::Price(const LegalGraph& graph, const DeviceSpec& device,
                                            const PlanOptions& options, int64_t enough_ps) {
  std::optional<int64_t> shared_ps;
  if (graph.graph.num_nodes() <= kMostNodesForSharing) shared_ps = kSharingWinsTimes * sharing_ps_;
  return PriceGraph(graph, device, options, enough_ps, shared_ps, *solved);
}

absl::StatusOr<bool> TrialPlans::MergeByPattern(const DeviceSpec& device,
                                                const PlanOptions& options,
                                                const MergeOptions& merge) {
  if (options.pattern == nullptr || !Enabled(options, "kept_partitions")) return false;
  const MatMulMerger merger(lowered, device, merge);
  RG_ASSIGN_OR_RETURN(std::optional<MergedMatMuls> merged, merger.MergeAs(options.pattern->merges));
  if (!merged) return false;
  std::vector<Decision> decisions = std::move(merged->decisions);
  lowered = {*std::move(merged), std::move(decisions), {}};
  return true;
}

absl::StatusOr<int64_t> TrialPlans::PlanPs(const DeviceSpec& given, const PlanOptions& options) {
  if (!plan) {
    RG_ASSIGN_OR_RETURN(plan, PlanGraph(lowered.graph, given, options, 0, GroupOrder::kProgram,
                                        *solved, &lowered.layouts.of));
  }
  return plan->summary.price_ps;
}

// As LowerAndMerge promises, and without what only the final plan tells.
PlanOptions FreeOf(PlanOptions options) {
  options.pairs.clear();
  options.max_memory_bytes = 0;
  options.decisions = false;
  return options;
}

bool PricesDecide(const PlanOptions& options) {
  const bool random = options.search.random_seed != 0 || options.random_schedules != 0;
  return !random && options.merging == PlanOptions::Merging::kPriced;
}

// What is decided without the prices of the kernels that it leads to, by lowering or where layouts
// are assigned: a whole plan tells what they take.
constexpr absl::string_view kTriedFeatures[] = {"image_order", "taps_as_channels", "depthwise_taps",
                                                "split_scans", "position_order",   "walk_order"};

bool HasCumulativeSums(const BackwardGraph& graph) {
  for (uint32_t i = 0; i < graph.num_nodes(); ++i) {
    if (graph.op(NodeId{i}) == Op::cumsum) return true;
  }
  return false;
}

bool HasConvolutions(const BackwardGraph& graph) {
  for (uint32_t i = 0; i < graph.num_nodes(); ++i) {
    if (ConvolutionValuesOf(graph, NodeId{i})) return true;
  }
  return false;
}

// Whether a plan without the tried feature may be another one. `lowered`: the graph with it.
bool MayDecide(absl::string_view feature, const BackwardGraph& graph, const LegalGraph& lowered) {
  if (feature == "position_order") return HasSumsInOrder(lowered.graph);
  if (feature == "split_scans") return HasCumulativeSums(graph);
  if (feature == "walk_order") return lowered.layouts.walks_decide;
  return HasConvolutions(graph);
}

absl::StatusOr<LegalGraph> LoweredFor(const BackwardGraph& graph, const DeviceSpec& device,
                                      const PlanOptions& options) {
  const DeviceSpec planned = PlannedDevice(device, options);
  return LowerAndLayOut(graph, LowerOptionsOf(options, planned));
}

absl::StatusOr<TrialPlans> TrialPlans::Make(const BackwardGraph& graph, const DeviceSpec& device,
                                            const PlanOptions& options, bool with_plan) {
  if (options.pattern != nullptr) {
    const std::vector<std::string>& without = options.pattern->without;
    const PlanOptions chosen = Without(options, without);
    RG_ASSIGN_OR_RETURN(LegalGraph legal, LoweredFor(graph, device, chosen));
    RG_ASSIGN_OR_RETURN(TrialPlans alike, MakeOnce(std::move(legal), device, chosen, with_plan,
                                                   std::make_shared<RegionResults>()));
    alike.lowered.without = without;
    return alike;
  }
  RG_ASSIGN_OR_RETURN(LegalGraph legal, LoweredFor(graph, device, options));
  RG_ASSIGN_OR_RETURN(TrialPlans best, MakeOnce(std::move(legal), device, options, with_plan,
                                                std::make_shared<RegionResults>()));
  if (!PricesDecide(options)) return best;
  PlanOptions chosen = with_plan ? options : FreeOf(options);
  for (const absl::string_view feature : kTriedFeatures) {
    PlanOptions without = chosen;
    if (!without.disable.insert(std::string(feature)).second) continue;
    if (!MayDecide(feature, graph, best.lowered)) continue;
    absl::StatusOr<LegalGraph> tried = LoweredFor(graph, device, without);
    if (!tried.ok()) continue;  // the graph with it is planned
    // Walks may decide though the graph is the same.
    if (feature != "walk_order" && tried->graph == best.unmerged) continue;
    RG_ASSIGN_OR_RETURN(const int64_t best_ps, best.PlanPs(device, chosen));
    absl::StatusOr<TrialPlans> other =
        MakeOnce(*std::move(tried), device, without, with_plan, best.solved);
    const absl::StatusOr<int64_t> other_ps =
        other.ok() ? other->PlanPs(device, without) : other.status();
    if (absl::IsCancelled(other_ps.status())) return other_ps.status();
    if (!other_ps.ok() || *other_ps > best_ps) continue;
    other->lowered.without = std::move(best.lowered.without);
    other->lowered.without.emplace_back(feature);
    best = *std::move(other);
    chosen = std::move(without);
  }
  if (!with_plan) best.plan.reset();
  return best;
}

absl::StatusOr<TrialPlans> TrialPlans::MakeOnce(LegalGraph legal, const DeviceSpec& given,
                                                const PlanOptions& options, bool with_plan,
                                                std::shared_ptr<RegionResults> solved) {
  const DeviceSpec device = PlannedDevice(given, options);
  using Merging = PlanOptions::Merging;
  TrialPlans made;
  made.solved = std::move(solved);
  LoweredGraph& lowered = made.lowered;
  made.unmerged = legal.graph;
  static_cast<LegalGraph&>(lowered) = std::move(legal);
  if (!Enabled(options, "merged_matmuls") || options.merging == Merging::kNever) return made;
  const bool random = options.search.random_seed != 0 || options.random_schedules != 0;
  MergeOptions merge{.place = Enabled(options, "concats_in_place"),
                     .layouts = LayoutOptionsOf(options, device)};
  if (options.merging == Merging::kAlways || random) {  // prices of random plans decide nothing
    merge.regardless = options.merging == Merging::kAlways;
    RG_ASSIGN_OR_RETURN(MergedMatMuls merged, MergeMatMuls(lowered, device, merge));
    std::vector<Decision> decisions = std::move(merged.decisions);
    lowered = {std::move(merged), std::move(decisions), {}};
    return made;
  }
  RG_ASSIGN_OR_RETURN(const bool by_pattern, made.MergeByPattern(device, options, merge));
  if (by_pattern) return made;
  const PlanOptions free = FreeOf(options);
  bool first = true;
  const auto price = [&](const LegalGraph& tried, int64_t enough_ps) -> absl::StatusOr<PlanPrice> {
    if (!std::exchange(first, false)) return made.Price(tried, device, free, enough_ps);
    RG_ASSIGN_OR_RETURN(const int64_t price_ps,
                        made.PlanFirst(tried, device, with_plan ? options : free, with_plan));
    return PlanPrice{.ps = price_ps};
  };
  RG_ASSIGN_OR_RETURN(TriedMerges tried, TryMerges(lowered, device, merge, price));
  if (!tried.all) made.plan.reset();
  made.merges = tried.merged.done;
  std::vector<Decision> decisions = std::move(tried.merged.decisions);
  lowered = {std::move(tried.merged), std::move(decisions), {}};
  return made;
}

// Makes a plan under options.max_memory_bytes, of the lowered graph. Returns what the lowest plan
// that was found takes: if that is more than the ceiling, none was made.
absl::StatusOr<int64_t> PlanBelowCeiling(const DeviceSpec& device, const PlanOptions& options,
                                         Planned& planned) {
  RG_ASSIGN_OR_RETURN(const auto context, PlanningContext::Make(planned.graph, device, options, 0));
  std::map<int64_t, RegionResults> solved;  // by the price of memory
  const auto plan = [&](const CeilingChoice& choice, bool decisions) {
    PlanOptions under = options;
    under.decisions = decisions;
    under.pairs.insert(under.pairs.end(), choice.separated.begin(), choice.separated.end());
    return PlanGraph(planned.graph, device, under, choice.memory_ps_per_mib, choice.order,
                     solved[choice.memory_ps_per_mib]);
  };
  RG_ASSIGN_OR_RETURN(
      const CeilingSearch search,
      FindBelowCeiling(*context, options.max_memory_bytes,
                       [&](const CeilingChoice& tried) { return plan(tried, false); }));
  if (!search.choice) return search.least_bytes;
  const CeilingChoice& choice = *search.choice;
  RG_ASSIGN_OR_RETURN(planned.plan, plan(choice, options.decisions));
  planned.memory_ps_per_mib = choice.memory_ps_per_mib;
  planned.separated = choice.separated;
  if (!options.decisions) return search.least_bytes;
  std::vector<Decision> separated =
      ExplainSeparated(planned.graph, choice, options.max_memory_bytes);
  planned.plan.decisions.insert(planned.plan.decisions.begin(), separated.begin(), separated.end());
  return search.least_bytes;
}

// The lowered graph under a ceiling; without merged matmuls, and without what lowering is tried
// with, where these keep too much alive.
absl::Status PlanBelowCeiling(const BackwardGraph& graph, const DeviceSpec& device,
                              const PlanOptions& options, TrialPlans& trials, Planned& planned) {
  RG_ASSIGN_OR_RETURN(int64_t least, PlanBelowCeiling(device, options, planned));
  if (least > options.max_memory_bytes && options.pairs.empty()) {
    PlanOptions apart = options;
    apart.merging = PlanOptions::Merging::kNever;
    apart.disable.insert(std::begin(kTriedFeatures), std::end(kTriedFeatures));
    const DeviceSpec priced = PlannedDevice(device, apart);
    RG_ASSIGN_OR_RETURN(BackwardGraph lowered, Lower(graph, LowerOptionsOf(apart, priced)));
    if (!(lowered == planned.graph) || trials.lowered.layouts.walks_decide) {
      planned.graph = std::move(lowered);
      trials.lowered.merges.clear();
      planned.without = {std::begin(kTriedFeatures), std::end(kTriedFeatures)};
      RG_ASSIGN_OR_RETURN(const int64_t least_apart, PlanBelowCeiling(device, apart, planned));
      least = std::min(least, least_apart);
    }
  }
  if (least <= options.max_memory_bytes) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("no plan found whose values take at most ", options.max_memory_bytes,
                   " bytes at once; the least was ", least,
                   ", of which the graph's own inputs and outputs take a fixed part"));
}

}  // namespace

PlanOptions Without(PlanOptions options, const std::vector<std::string>& features) {
  options.disable.insert(features.begin(), features.end());
  return options;
}

LowerOptions LowerOptionsOf(const PlanOptions& options, const DeviceSpec& device) {
  return {.gathered_sums = Enabled(options, "gathered_sums"),
          .cast_pairs = Enabled(options, "cast_pairs"),
          .first_writer = Enabled(options, "first_writer"),
          .scatter_lines = Enabled(options, "scatter_lines"),
          .position_order = Enabled(options, "position_order"),
          .based_sums = Enabled(options, "based_sums"),
          .joined_sums = Enabled(options, "joined_sums"),
          .sums_of_slices = Enabled(options, "sums_of_slices"),
          .thin_matmuls = Enabled(options, "thin_matmuls"),
          .image_order = Enabled(options, "image_order"),
          .taps_as_channels = Enabled(options, "taps_as_channels"),
          .depthwise_taps = Enabled(options, "depthwise_taps"),
          .split_scans = Enabled(options, "split_scans"),
          .pad_operands = Enabled(options, "pad_operands"),
          .padded_rows = Enabled(options, "padded_rows"),
          .accumulate_order = Enabled(options, "accumulate_order"),
          .rematerialize = Enabled(options, "rematerialization"),
          .place_concats = Enabled(options, "concats_in_place") &&
                           options.merging != PlanOptions::Merging::kNever,
          .sinking = SinkOptionsOf(options, device),
          .layouts = LayoutOptionsOf(options, device),
          .device = &device};
}

absl::StatusOr<LoweredGraph> LowerAndMerge(const BackwardGraph& graph, const DeviceSpec& device,
                                           const PlanOptions& options) {
  RG_RETURN_IF_ERROR(CheckNames(options));
  RG_ASSIGN_OR_RETURN(TrialPlans trials,
                      TrialPlans::Make(graph, device, options, /*with_plan=*/false));
  return std::move(trials.lowered);
}

absl::StatusOr<std::shared_ptr<const PlanPattern>> PatternOf(const BackwardGraph& graph,
                                                             const DeviceSpec& device,
                                                             const PlanOptions& options) {
  PlanOptions plain = options;
  plain.decisions = false;
  RG_ASSIGN_OR_RETURN(TrialPlans trials,
                      TrialPlans::Make(graph, device, plain, /*with_plan=*/true));
  plain = Without(std::move(plain), trials.lowered.without);
  if (!trials.plan) {
    RG_RETURN_IF_ERROR(PlanGraph(trials.lowered.graph, device, plain, 0, GroupOrder::kProgram,
                                 *trials.solved, &trials.lowered.layouts.of)
                           .status());
  }
  auto pattern = std::make_shared<PlanPattern>();
  pattern->merges = std::move(trials.merges);
  pattern->without = std::move(trials.lowered.without);
  RG_RETURN_IF_ERROR(AddRegions(trials.lowered, device, plain, *trials.solved, *pattern));
  return pattern;
}

absl::StatusOr<Planned> PlanFusion(const BackwardGraph& graph, const DeviceSpec& device,
                                   const PlanOptions& options) {
  RG_RETURN_IF_ERROR(CheckNames(options));
  Planned planned;
  RG_ASSIGN_OR_RETURN(TrialPlans trials,
                      TrialPlans::Make(graph, device, options,
                                       options.max_memory_bytes == 0 && options.pairs.empty()));
  planned.graph = std::move(trials.lowered.graph);
  planned.without = std::move(trials.lowered.without);
  const PlanOptions chosen = Without(options, planned.without);
  if (options.max_memory_bytes > 0) {
    RG_RETURN_IF_ERROR(PlanBelowCeiling(graph, device, chosen, trials, planned));
  } else if (trials.plan) {
    planned.plan = *std::move(trials.plan);
  } else {
    RG_ASSIGN_OR_RETURN(planned.plan,
                        PlanGraph(planned.graph, device, chosen, 0, GroupOrder::kProgram,
                                  *trials.solved, &trials.lowered.layouts.of));
  }
  planned.kept_regions = static_cast<int64_t>(trials.solved->kept.size());
  if (options.decisions) {
    std::vector<Decision>& merges = trials.lowered.merges;
    planned.plan.decisions.insert(planned.plan.decisions.begin(),
                                  std::make_move_iterator(merges.begin()),
                                  std::make_move_iterator(merges.end()));
  }
  return planned;
}

}  // namespace retrograd
