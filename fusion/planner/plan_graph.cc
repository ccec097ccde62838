#include "fusion/planner/plan_graph.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "fusion/analysis/region_signature.h"
#include "fusion/explain/decisions.h"
#include "fusion/explain/feedback_decisions.h"
#include "fusion/horizontal/horizontal.h"
#include "fusion/horizontal/shared_calls.h"
#include "fusion/horizontal/shared_sorts.h"
#include "fusion/kernel/build/build.h"
#include "fusion/kernel/templates/kernel_template.h"
#include "fusion/plan/peak_memory.h"
#include "fusion/planner/can_share_kernel.h"
#include "fusion/planner/plan_pattern.h"
#include "fusion/planner/relabel_group.h"
#include "graph/base/status.h"

namespace retrograd {
namespace {

// The ops of a part that earlier parts own, and from now on its own ones are owned.
std::vector<size_t> TakeOwnership(const RegionResult::Part& part, std::vector<bool>& owned) {
  std::vector<size_t> recomputed;
  for (size_t position : part.unstored) {
    if (owned[position]) recomputed.push_back(position);
    owned[position] = true;
  }
  return recomputed;
}

class Planner {
 public:
  Planner(const PlanningContext& context, const PlanOptions& options, GroupOrder order,
          RegionResults& solved)
      : context_(context), g_(context.graph), options_(options), order_(order), solved_(solved) {}

  // What all kernels and calls take one after the other, none of them sharing a launch. Regions
  // that no plan has solved count with what they surely move, and are solved one by one until that
  // says enough.
  absl::StatusOr<PlanPrice> Price(int64_t enough_ps) {
    int64_t price_ps = 0;
    for (const Group& group : context_.library_calls) price_ps += group.price_ps;
    absl::flat_hash_map<absl::string_view, Unsolved> unsolved;
    for (size_t r = 0; r < context_.regions.size(); ++r) {
      const auto known = solved_.by_signature.find(Signature(r));
      if (known != solved_.by_signature.end()) {
        price_ps += known->second->price_ps;
        continue;
      }
      auto [at, added] = unsolved.try_emplace(Signature(r), Unsolved{.region = r});
      if (added) at->second.least_ps = LeastPs(context_.regions[r]);
      ++at->second.times;
      price_ps += at->second.least_ps;
    }
    for (size_t r = 0; r < context_.regions.size(); ++r) {
      if (price_ps > enough_ps) return PlanPrice{.ps = price_ps, .exact = false};
      const auto at = unsolved.find(Signature(r));
      if (at == unsolved.end() || at->second.region != r) continue;
      RG_RETURN_IF_ERROR(CheckCancelled(options_.cancelled));
      RG_ASSIGN_OR_RETURN(const Place* place, PlaceOf(r, {}));
      price_ps += at->second.times * (place->solved->price_ps - at->second.least_ps);
    }
    return PlanPrice{.ps = price_ps};
  }

  absl::StatusOr<FusionPlan> Run() {
    plan_.device = context_.device.name;
    std::vector<Group> groups = context_.library_calls;
    for (const Group& group : groups) {
      plan_.summary.bound_ps += group.price_ps;
      plan_.summary.cost_ps += group.price_ps;
      plan_.summary.unfused_ps += group.price_ps;
      plan_.summary.unfused_bytes += group.read_bytes + group.written_bytes;
    }
    RG_RETURN_IF_ERROR(CheckPairs());
    for (size_t r = 0; r < context_.regions.size(); ++r) {
      RG_RETURN_IF_ERROR(CheckCancelled(options_.cancelled));
      RG_RETURN_IF_ERROR(PlanRegion(static_cast<int>(r), groups));
    }
    // Kernels that wait for company keep what they read alive.
    if (order_ != GroupOrder::kLeastMemory) ShareLaunches(groups);
    OrderGroups(g_, std::move(groups), order_, plan_);
    plan_.layouts = context_.layouts;
    Summarize();
    SortDecisions();
    return std::move(plan_);
  }

