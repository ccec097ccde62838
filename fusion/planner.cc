#include "fusion/planner.h"

#include <algorithm>
#include <memory>
#include <queue>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "fusion/atoms.h"
#include "fusion/decisions.h"
#include "fusion/kernel/build.h"
#include "fusion/layouts.h"
#include "fusion/library_calls.h"
#include "fusion/region_signature.h"
#include "fusion/regions.h"
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
    Schedule schedule;
  };
  std::vector<Part> parts;
  int64_t cost_ps = 0, bound_ps = 0, unfused_ps = 0, unfused_bytes = 0;
  bool exact = false;
  int64_t atoms = 0;
  int64_t times = 0;  // regions of the graph that are equal to it
  size_t first_decision = 0, num_decisions = 0;
};

class Planner {
 public:
  Planner(const BackwardGraph& graph, const DeviceSpec& device, const PlanOptions& options,
          const Limits& limits)
      : g_(graph),
        device_(device),
        options_(options),
        limits_(limits),
        layouts_(AssignLayouts(graph)),
        consumers_(graph),
        pricer_(graph, layouts_, consumers_, device, limits,
                {.vectorize = Enabled("vectorization"),
                 .split = Enabled("split_reductions"),
                 .persistent = Enabled("persistent_reductions"),
                 .schedule_salt = static_cast<int64_t>(options.random_schedules)}) {}

  absl::StatusOr<FusionPlan> Run() {
    plan_.device = device_.name;
    // Library calls first: what they absorb is no longer in any region.
    RG_ASSIGN_OR_RETURN(std::vector<Group> groups,
                        MakeLibraryGroups(g_, layouts_, consumers_, device_,
                                          {.casts = Enabled("cast_absorption"),
                                           .accumulates = Enabled("matmul_accumulate")}));
    std::vector<bool> taken(g_.num_nodes(), false);
    for (const Group& group : groups) {
      for (size_t i = 1; i < group.nodes.size(); ++i) taken[Index(group.nodes[i])] = true;
      plan_.summary.bound_ps += group.price_ps;
      plan_.summary.unfused_ps += group.price_ps;
      plan_.summary.unfused_bytes += group.read_bytes + group.written_bytes;
    }
    for (const Region& region : FindRegions(g_, consumers_, taken)) {
      RG_RETURN_IF_ERROR(PlanRegion(region, groups));
    }
    Order(std::move(groups));
    plan_.layouts = layouts_;
    Summarize();
    SortDecisions();
    return std::move(plan_);
  }

 private:
  bool Enabled(absl::string_view feature) const {
    return !options_.disable.contains(std::string(feature));
  }

  absl::Status PlanRegion(const Region& region, std::vector<Group>& groups) {
    const std::string signature = RegionSignature(g_, layouts_, consumers_, region);
    auto [at, added] = solved_.try_emplace(signature, solved_order_.size());
    if (added) solved_order_.push_back(SolveRegion(region));
    Solved& solved = solved_order_[at->second];
    ++solved.times;
    for (const Solved::Part& part : solved.parts) {
      std::vector<NodeId> ops;
      for (size_t position : part.positions) ops.push_back(region.ops[position]);
      RG_ASSIGN_OR_RETURN(Group group, pricer_.Make({ops, {}}, part.schedule));
      groups.push_back(std::move(group));
    }
    return absl::OkStatus();
  }

  Solved SolveRegion(const Region& region) {
    const bool contract = Enabled("fusion") && !limits_.any_tightened() &&
                          options_.search.random_seed == 0;
    const std::vector<Atom> atoms = FindAtoms(region, pricer_, contract);
    RegionSearch search(atoms, pricer_, options_.search);
    const Partition partition = Enabled("fusion") ? search.Solve() : SinglesOf(atoms, pricer_);
    Solved solved{.cost_ps = partition.cost_ps,
                  .exact = partition.exact,
                  .atoms = static_cast<int64_t>(atoms.size())};
    for (const Partition::Part& part : partition.parts) {
      const GroupOps group = OpsOfAtoms(atoms, part.atoms);
      Solved::Part out{.positions = {}, .schedule = part.schedule};
      for (NodeId id : group.ops) {
        out.positions.push_back(std::lower_bound(region.ops.begin(), region.ops.end(), id) -
                                region.ops.begin());
      }
      solved.parts.push_back(std::move(out));
    }
    solved.bound_ps = pricer_.LeastPs(pricer_.traffic().LeastBytes(region.ops, {}));
    PriceUnfused(region, solved);
    solved.first_decision = plan_.decisions.size();
    if (options_.decisions && Enabled("fusion") && options_.search.random_seed == 0) {
      for (Decision& d : ExplainRegion(atoms, partition, search, pricer_)) {
        plan_.decisions.push_back(std::move(d));
      }
    }
    solved.num_decisions = plan_.decisions.size() - solved.first_decision;
    return solved;
  }

