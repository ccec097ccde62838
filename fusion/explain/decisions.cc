#include "fusion/explain/decisions.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "fusion/kernel/templates/kernel_template.h"
#include "graph/base/status.h"

namespace retrograd {
namespace {

std::string Us(int64_t ps) { return absl::StrFormat("%.2f us", static_cast<double>(ps) / 1e6); }

// The part that holds an op as its own, not one recomputed there.
size_t PartOf(const RegionPlan& plan, NodeId id) {
  for (size_t p = 0; p < plan.partition.parts.size(); ++p) {
    for (int a : plan.partition.parts[p].atoms) {
      const std::vector<NodeId>& ops = plan.atoms[a].ops;
      if (std::binary_search(ops.begin(), ops.end(), id)) return p;
    }
  }
  return plan.partition.parts.size();
}

GroupOps OpsOf(const RegionPlan& plan, const Partition::Part& part) {
  return OpsOfAtoms(plan.atoms, part.atoms);
}

// The kernels of one plan that the other does not have.
std::vector<Decision::Alternative> Differing(const RegionPlan& plan, const RegionPlan& from,
                                             const GroupPricer& pricer) {
  std::vector<Decision::Alternative> differing;
  for (const Partition::Part& part : plan.partition.parts) {
    const GroupOps ops = OpsOf(plan, part);
    const bool common =
        std::any_of(from.partition.parts.begin(), from.partition.parts.end(),
                    [&](const Partition::Part& other) {
                      const GroupOps theirs = OpsOf(from, other);
                      return theirs.ops == ops.ops && theirs.unstored == ops.unstored;
                    });
    if (common) continue;
    auto group = pricer.Make(ops, part.schedule);
    if (!group.ok()) continue;
    Decision::Alternative alternative{.nodes = group->nodes,
                                      .schedule = part.schedule,
                                      .price_ps = group->price_ps,
                                      .terms = group->terms};
    if (const KernelBody* body = KernelOf(*group)) {
      alternative.registers = body->registers;
      alternative.spill_bytes = body->spill_bytes;
    }
    differing.push_back(std::move(alternative));
  }
  return differing;
}

class RegionExplainer {
 public:
  RegionExplainer(RegionPlanner& planner, const RegionPlan& chosen, const GroupPricer& pricer,
                  const DecisionOptions& options)
      : planner_(planner), chosen_(chosen), pricer_(pricer), options_(options) {}

  std::vector<Decision> Run() {
    RefusedSchedules();
    const bool small = static_cast<int>(planner_.atoms().size()) <= options_.max_exact_atoms;
    if (small && chosen_.partition.exact) Borders();
    return std::move(out_);
  }

 private:
  // One sentence a kernel about the schedule that would have spilled most.
  void RefusedSchedules() {
    for (const Partition::Part& part : chosen_.partition.parts) {
      if (TemplateOf(part.schedule).walk != Walk::kRows) continue;
      const GroupOps group = OpsOf(chosen_, part);
      if (group.ops.size() < 2) continue;
      std::vector<RefusedSchedule> refused = pricer_.Refused(group);
      if (refused.empty()) continue;
      const RefusedSchedule& fat = refused.front();
      Decision d{.a = group.ops,
                 .together = true,
                 .together_ps = part.ps,
                 .apart_ps = fat.price_ps,
                 .limit = fat.limit,
                 .reason = absl::StrCat("refused schedule: ", fat.reason, ", ", Us(fat.price_ps),
                                        " against ", Us(part.ps), " with ", part.schedule.Print())};
      d.alternatives.push_back({.nodes = group.ops,
                                .schedule = fat.schedule,
                                .registers = fat.footprint.registers_wanted,
                                .spill_bytes = fat.footprint.spill_bytes,
                                .price_ps = fat.price_ps,
                                .terms = fat.terms});
      out_.push_back(std::move(d));
    }
  }

  // One pair of neighbouring atoms for each two parts that meet.
  void Borders() {
    const std::vector<Atom>& atoms = planner_.atoms();
    std::vector<int> borders(chosen_.partition.parts.size(), 0);
    std::set<std::pair<size_t, size_t>> seen;
    for (size_t i = 0; i < atoms.size(); ++i) {
      for (int n : atoms[i].neighbours) {
        const NodeId a = atoms[i].ops.back(), b = atoms[n].ops.back();
        const size_t p = PartOf(chosen_, a), q = PartOf(chosen_, b);
        if (n <= static_cast<int>(i) || p == q || !seen.insert(std::minmax(p, q)).second) continue;
        if (p >= borders.size() || q >= borders.size()) continue;  // recomputed by all its readers
        if (borders[p] == options_.max_borders || borders[q] == options_.max_borders) continue;
        ++borders[p];
        ++borders[q];
        out_.push_back(ExplainPair(planner_, chosen_, pricer_, a, b));
      }
    }
  }

  RegionPlanner& planner_;
  const RegionPlan& chosen_;
  const GroupPricer& pricer_;
  DecisionOptions options_;
  std::vector<Decision> out_;
};

}  // namespace

std::vector<Decision> ExplainRegion(RegionPlanner& planner, const RegionPlan& chosen,
                                    const GroupPricer& pricer, const DecisionOptions& options) {
  return RegionExplainer(planner, chosen, pricer, options).Run();
}

Decision ExplainPair(RegionPlanner& planner, const RegionPlan& chosen, const GroupPricer& pricer,
                     NodeId a, NodeId b) {
  const bool together = PartOf(chosen, a) == PartOf(chosen, b);
  Decision d{.a = planner.atoms()[planner.AtomOf(a)].ops,
             .b = planner.atoms()[planner.AtomOf(b)].ops,
             .together = together};
  const PairChoice choice{.a = a, .b = b, .together = !together};
  const RegionPlan other = planner.Solve(absl::MakeConstSpan(&choice, 1));
  const int64_t cost = chosen.partition.cost_ps, other_cost = other.partition.cost_ps;
  (together ? d.together_ps : d.apart_ps) = cost;
  if (!other.partition.parts.empty()) {
    (together ? d.apart_ps : d.together_ps) = other_cost;
    d.reason = absl::StrCat("together ", Us(d.together_ps), ", apart ", Us(d.apart_ps), ": ",
                            together ? "split" : "joining", " loses ", Us(other_cost - cost));
    d.alternatives = Differing(other, chosen, pricer);
    return d;
  }
  const GroupPrice smallest = planner.SmallestTogether(a, b);
  const bool fits = together || smallest.feasible;
  d.limit = fits ? "search" : smallest.limit;
  d.reason = fits ? "no plan under the other choice within the search's budget"
                  : absl::StrCat(smallest.limit, ": ", smallest.reason);
  return d;
}

}  // namespace retrograd