 private:
  // Ops that stand in different regions are apart whatever is planned.
  absl::Status CheckPairs() const {
    for (const PairChoice& pair : options_.pairs) {
      for (NodeId id : {pair.a, pair.b}) {
        if (Index(id) >= g_.num_nodes()) {
          return absl::InvalidArgumentError(absl::StrCat(
              "%", Index(id), " does not exist: the lowered graph has ", g_.num_nodes(), " ops"));
        }
      }
      if (!pair.together) continue;
      RG_RETURN_IF_ERROR(CanMeet(context_, pair.a, pair.b));
    }
    return absl::OkStatus();
  }

  void ShareLaunches(std::vector<Group>& groups) {
    if (Enabled(options_, "horizontal")) {
      Take(retrograd::ShareLaunches(std::move(groups), context_.pricer), groups);
      TakeCalls(ShareSorts(std::move(groups), context_.pricer), groups);
    }
    if (!Enabled(options_, "shared_products")) return;
    TakeCalls(ShareCalls(std::move(groups), context_.pricer), groups);
  }
  void TakeCalls(SharedLaunches shared, std::vector<Group>& groups) {
    shared_calls_ps_ += shared.won_ps;
    Take(std::move(shared), groups);
  }
  void Take(SharedLaunches shared, std::vector<Group>& groups) {
    groups = std::move(shared.groups);
    plan_.summary.launches_saved += shared.saved;
    plan_.summary.shared_launch_ps += shared.won_ps;
    if (!options_.decisions) return;
    for (Decision& d : shared.decisions) plan_.decisions.push_back(std::move(d));
  }

  std::vector<PairChoice> PairsIn(int region) const {
    std::vector<PairChoice> pairs;
    for (const PairChoice& pair : options_.pairs) {
      const bool here = context_.region_of[Index(pair.a)] == region &&
                        context_.region_of[Index(pair.b)] == region && pair.a != pair.b;
      if (here) pairs.push_back(pair);
    }
    return pairs;
  }

  const std::string& Signature(size_t region) {
    if (signatures_.empty()) signatures_.resize(context_.regions.size());
    std::string& signature = signatures_[region];
    if (signature.empty()) {
      signature = RegionSignature(g_, context_.consumers, context_.regions[region],
                                  context_.pricer.numbers());
    }
    return signature;
  }

  // A region, the first of several equal ones, that is yet to be solved.
  struct Unsolved {
    size_t region = 0;
    int64_t least_ps = 0, times = 0;
  };

  // A solved region in this plan.
  struct Place {
    std::shared_ptr<const RegionResult> solved;
    int64_t times = 0;  // regions of the graph that are equal to it
    size_t first_decision = 0, num_decisions = 0;
    const Region* region = nullptr;  // the first of them
    std::vector<Group> groups;       // as they are there
  };

  bool Explains() const {
    return options_.decisions && Enabled(options_, "fusion") && options_.search.random_seed == 0;
  }

  absl::StatusOr<Place*> PlaceOf(size_t number, const std::vector<PairChoice>& pairs) {
    const Region& region = context_.regions[number];
    std::string signature = Signature(number);
    for (const PairChoice& pair : pairs) {
      const auto place = [&](NodeId id) {
        return std::lower_bound(region.ops.begin(), region.ops.end(), id) - region.ops.begin();
      };
      absl::StrAppend(&signature, pair.together ? "=" : "/", place(pair.a), ",", place(pair.b));
    }
    const auto at = place_of_.find(signature);
    if (at != place_of_.end()) return at->second;
    Place place;
    const auto known = solved_.by_signature.find(signature);
    if (known != solved_.by_signature.end() && !Explains()) {
      place.solved = known->second;
    } else {
      if (pairs.empty()) {
        RG_ASSIGN_OR_RETURN(place.solved, Kept(region));
      }
      if (place.solved != nullptr) {
        place.first_decision = plan_.decisions.size();
        solved_.kept.insert(signature);
      } else {
        RG_ASSIGN_OR_RETURN(place, SolveRegion(region, pairs));
      }
      solved_.by_signature[signature] = place.solved;
    }
    return place_of_[std::move(signature)] = &places_.emplace_back(std::move(place));
  }

