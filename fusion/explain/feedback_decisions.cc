#include "fusion/explain/feedback_decisions.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace retrograd {
namespace {

std::string Us(int64_t ps) { return absl::StrFormat("%.2f us", static_cast<double>(ps) / 1e6); }

// The chosen plan's kernel of the same ops, or nullptr.
const Partition::Part* SameOps(const RegionPlan& plan, const GroupOps& group) {
  for (const Partition::Part& part : plan.partition.parts) {
    const GroupOps other = OpsOfAtoms(plan.atoms, part.atoms);
    if (other.ops == group.ops && other.unstored == group.unstored) return &part;
  }
  return nullptr;
}

Decision Explain(const GroupOps& group, const Partition::Part& part,
                 const CompiledResources& compiled, const RegionPlan& chosen,
                 const GroupPricer& pricer) {
  const Partition::Part* now = SameOps(chosen, group);
  Decision d{.a = group.ops,
             .together = now != nullptr,
             .together_ps = now != nullptr ? now->ps : part.ps,
             .apart_ps = now != nullptr ? part.ps : chosen.partition.cost_ps,
             .limit = "registers"};
  d.reason = absl::StrCat(
      "planned again: ", pricer.feedback().compiler, " spills ", compiled.spill_bytes,
      " B a thread at ", compiled.registers, " registers of ", part.schedule.Print(),
      ", predicted to take ", Us(part.ps), "; ",
      now != nullptr ? absl::StrCat(now->schedule.Print(), " takes ", Us(now->ps))
                     : absl::StrCat("its ops are now in other kernels, and the region's "
                                    "plan costs ",
                                    Us(chosen.partition.cost_ps)));
  d.alternatives.push_back({.nodes = group.ops,
                            .schedule = part.schedule,
                            .registers = static_cast<int>(compiled.registers),
                            .spill_bytes = compiled.spill_bytes,
                            .price_ps = part.ps});
  return d;
}

}  // namespace

std::vector<Decision> ExplainFeedback(const Region& region, const RegionPlan& chosen,
                                      const GroupPricer& pricer, const RegionOptions& options,
                                      absl::Span<const PairChoice> pairs) {
  std::vector<Decision> decisions;
  if (pricer.feedback().empty()) return decisions;
  const GroupPricer before = pricer.WithoutFeedback();
  RegionPlanner planner(region, before, options, pairs);
  const RegionPlan plan = planner.Solve(pairs);
  for (const Partition::Part& part : plan.partition.parts) {
    const GroupOps group = OpsOfAtoms(plan.atoms, part.atoms);
    const CompiledResources* compiled = pricer.Compiled(group, part.schedule);
    if (compiled == nullptr || compiled->spill_bytes == 0) continue;
    // An op that fits no schedule keeps what spills least.
    const Partition::Part* now = SameOps(chosen, group);
    if (now != nullptr && now->schedule == part.schedule) continue;
    decisions.push_back(Explain(group, part, *compiled, chosen, pricer));
  }
  return decisions;
}

}  // namespace retrograd