  void PriceUnfused(const Region& region, Solved& solved) const {
    for (NodeId id : region.ops) {
      const GroupPrice p = pricer_.Evaluate(absl::MakeConstSpan(&id, 1));
      solved.unfused_ps += p.ps;
      solved.unfused_bytes += g_.type(id).size_bytes();
      for (ValueId v : g_.operands(id)) {
        if (!IsConstant(g_, BehindViews(g_, v).node)) solved.unfused_bytes += g_.type(v).size_bytes();
      }
    }
  }

  // A topological order of the groups: the ready group with the lowest op first.
  void Order(std::vector<Group> groups) {
    std::vector<uint32_t> owner(g_.num_nodes(), 0xffffffffu);
    for (uint32_t i = 0; i < groups.size(); ++i) {
      for (NodeId id : groups[i].nodes) owner[Index(id)] = i;
    }
    std::vector<std::vector<uint32_t>> users(groups.size());
    std::vector<int> waiting(groups.size(), 0);
    for (uint32_t i = 0; i < groups.size(); ++i) {
      std::vector<uint32_t> before;
      for (ValueId v : groups[i].inputs) {
        const uint32_t p = owner[Index(v.node)];
        if (p != 0xffffffffu && p != i) before.push_back(p);
      }
      std::sort(before.begin(), before.end());
      before.erase(std::unique(before.begin(), before.end()), before.end());
      waiting[i] = static_cast<int>(before.size());
      for (uint32_t p : before) users[p].push_back(i);
    }
    using Entry = std::pair<uint32_t, uint32_t>;  // last op, group
    std::priority_queue<Entry, std::vector<Entry>, std::greater<>> ready;
    auto push = [&](uint32_t i) { ready.push({Index(groups[i].nodes.back()), i}); };
    for (uint32_t i = 0; i < groups.size(); ++i) {
      if (waiting[i] == 0) push(i);
    }
    plan_.group_of.assign(g_.num_nodes(), kNoGroup);
    while (!ready.empty()) {
      const uint32_t i = ready.top().second;
      ready.pop();
      for (NodeId id : groups[i].nodes) {
        plan_.group_of[Index(id)] = GroupId{static_cast<uint32_t>(plan_.groups.size())};
      }
      for (uint32_t u : users[i]) {
        if (--waiting[u] == 0) push(u);
      }
      plan_.groups.push_back(std::move(groups[i]));
    }
    RG_CHECK(plan_.groups.size() == groups.size());
  }

  void Summarize() {
    PlanSummary& s = plan_.summary;
    for (const Group& group : plan_.groups) {
      s.ops += static_cast<int64_t>(group.nodes.size());
      s.price_ps += group.price_ps;
      s.bytes += group.read_bytes + group.written_bytes;
      const bool kernel = std::holds_alternative<KernelBody>(group.body);
      const bool scatter = kernel && std::get<KernelBody>(group.body).ir.scatter.has_value();
      s.kernels += scatter ? 3 : (kernel && group.workspace_bytes > 0 ? 2 : 1);
    }
    for (const Solved& solved : solved_order_) {
      s.regions += solved.times;
      ++s.distinct_regions;
      s.largest_region_atoms = std::max(s.largest_region_atoms, solved.atoms);
      s.bound_ps += solved.times * solved.bound_ps;
      s.unfused_ps += solved.times * solved.unfused_ps;
      s.unfused_bytes += solved.times * solved.unfused_bytes;
      if (!solved.exact) s.gap_ps += solved.times * std::max<int64_t>(solved.cost_ps - solved.bound_ps, 0);
    }
  }

  // The most telling first: most time at stake, over all equal regions.
  void SortDecisions() {
    std::vector<int64_t> weight(plan_.decisions.size(), 0);
    for (const Solved& s : solved_order_) {
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

  const BackwardGraph& g_;
  const DeviceSpec& device_;
  const PlanOptions& options_;
  const Limits& limits_;
  std::vector<Layout> layouts_;
  Consumers consumers_;
  GroupPricer pricer_;
  FusionPlan plan_;
  absl::flat_hash_map<std::string, size_t> solved_;
  std::vector<Solved> solved_order_;
};

}  // namespace

absl::StatusOr<Planned> PlanFusion(const BackwardGraph& graph, const DeviceSpec& device,
                                   const PlanOptions& options) {
  RG_RETURN_IF_ERROR(CheckNames(options));
  RG_ASSIGN_OR_RETURN(Limits limits, Limits::Make(device, options.tighten));
  Planned planned;
  RG_ASSIGN_OR_RETURN(planned.graph, Lower(graph, options));
  RG_ASSIGN_OR_RETURN(planned.plan, Planner(planned.graph, device, options, limits).Run());
  return planned;
}

}  // namespace retrograd