  absl::Status PlanRegion(int number, std::vector<Group>& groups) {
    const Region& region = context_.regions[number];
    RG_ASSIGN_OR_RETURN(Place * place, PlaceOf(number, PairsIn(number)));
    if (++place->times == 1) {
      place->region = &region;
      for (const RegionResult::Part& part : place->solved->parts) {
        RG_ASSIGN_OR_RETURN(Group group, MakeGroup(region, part));
        place->groups.push_back(std::move(group));
      }
      groups.insert(groups.end(), place->groups.begin(), place->groups.end());
      return absl::OkStatus();
    }
    const Relabeling renaming(g_, *place->region, region);
    for (const Group& group : place->groups) groups.push_back(renaming.Rename(group));
    return absl::OkStatus();
  }

  static std::vector<NodeId> OpsAt(const Region& region, const std::vector<size_t>& positions) {
    std::vector<NodeId> ops;
    for (size_t position : positions) ops.push_back(region.ops[position]);
    return ops;
  }

  static GroupOps OpsOf(const Region& region, const RegionResult::Part& part) {
    return {OpsAt(region, part.positions), OpsAt(region, part.unstored), OpsAt(region, part.kept)};
  }

  // The region with a partition of the pattern, else of the second one; null where neither has one.
  absl::StatusOr<std::shared_ptr<const RegionResult>> Kept(const Region& region) {
    if (options_.pattern == nullptr || !Enabled(options_, "kept_partitions")) return nullptr;
    const std::string structure = RegionStructure(g_, context_.consumers, region);
    const std::shared_ptr<const RegionResult> kept = KeptOf(*options_.pattern, structure, region);
    if (kept != nullptr || options_.second_pattern == nullptr) return kept;
    RG_ASSIGN_OR_RETURN(const auto second, options_.second_pattern());
    return second == nullptr ? nullptr : KeptOf(*second, structure, region);
  }

  // The region with the cheapest partition that the pattern has for its structure, priced here;
  // null where the pattern has none that is possible here and does not cost too much.
  std::shared_ptr<const RegionResult> KeptOf(const PlanPattern& pattern,
                                             const std::string& structure, const Region& region) {
    const auto at = pattern.regions.find(structure);
    if (at == pattern.regions.end()) return nullptr;
    const int64_t least_ps = LeastPs(region);
    std::shared_ptr<RegionResult> best;
    for (const PlanPattern::Region& candidate : at->second) {
      std::optional<RegionResult> priced = PricedAs(*candidate.solved, region);
      if (!priced || !NearlyAsGood(*priced, least_ps, candidate)) continue;
      if (best != nullptr && best->cost_ps <= priced->cost_ps) continue;
      best = std::make_shared<RegionResult>(*std::move(priced));
    }
    if (best == nullptr) return nullptr;
    best->bound_ps = least_ps;
    if (options_.decisions) PriceUnfused(region, *best);
    return best;
  }

  static bool NearlyAsGood(const RegionResult& priced, int64_t least_ps,
                           const PlanPattern::Region& pattern) {
    const auto over = [](int64_t ps, int64_t least) {
      return static_cast<double>(ps) / static_cast<double>(std::max<int64_t>(least, 1));
    };
    return over(priced.price_ps, least_ps) <=
           kMostOverPattern * over(pattern.solved->price_ps, pattern.least_ps);
  }

  // No value where a kernel of the other region has no schedule here.
  std::optional<RegionResult> PricedAs(const RegionResult& other, const Region& region) const {
    RegionResult priced{.parts = other.parts, .atoms = other.atoms};
    for (RegionResult::Part& part : priced.parts) {
      const GroupPrice price = context_.pricer.Evaluate(OpsOf(region, part));
      if (!price.feasible) return std::nullopt;
      part.schedule = price.schedule;
      priced.price_ps += price.ps;
      priced.cost_ps += context_.pricer.Cost(price, part.joins);
    }
    return priced;
  }

