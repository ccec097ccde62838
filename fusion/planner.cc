#include "fusion/planner.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "fusion/decisions.h"
#include "fusion/feedback_decisions.h"
#include "fusion/group_order.h"
#include "fusion/groundwork.h"
#include "fusion/horizontal.h"
#include "fusion/kernel/build.h"
#include "fusion/merge_matmuls.h"
#include "fusion/peak_memory.h"
#include "fusion/region_signature.h"
#include "fusion/separation.h"
#include "graph/status.h"

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

// A region solved once: parts as positions of the region's ops, valid for every equal region.
struct Solved {
  struct Part {
    std::vector<size_t> positions;
    std::vector<size_t> unstored;    // those computed again by whoever reads them
    std::vector<size_t> kept;        // those stored for what others compute again
    std::vector<size_t> recomputed;  // those of them that an earlier part owns
    Schedule schedule;
  };
  std::vector<Part> parts;
  int64_t cost_ps = 0, bound_ps = 0, unfused_ps = 0, unfused_bytes = 0;
  bool exact = false;
  int64_t atoms = 0;
  int64_t times = 0;  // regions of the graph that are equal to it
  size_t first_decision = 0, num_decisions = 0;
};

// The ops of a part that earlier parts own, and from now on its own ones are owned.
std::vector<size_t> TakeOwnership(const Solved::Part& part, std::vector<bool>& owned) {
  std::vector<size_t> recomputed;
  for (size_t position : part.unstored) {
    if (owned[position]) recomputed.push_back(position);
    owned[position] = true;
  }
  return recomputed;
}

class Planner {
 public:
  Planner(const Groundwork& ground, const PlanOptions& options, GroupOrder order)
      : ground_(ground), g_(ground.graph), options_(options), order_(order) {}

