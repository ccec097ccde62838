#include "fusion/whatif/why.h"

#include <algorithm>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "fusion/cost/price_terms.h"
#include "fusion/planner/can_share_kernel.h"
#include "fusion/planner/plan_graph.h"
#include "fusion/planner/planning_context.h"
#include "graph/base/status.h"

namespace retrograd {
namespace {

std::string Us(int64_t ps) { return absl::StrFormat("%.3f us", static_cast<double>(ps) / 1e6); }

bool Holds(const std::vector<NodeId>& ops, NodeId id) {
  return std::binary_search(ops.begin(), ops.end(), id);
}

bool InOneAtom(const std::vector<Atom>& atoms, NodeId a, NodeId b) {
  return std::any_of(atoms.begin(), atoms.end(),
                     [&](const Atom& atom) { return Holds(atom.ops, a) && Holds(atom.ops, b); });
}

int KernelsThatCompute(const RegionPlan& plan, NodeId id) {
  int kernels = 0;
  for (const Partition::Part& part : plan.partition.parts) {
    kernels += Holds(OpsOfAtoms(plan.atoms, part.atoms).ops, id) ? 1 : 0;
  }
  return kernels;
}

absl::StatusOr<std::vector<WhyKernel>> Differing(const RegionPlan& plan, const RegionPlan& from,
                                                 const GroupPricer& pricer) {
  std::vector<WhyKernel> differing;
  for (const Partition::Part& part : plan.partition.parts) {
    const GroupOps ops = OpsOfAtoms(plan.atoms, part.atoms);
    const bool common =
        std::any_of(from.partition.parts.begin(), from.partition.parts.end(),
                    [&](const Partition::Part& other) {
                      const GroupOps theirs = OpsOfAtoms(from.atoms, other.atoms);
                      return theirs.ops == ops.ops && theirs.unstored == ops.unstored &&
                             theirs.kept == ops.kept && other.cost_ps == part.cost_ps;
                    });
    if (common) continue;
    WhyKernel kernel{.cost_ps = part.cost_ps};
    RG_ASSIGN_OR_RETURN(kernel.group, pricer.Make(ops, part.schedule));
    kernel.margin_ps = part.atoms.size() > 1 ? pricer.Margin(part.ps) : 0;
    differing.push_back(std::move(kernel));
  }
  return differing;
}

// Why the search found no plan under a choice; the sentences are those of planning under it.
void SayWhyNot(RegionPlanner& planner, const RegionPlan& found, const PairChoice& choice,
               WhySide& side) {
  if (!found.partition.exact) {
    side.limit = "search";
    side.reason = absl::StrCat("their region of ", planner.atoms().size(),
                               " atoms is too large to be solved under a choice");
    return;
  }
  const GroupPrice smallest = planner.SmallestTogether(choice.a, choice.b);
  if (choice.together && !smallest.feasible) {
    side.limit = smallest.limit;
    side.reason = smallest.reason;
    return;
  }
  side.limit = "connection";
  side.reason = choice.together ? "they share no tensor, and no kernel can hold all that joins them"
                                : "nothing that they are part of can be split";
}

std::vector<WhyTerm> SumTerms(const Why& why) {
  std::vector<WhyTerm> sums;
  const auto add = [&](absl::string_view name, int64_t WhyTerm::*side, int64_t ps) {
    if (ps == 0) return;
    const auto at = std::find_if(sums.begin(), sums.end(),
                                 [&](const WhyTerm& sum) { return sum.name == name; });
    WhyTerm& sum = at != sums.end() ? *at : sums.emplace_back(WhyTerm{std::string(name)});
    sum.*side += ps;
  };
  for (const auto& [kernels, side] : {std::pair(&why.share.kernels, &WhyTerm::together_ps),
                                      std::pair(&why.part.kernels, &WhyTerm::apart_ps)}) {
    for (const WhyKernel& kernel : *kernels) {
      for (const Term& term : kernel.group.terms) {
        if (Counts(term)) add(term.name, side, term.ps);
      }
      add("margin", side, kernel.margin_ps);
      add("memory", side, kernel.cost_ps - kernel.margin_ps - kernel.group.price_ps);
    }
  }
  return sums;
}

// What shared launches win in the plan of the whole graph under a choice.
absl::StatusOr<int64_t> SharedLaunchPs(const BackwardGraph& lowered, const DeviceSpec& device,
                                       const PlanOptions& options, const PairChoice& choice,
                                       RegionResults& solved) {
  PlanOptions under = options;
  under.pairs = {choice};
  under.decisions = false;
  RG_ASSIGN_OR_RETURN(const FusionPlan plan,
                      PlanGraph(lowered, device, under, 0, GroupOrder::kProgram, solved));
  return plan.summary.shared_launch_ps;
}

std::string SavesOrLoses(int64_t loss) {
  return absl::StrCat(loss > 0 ? "loses " : "saves ", Us(std::abs(loss)));
}

// What sharing loses (or, negative, saves) by one term.
int64_t Loss(const WhyTerm& term) { return term.together_ps - term.apart_ps; }

std::string Verdict(const Why& why) {
  if (!why.share.feasible) {
    return absl::StrCat("no plan has them together: ", why.share.limit, ": ", why.share.reason);
  }
  if (!why.part.feasible) {
    return absl::StrCat("no plan has them apart: ", why.part.limit, ": ", why.part.reason);
  }
  const int64_t loss = why.share.cost_ps - why.part.cost_ps;
  int64_t loss_of_margins = 0;
  const WhyTerm* most = nullptr;  // of those that pull the way of the whole
  for (const WhyTerm& term : why.terms) {
    if (term.name == "margin") loss_of_margins = Loss(term);
    const bool same_way = loss >= 0 ? Loss(term) > 0 : Loss(term) < 0;
    if (same_way && (most == nullptr || std::abs(Loss(term)) > std::abs(Loss(*most)))) most = &term;
  }
  std::string text = loss == 0 ? "both cost the same, and ties go to what is found first"
                               : absl::StrCat("sharing ", SavesOrLoses(loss));
  if (loss > 0 && loss <= loss_of_margins) {
    absl::StrAppend(&text, ": the margin decides; without it sharing saves ",
                    Us(loss_of_margins - loss), ", which is less than ", Us(loss_of_margins));
  } else if (loss != 0 && most != nullptr) {
    absl::StrAppend(&text, ", most of it by ", most->name, ": ", Us(most->together_ps),
                    " together, ", Us(most->apart_ps), " apart");
  }
  if (why.one_atom) {
    absl::StrAppend(&text,
                    "; the plan contracts one into the other, its only reader, before the "
                    "search, where no margin is asked");
  } else if (why.together != (loss < 0) && why.recomputed) {
    absl::StrAppend(&text,
                    "; the plan computes one of them again in each kernel that reads it, at ",
                    Us(why.planned_ps));
  }
  const int64_t launches = why.share.shared_launch_ps - why.part.shared_launch_ps;
  if (launches != 0) {
    absl::StrAppend(&text, "; with the launches that independent kernels share afterwards sharing ",
                    SavesOrLoses(loss - launches));
  }
  return text;
}

}  // namespace

bool ShareAKernel(const RegionPlan& plan, NodeId a, NodeId b) {
  return std::any_of(plan.partition.parts.begin(), plan.partition.parts.end(),
                     [&](const Partition::Part& part) {
                       const GroupOps ops = OpsOfAtoms(plan.atoms, part.atoms);
                       return Holds(ops.ops, a) && Holds(ops.ops, b);
                     });
}

absl::StatusOr<Why> ExplainWhy(const BackwardGraph& lowered, const DeviceSpec& device,
                               const PlanOptions& options, NodeId a, NodeId b,
                               int64_t memory_ps_per_mib) {
  for (NodeId id : {a, b}) {
    if (Index(id) < lowered.num_nodes()) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "%", Index(id), " does not exist: the lowered graph has ", lowered.num_nodes(), " ops"));
  }
  if (a == b) {
    return absl::InvalidArgumentError(
        absl::StrCat("%", Index(a), " twice: name two ops, to hear why they share a kernel"));
  }
  Why why{.a = std::min(a, b), .b = std::max(a, b)};
  RG_ASSIGN_OR_RETURN(const auto context,
                      PlanningContext::Make(lowered, device, options, memory_ps_per_mib));
  if (const absl::Status met = CanMeet(*context, why.a, why.b); !met.ok()) {
    why.never = std::string(met.message());
    why.decides = why.never;
    return why;
  }
  const RegionOptions region_options = RegionOptionsOf(options, context->limits);
  if (!region_options.fuse) {
    why.never = why.decides = "fusion is disabled";
    return why;
  }
  why.region = context->region_of[Index(a)];
  const Region& region = context->regions[why.region];
  RegionPlanner free(region, context->pricer, region_options);
  const RegionPlan planned = free.Solve();
  why.region_ops = static_cast<int64_t>(region.ops.size());
  why.region_atoms = static_cast<int64_t>(free.atoms().size());
  why.planned_ps = planned.partition.cost_ps;
  why.together = ShareAKernel(planned, why.a, why.b);
  why.one_atom = InOneAtom(free.atoms(), why.a, why.b);
  why.recomputed = KernelsThatCompute(planned, why.a) > 1 || KernelsThatCompute(planned, why.b) > 1;

  const PairChoice both{.a = why.a, .b = why.b, .together = true};
  const PairChoice each{.a = why.a, .b = why.b, .together = false};
  RegionPlanner planner(region, context->pricer, region_options, absl::MakeConstSpan(&both, 1));
  const RegionPlan share = planner.Solve(absl::MakeConstSpan(&both, 1));
  const RegionPlan part = planner.Solve(absl::MakeConstSpan(&each, 1));
  for (const auto& [plan, other, choice, side] : {std::tuple(&share, &part, &both, &why.share),
                                                  std::tuple(&part, &share, &each, &why.part)}) {
    side->feasible = !plan->partition.parts.empty();
    side->cost_ps = plan->partition.cost_ps;
    if (!side->feasible) {
      side->cost_ps = 0;
      SayWhyNot(planner, *plan, *choice, *side);
      continue;
    }
    RG_ASSIGN_OR_RETURN(side->kernels, Differing(*plan, *other, context->pricer));
  }
  if (why.share.feasible && why.part.feasible) {
    why.terms = SumTerms(why);
    if (Enabled(options, "horizontal") && options.max_memory_bytes == 0) {
      RegionResults solved;
      for (const auto& [choice, side] : {std::pair(&both, &why.share), {&each, &why.part}}) {
        RG_ASSIGN_OR_RETURN(side->shared_launch_ps,
                            SharedLaunchPs(lowered, device, options, *choice, solved));
      }
    }
  }
  why.decides = Verdict(why);
  return why;
}

}  // namespace retrograd