  absl::StatusOr<Group> MakeGroup(const Region& region, const RegionResult::Part& part) const {
    RG_ASSIGN_OR_RETURN(Group group, context_.pricer.Make(OpsOf(region, part), part.schedule));
    group.recomputed = OpsAt(region, part.recomputed);
    std::vector<NodeId> owned;
    std::set_difference(group.nodes.begin(), group.nodes.end(), group.recomputed.begin(),
                        group.recomputed.end(), std::back_inserter(owned));
    group.nodes = std::move(owned);
    return group;
  }

  absl::StatusOr<Place> SolveRegion(const Region& region, const std::vector<PairChoice>& pairs) {
    RegionPlanner planner(region, context_.pricer, RegionOptionsOf(options_, context_.limits),
                          pairs);
    const RegionPlan chosen = planner.Solve(pairs);
    if (chosen.partition.parts.empty()) return Impossible(planner, chosen, pairs);
    RegionResult solved{.cost_ps = chosen.partition.cost_ps,
                        .exact = chosen.partition.exact,
                        .atoms = static_cast<int64_t>(planner.atoms().size())};
    auto positions_of = [&](const std::vector<NodeId>& ops) {
      std::vector<size_t> positions;
      for (NodeId id : ops) {
        positions.push_back(std::lower_bound(region.ops.begin(), region.ops.end(), id) -
                            region.ops.begin());
      }
      return positions;
    };
    std::vector<bool> owned(region.ops.size(), false);
    for (const Partition::Part& part : chosen.partition.parts) {
      const GroupOps group = OpsOfAtoms(chosen.atoms, part.atoms);
      RegionResult::Part out{.positions = positions_of(group.ops),
                             .unstored = positions_of(group.unstored),
                             .kept = positions_of(group.kept),
                             .joins = part.atoms.size() > 1,
                             .schedule = part.schedule};
      // What its own atom computes belongs to it, even if others compute it again before.
      for (int a : part.atoms) {
        for (size_t position : positions_of(chosen.atoms[a].ops)) owned[position] = true;
      }
      solved.price_ps += part.ps;
      solved.parts.push_back(std::move(out));
    }
    for (RegionResult::Part& part : solved.parts) part.recomputed = TakeOwnership(part, owned);
    solved.bound_ps = LeastPs(region);
    PriceUnfused(region, solved);
    Place place{.first_decision = plan_.decisions.size()};
    if (Explains()) {
      for (Decision& d : ExplainFeedback(region, chosen, context_.pricer,
                                         RegionOptionsOf(options_, context_.limits), pairs)) {
        plan_.decisions.push_back(std::move(d));
      }
      for (Decision& d : ExplainRegion(planner, chosen, context_.pricer)) {
        plan_.decisions.push_back(std::move(d));
      }
    }
    place.num_decisions = plan_.decisions.size() - place.first_decision;
    place.solved = std::make_shared<const RegionResult>(std::move(solved));
    return place;
  }

  // Some op fits in no kernel: legalizing a graph makes ops that do.
  absl::Status NoKernel(RegionPlanner& planner) const {
    for (const auto& atom : planner.atoms()) {
      const GroupPrice price = context_.pricer.Evaluate(atom.ops);
      if (price.feasible) continue;
      return absl::InternalError(absl::StrCat("%", Index(atom.ops.back()), " (",
                                              Name(g_.op(atom.ops.back())),
                                              ") fits in no kernel: ", price.reason));
    }
    return absl::InternalError(
        absl::StrCat("no plan of the region of %", Index(planner.atoms()[0].ops[0]), " was found"));
  }