  absl::StatusOr<FusionPlan> Run() {
    plan_.device = ground_.device.name;
    std::vector<Group> groups = ground_.library_calls;
    for (const Group& group : groups) {
      plan_.summary.bound_ps += group.price_ps;
      plan_.summary.cost_ps += group.price_ps;
      plan_.summary.unfused_ps += group.price_ps;
      plan_.summary.unfused_bytes += group.read_bytes + group.written_bytes;
    }
    RG_RETURN_IF_ERROR(CheckPairs());
    for (size_t r = 0; r < ground_.regions.size(); ++r) {
      RG_RETURN_IF_ERROR(PlanRegion(static_cast<int>(r), groups));
    }
    // Kernels that wait for company keep what they read alive.
    if (Enabled(options_, "horizontal") && order_ != GroupOrder::kLeastMemory) ShareLaunches(groups);
    OrderGroups(g_, std::move(groups), order_, plan_);
    plan_.layouts = ground_.layouts;
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
      RG_RETURN_IF_ERROR(CanMeet(ground_, pair.a, pair.b));
    }
    return absl::OkStatus();
  }

  void ShareLaunches(std::vector<Group>& groups) {
    SharedLaunches shared = retrograd::ShareLaunches(std::move(groups), ground_.pricer);
    groups = std::move(shared.groups);
    plan_.summary.merged_launches = shared.saved;
    plan_.summary.merged_ps = shared.won_ps;
    if (!options_.decisions) return;
    for (Decision& d : shared.decisions) plan_.decisions.push_back(std::move(d));
  }

  std::vector<PairChoice> PairsIn(int region) const {
    std::vector<PairChoice> pairs;
    for (const PairChoice& pair : options_.pairs) {
      const bool here = ground_.region_of[Index(pair.a)] == region &&
                        ground_.region_of[Index(pair.b)] == region && pair.a != pair.b;
      if (here) pairs.push_back(pair);
    }
    return pairs;
  }

  absl::Status PlanRegion(int number, std::vector<Group>& groups) {
    const Region& region = ground_.regions[number];
    const std::vector<PairChoice> pairs = PairsIn(number);
    size_t index = solved_.size();
    if (pairs.empty()) {
      auto [at, added] = solved_by_signature_.try_emplace(
          RegionSignature(g_, ground_.layouts, ground_.consumers, region), index);
      index = at->second;
    }
    if (index == solved_.size()) {
      RG_ASSIGN_OR_RETURN(Solved solved, SolveRegion(region, pairs));
      solved_.push_back(std::move(solved));
    }
    Solved& solved = solved_[index];
    ++solved.times;
    for (const Solved::Part& part : solved.parts) {
      RG_ASSIGN_OR_RETURN(Group group, MakeGroup(region, part));
      groups.push_back(std::move(group));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<Group> MakeGroup(const Region& region, const Solved::Part& part) const {
    auto ops_at = [&](const std::vector<size_t>& positions) {
      std::vector<NodeId> ops;
      for (size_t position : positions) ops.push_back(region.ops[position]);
      return ops;
    };
    RG_ASSIGN_OR_RETURN(Group group,
                        ground_.pricer.Make({ops_at(part.positions), ops_at(part.unstored), ops_at(part.kept)}, part.schedule));
    group.recomputed = ops_at(part.recomputed);
    std::vector<NodeId> owned;
    std::set_difference(group.nodes.begin(), group.nodes.end(), group.recomputed.begin(),
                        group.recomputed.end(), std::back_inserter(owned));
    group.nodes = std::move(owned);
    return group;
  }

  absl::StatusOr<Solved> SolveRegion(const Region& region, const std::vector<PairChoice>& pairs) {
    RegionPlanner planner(region, ground_.pricer, RegionOptionsOf(options_, ground_.limits), pairs);
    const RegionPlan chosen = planner.Solve(pairs);
    if (chosen.partition.parts.empty()) return Impossible(planner, chosen, pairs);
    Solved solved{.cost_ps = chosen.partition.cost_ps,
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
      Solved::Part out{.positions = positions_of(group.ops),
                       .unstored = positions_of(group.unstored),
                       .kept = positions_of(group.kept),
                       .schedule = part.schedule};
      // What its own atom computes belongs to it, even if others compute it again before.
      for (int a : part.atoms) {
        for (size_t position : positions_of(chosen.atoms[a].ops)) owned[position] = true;
      }
      solved.parts.push_back(std::move(out));
    }
    for (Solved::Part& part : solved.parts) part.recomputed = TakeOwnership(part, owned);
    solved.bound_ps = ground_.pricer.LeastPsOfAll(region.ops);
    PriceUnfused(region, solved);
    solved.first_decision = plan_.decisions.size();
    if (options_.decisions && Enabled(options_, "fusion") && options_.search.random_seed == 0) {
      for (Decision& d : ExplainFeedback(region, chosen, ground_.pricer,
                                         RegionOptionsOf(options_, ground_.limits), pairs)) {
        plan_.decisions.push_back(std::move(d));
      }
      for (Decision& d : ExplainRegion(planner, chosen, ground_.pricer)) {
        plan_.decisions.push_back(std::move(d));
      }
    }
    solved.num_decisions = plan_.decisions.size() - solved.first_decision;
    return solved;
  }

  absl::Status Impossible(RegionPlanner& planner, const RegionPlan& found,
                          const std::vector<PairChoice>& pairs) const {
    if (!found.partition.exact) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "%", Index(pairs[0].a), " and %", Index(pairs[0].b), ": their region of ",
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
    return absl::FailedPreconditionError(
        absl::StrCat("no plan of the region of %", Index(pairs[0].a), " obeys all ", pairs.size(),
                     " choices at once"));
  }

  // Every op in a kernel of its own; equal ops are priced once.
  void PriceUnfused(const Region& region, Solved& solved) {
    for (NodeId id : region.ops) {
      auto [at, added] = alone_ps_.try_emplace(
          RegionSignature(g_, ground_.layouts, ground_.consumers, Region{{id}}), 0);
      if (added) at->second = ground_.pricer.Evaluate(absl::MakeConstSpan(&id, 1)).ps;
      solved.unfused_ps += at->second;
      solved.unfused_bytes += g_.type(id).size_bytes();
      for (ValueId v : g_.operands(id)) {
        if (!IsConstant(g_, BehindViews(g_, v).node)) solved.unfused_bytes += g_.type(v).size_bytes();
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
      if (std::holds_alternative<PlacedJoin>(group.body)) continue;  // nothing is launched
      const bool scatter = kernels.size() == 1 && kernels[0]->ir.scatter.has_value();
      s.kernels += scatter ? 3 : (group.workspace_bytes > 0 ? 2 : 1);
    }
    for (const Solved& solved : solved_) {
      s.regions += solved.times;
      ++s.distinct_regions;
      s.largest_region_atoms = std::max(s.largest_region_atoms, solved.atoms);
      s.cost_ps += solved.times * solved.cost_ps;
      s.bound_ps += solved.times * solved.bound_ps;
      s.unfused_ps += solved.times * solved.unfused_ps;
      s.unfused_bytes += solved.times * solved.unfused_bytes;
      if (!solved.exact) s.gap_ps += solved.times * std::max<int64_t>(solved.cost_ps - solved.bound_ps, 0);
    }
    s.bound_ps -= s.merged_ps;  // it counts a launch for every region
    s.peak_bytes = PeakBytes(g_, plan_);
  }

  // The most telling first: most time at stake, over all equal regions.
  void SortDecisions() {
    std::vector<int64_t> weight(plan_.decisions.size(), 0);
    for (const Solved& s : solved_) {
      for (size_t i = 0; i < s.num_decisions; ++i) {
        const Decision& d = plan_.decisions[s.first_decision + i];
        const int64_t stake = d.together_ps == 0 ? 0 : std::abs(d.together_ps - d.apart_ps);
        weight[s.first_decision + i] = stake * s.times;
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

  const Groundwork& ground_;
  const BackwardGraph& g_;
  const PlanOptions& options_;
  const GroupOrder order_;
  FusionPlan plan_;
  absl::flat_hash_map<std::string, size_t> solved_by_signature_;
  std::vector<Solved> solved_;
  absl::flat_hash_map<std::string, int64_t> alone_ps_;  // T of a single op, by its signature
};

absl::StatusOr<FusionPlan> PlanOnce(const BackwardGraph& lowered, const DeviceSpec& device,
                                    const PlanOptions& options, int64_t memory_ps_per_mib,
                                    GroupOrder order) {
  RG_ASSIGN_OR_RETURN(auto ground, Groundwork::Lay(lowered, device, options, memory_ps_per_mib));
  return Planner(*ground, options, order).Run();
}

// Plans under a ceiling: what kernels store for one another gets a price, raised until the ceiling
// holds. A plan that costs no time is tried first: the order that keeps least alive.
absl::Status PlanBelowCeiling(const DeviceSpec& device, const PlanOptions& options,
                              Planned& planned) {
  // Picoseconds a MiB: the first is 2% of what writing and reading one takes at 4 TB/s, the last
  // weighs more than any kernel's time.
  constexpr int64_t kPrices[] = {0, 10'000, 100'000, 1'000'000, 10'000'000, 1'000'000'000};
  int64_t least = -1;
  for (const int64_t price : kPrices) {
    for (const GroupOrder order : {GroupOrder::kProgram, GroupOrder::kLeastMemory}) {
      RG_ASSIGN_OR_RETURN(planned.plan, PlanOnce(planned.graph, device, options, price, order));
      planned.memory_ps_per_mib = price;
      const int64_t peak = planned.plan.summary.peak_bytes;
      if (peak <= options.max_memory_bytes) return absl::OkStatus();
      if (least < 0 || peak < least) least = peak;
    }
  }
  return absl::ResourceExhaustedError(
      absl::StrCat("no plan found whose values take at most ", options.max_memory_bytes,
                   " bytes at once; the least was ", least,
                   ", of which the graph's own inputs and outputs take a fixed part"));
}

}  // namespace

absl::StatusOr<Planned> PlanFusion(const BackwardGraph& graph, const DeviceSpec& device,
                                   const PlanOptions& options) {
  RG_RETURN_IF_ERROR(CheckNames(options));
  Planned planned;
  RG_ASSIGN_OR_RETURN(planned.graph, Lower(graph, options));
  std::vector<Decision> merges;
  if (Enabled(options, "merged_matmuls") && options.merging != PlanOptions::Merging::kNever) {
    const MergeOptions merge{.regardless = options.merging == PlanOptions::Merging::kAlways};
    RG_ASSIGN_OR_RETURN(MergedMatMuls merged, MergeMatMuls(planned.graph, device, merge));
    planned.graph = std::move(merged.graph);
    merges = std::move(merged.decisions);
  }
  if (options.max_memory_bytes > 0) {
    RG_RETURN_IF_ERROR(PlanBelowCeiling(device, options, planned));
  } else {
    RG_ASSIGN_OR_RETURN(planned.plan,
                        PlanOnce(planned.graph, device, options, 0, GroupOrder::kProgram));
  }
  if (options.decisions) {
    planned.plan.decisions.insert(planned.plan.decisions.begin(), merges.begin(), merges.end());
  }
  return planned;
}

}  // namespace retrograd
