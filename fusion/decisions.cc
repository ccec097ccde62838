#include "fusion/decisions.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace retrograd {
namespace {

std::string Us(int64_t ps) { return absl::StrFormat("%.2f us", static_cast<double>(ps) / 1e6); }


class Explainer {
 public:
  Explainer(const std::vector<Atom>& atoms, const Partition& chosen, RegionSearch& search,
            const GroupPricer& pricer, const DecisionOptions& options)
      : atoms_(atoms), chosen_(chosen), search_(search), pricer_(pricer), options_(options) {}

  std::vector<Decision> Run() {
    RefusedSchedules();
    if (static_cast<int>(atoms_.size()) <= options_.max_exact_atoms && chosen_.exact) Borders();
    return std::move(out_);
  }

 private:
  // One sentence a kernel about the schedule that would have spilled most.
  void RefusedSchedules() {
    for (const Partition::Part& part : chosen_.parts) {
      if (part.schedule.kind != Template::kRowColumn && part.schedule.kind != Template::kRowReduction) continue;
      const GroupOps group = OpsOf(part);
      const std::vector<NodeId>& ops = group.ops;
      if (ops.size() < 2) continue;
      std::vector<RefusedSchedule> refused = pricer_.Refused(group);
      if (refused.empty()) continue;
      const RefusedSchedule& fat = refused.front();
      Decision d{.a = ops,
                 .together = true,
                 .together_ps = part.ps,
                 .apart_ps = fat.price_ps,
                 .limit = fat.limit,
                 .reason = absl::StrCat("refused schedule: ", fat.reason, ", ", Us(fat.price_ps),
                                        " against ", Us(part.ps), " with ", part.schedule.Print())};
      d.alternatives.push_back({.nodes = ops,
                                .schedule = fat.schedule,
                                .registers = fat.footprint.registers_wanted,
                                .spill_bytes = fat.footprint.spill_bytes,
                                .price_ps = fat.price_ps,
                                .terms = fat.terms});
      out_.push_back(std::move(d));
    }
  }

  void Borders() {
    std::vector<std::pair<int, int>> pairs;
    std::vector<std::pair<size_t, size_t>> seen;
    for (size_t i = 0; i < atoms_.size(); ++i) {
      for (int n : atoms_[i].neighbours) {
        if (n <= static_cast<int>(i)) continue;
        const size_t p = PartOf(static_cast<int>(i)), q = PartOf(n);
        if (p == q) continue;
        const std::pair<size_t, size_t> key = std::minmax(p, q);
        if (std::find(seen.begin(), seen.end(), key) != seen.end()) continue;
        seen.push_back(key);
        pairs.push_back({static_cast<int>(i), n});
      }
    }
    if (static_cast<int>(pairs.size()) > options_.max_borders) pairs.resize(options_.max_borders);
    for (auto [a, b] : pairs) ExplainPair(a, b);
  }

  void ExplainPair(int a, int b) {
    Decision d{.a = atoms_[a].ops, .b = atoms_[b].ops, .together = false};
    d.apart_ps = chosen_.cost_ps;
    const Partition joined = search_.SolveWith({{.a = a, .b = b, .together = true}});
    if (joined.parts.empty()) {
      const GroupPrice p = search_.SmallestTogether(a, b);
      d.limit = p.feasible ? "search" : p.limit;
      d.reason = p.feasible ? "no plan with them together within the search's budget"
                            : absl::StrCat(p.limit, ": ", p.reason);
    } else {
      d.together_ps = joined.cost_ps;
      d.reason = absl::StrCat("together ", Us(joined.cost_ps), ", apart ", Us(chosen_.cost_ps),
                              ": joining loses ", Us(joined.cost_ps - chosen_.cost_ps));
      AddDiffering(joined, d);
    }
    out_.push_back(std::move(d));
  }

  // The kernels of the other plan that the chosen one does not have.
  void AddDiffering(const Partition& other, Decision& d) {
    for (const Partition::Part& part : other.parts) {
      const bool common = std::any_of(
          chosen_.parts.begin(), chosen_.parts.end(),
          [&](const Partition::Part& mine) { return mine.atoms == part.atoms; });
      if (common) continue;
      auto group = pricer_.Make(OpsOf(part), part.schedule);
      if (!group.ok()) continue;
      const KernelBody& body = std::get<KernelBody>(group->body);
      d.alternatives.push_back({.nodes = group->nodes,
                                .schedule = part.schedule,
                                .registers = body.registers,
                                .spill_bytes = body.spill_bytes,
                                .price_ps = group->price_ps,
                                .terms = group->terms});
    }
  }

  size_t PartOf(int atom) const {
    for (size_t p = 0; p < chosen_.parts.size(); ++p) {
      const std::vector<int>& atoms = chosen_.parts[p].atoms;
      if (std::binary_search(atoms.begin(), atoms.end(), atom)) return p;
    }
    return chosen_.parts.size();
  }

  GroupOps OpsOf(const Partition::Part& part) const {
    return OpsOfAtoms(atoms_, part.atoms);
  }

  const std::vector<Atom>& atoms_;
  const Partition& chosen_;
  RegionSearch& search_;
  const GroupPricer& pricer_;
  DecisionOptions options_;
  std::vector<Decision> out_;
};

}  // namespace

std::vector<Decision> ExplainRegion(const std::vector<Atom>& atoms, const Partition& chosen,
                                    RegionSearch& search, const GroupPricer& pricer,
                                    const DecisionOptions& options) {
  return Explainer(atoms, chosen, search, pricer, options).Run();
}

}  // namespace retrograd