  absl::Status Impossible(RegionPlanner& planner, const RegionPlan& found,
                          const std::vector<PairChoice>& pairs) const {
    if (pairs.empty()) return NoKernel(planner);
    if (!found.partition.exact) {
      return absl::ResourceExhaustedError(
          absl::StrCat("%", Index(pairs[0].a), " and %", Index(pairs[0].b), ": their region of ",
                       planner.atoms().size(), " atoms is too large to be solved under a choice"));
    }
    for (const PairChoice& pair : pairs) {
      if (!pair.together) continue;
      const GroupPrice price = planner.SmallestTogether(pair.a, pair.b);
      if (price.feasible) continue;
      return absl::FailedPreconditionError(absl::StrCat("%", Index(pair.a), " and %", Index(pair.b),
                                                        " cannot share a kernel: ", price.limit,
                                                        ": ", price.reason));
    }
    return absl::FailedPreconditionError(absl::StrCat("no plan of the region of %",
                                                      Index(pairs[0].a), " obeys all ",
                                                      pairs.size(), " choices at once"));
  }

  int64_t LeastPs(const Region& region) const { return context_.pricer.LeastPsOfAll(region.ops); }

  // Every op in a kernel of its own; equal ops are priced once.
  void PriceUnfused(const Region& region, RegionResult& solved) {
    for (NodeId id : region.ops) {
      auto [at, added] = solved_.alone_ps.try_emplace(
          RegionSignature(g_, context_.consumers, Region{{id}}, context_.pricer.numbers()), 0);
      if (added) at->second = context_.pricer.Evaluate(absl::MakeConstSpan(&id, 1)).ps;
      solved.unfused_ps += at->second;
      solved.unfused_bytes += g_.type(id).size_bytes();
      for (ValueId v : g_.operands(id)) {
        if (!IsConstant(g_, BehindViews(g_, v).node))
          solved.unfused_bytes += g_.type(v).size_bytes();
      }
    }
  }

  void Summarize() {
    PlanSummary& s = plan_.summary;
    for (const Group& group : plan_.groups) {
      s.ops += static_cast<int64_t>(group.nodes.size());
      s.recomputed_ops += static_cast<int64_t>(group.recomputed.size());
      s.price_ps += group.price_ps;
      s.bytes += group.read_bytes + group.written_bytes;
      const std::vector<const KernelBody*> kernels = KernelsOf(group);
      if (AliasOf(group) != nullptr) continue;  // nothing is launched
      // A library's call, kernels that share one launch, or a kernel of its own.
      int64_t launches = kernels.empty() && group.workspace_bytes > 0 ? 2 : 1;
      for (const KernelBody* kernel : kernels) {
        launches = std::max(launches, LaunchesOf(kernel->ir, kernel->schedule));
      }
      s.kernels += launches;
    }
    for (const Place& place : places_) {
      const RegionResult& solved = *place.solved;
      s.regions += place.times;
      ++s.distinct_regions;
      s.largest_region_atoms = std::max(s.largest_region_atoms, solved.atoms);
      s.cost_ps += place.times * solved.cost_ps;
      s.bound_ps += place.times * solved.bound_ps;
      s.unfused_ps += place.times * solved.unfused_ps;
      s.unfused_bytes += place.times * solved.unfused_bytes;
      if (!solved.exact)
        s.gap_ps += place.times * std::max<int64_t>(solved.cost_ps - solved.bound_ps, 0);
    }
    if (!solved_.kept.empty() && !options_.decisions) s.unfused_ps = s.unfused_bytes = 0;
    // It counts a launch for every region. Kernels far above the bound may win more by sharing
    // launches than all of it.
    s.bound_ps = std::max(s.bound_ps - s.shared_launch_ps, LeastWithSharing());
    s.peak_bytes = PeakBytes(g_, plan_);
  }

  // Library calls, and one launch if there is any kernel.
  int64_t LeastWithSharing() const {
    int64_t least = 0;
    for (const Group& group : context_.library_calls) least += group.price_ps;
    least -= shared_calls_ps_;
    const bool launches = std::any_of(
        plan_.groups.begin(), plan_.groups.end(),
        [](const Group& group) { return std::holds_alternative<KernelLaunch>(group.body); });
    return least + (launches ? context_.device.launch_graph_ps : 0);
  }

  // The most telling first: most time at stake, over all equal regions.
  void SortDecisions() {
    std::vector<int64_t> weight(plan_.decisions.size(), 0);
    for (const Place& p : places_) {
      for (size_t i = 0; i < p.num_decisions; ++i) {
        const Decision& d = plan_.decisions[p.first_decision + i];
        const int64_t stake = d.together_ps == 0 ? 0 : std::abs(d.together_ps - d.apart_ps);
        weight[p.first_decision + i] = stake * p.times;
      }
    }
    std::vector<size_t> order(weight.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return weight[a] > weight[b]; });
    std::vector<Decision> sorted;
    for (size_t i : order) sorted.push_back(std::move(plan_.decisions[i]));
    plan_.decisions = std::move(sorted);
  }

  const PlanningContext& context_;
  const BackwardGraph& g_;
  const PlanOptions& options_;
  const GroupOrder order_;
  FusionPlan plan_;
  int64_t shared_calls_ps_ = 0;  // what calls win that share launches
  RegionResults& solved_;
  std::deque<Place> places_;                           // in the order of their first regions
  absl::flat_hash_map<std::string, Place*> place_of_;  // by signature
  std::vector<std::string> signatures_;                // by region; empty: not asked for
};

}  // namespace

absl::Status AddRegions(const LegalGraph& legal, const DeviceSpec& device,
                        const PlanOptions& options, RegionResults& solved, PlanPattern& pattern) {
  const BackwardGraph& lowered = legal.graph;
  RG_ASSIGN_OR_RETURN(
      const auto context,
      PlanningContext::Make(lowered, device, options, 0, &solved.kernels, &legal.layouts.of));
  absl::flat_hash_set<std::string> added;
  for (const Region& region : context->regions) {
    std::string signature =
        RegionSignature(lowered, context->consumers, region, context->pricer.numbers());
    const auto at = solved.by_signature.find(signature);
    if (at == solved.by_signature.end() || !added.insert(std::move(signature)).second) continue;
    pattern.regions[RegionStructure(lowered, context->consumers, region)].push_back(
        {at->second, context->pricer.LeastPsOfAll(region.ops)});
  }
  return absl::OkStatus();
}

absl::StatusOr<FusionPlan> PlanGraph(const BackwardGraph& lowered, const DeviceSpec& device,
                                     const PlanOptions& options, int64_t memory_ps_per_mib,
                                     GroupOrder order, RegionResults& solved,
                                     const std::vector<Layout>* layouts) {
  RG_ASSIGN_OR_RETURN(
      auto context,
      PlanningContext::Make(lowered, device, options, memory_ps_per_mib, &solved.kernels, layouts));
  return Planner(*context, options, order, solved).Run();
}

absl::StatusOr<PlanPrice> PriceGraph(const LegalGraph& legal, const DeviceSpec& device,
                                     const PlanOptions& options, int64_t enough_ps,
                                     std::optional<int64_t> shared_ps, RegionResults& solved) {
  RG_ASSIGN_OR_RETURN(auto context, PlanningContext::Make(legal.graph, device, options, 0,
                                                          &solved.kernels, &legal.layouts.of));
  Planner planner(*context, options, GroupOrder::kProgram, solved);
  RG_ASSIGN_OR_RETURN(const PlanPrice price, planner.Price(enough_ps + shared_ps.value_or(0)));
  if (!shared_ps) return price;
  const int64_t at_least = price.ps - *shared_ps;
  if (at_least > enough_ps) return PlanPrice{.ps = at_least, .exact = false};
  RG_ASSIGN_OR_RETURN(const FusionPlan whole, planner.Run());
  return PlanPrice{.ps = whole.summary.price_ps};
}

}  // namespace retrograd
