#include "tools/explain/explain_why.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "fusion/kernel/build/build.h"
#include "graph/base/status.h"
#include "tools/explain/explanation.h"
#include "tools/explain/op_names.h"
#include "tools/explain/plan_diff.h"
#include "tools/support/terminal_line.h"

namespace retrograd {
namespace {

constexpr size_t kLines = 60;
constexpr size_t kMostKernels = 5;  // a side, three lines each
constexpr size_t kMostFlips = 6;

std::string Us(int64_t ps) { return absl::StrFormat("%.3f us", static_cast<double>(ps) / 1e6); }

// The text in as many lines as it needs, broken at spaces.
void AddWrapped(absl::string_view indent, absl::string_view text, std::vector<std::string>* lines) {
  while (indent.size() + text.size() > kTerminalColumns) {
    const size_t room = kTerminalColumns - indent.size();
    const size_t space = text.rfind(' ', room);
    const size_t cut = space == absl::string_view::npos || space == 0 ? room : space;
    lines->push_back(absl::StrCat(indent, text.substr(0, cut)));
    text.remove_prefix(std::min(cut + (cut == space ? 1 : 0), text.size()));
  }
  lines->push_back(absl::StrCat(indent, text));
}

std::string Sentence(absl::string_view text) {
  return absl::StrCat(text, absl::EndsWith(text, ".") ? "" : ".");
}

std::string Cost(const WhySide& side) { return side.feasible ? Us(side.cost_ps) : "impossible"; }

void ListTerms(const Why& why, std::vector<std::string>* lines) {
  lines->push_back(absl::StrFormat("%-28s %16s %16s", "", "together", "apart"));
  lines->push_back(
      absl::StrFormat("%-28s %16s %16s", "cost of their region", Cost(why.share), Cost(why.part)));
  if (why.share.shared_launch_ps != why.part.shared_launch_ps) {
    lines->push_back(absl::StrFormat("%-28s %16s %16s", "won by shared launches",
                                     Us(why.share.shared_launch_ps),
                                     Us(why.part.shared_launch_ps)));
  }
  if (why.terms.empty()) return;
  lines->push_back(absl::StrFormat("%-28s %16d %16d", "kernels that differ",
                                   why.share.kernels.size(), why.part.kernels.size()));
  for (const WhyTerm& term : why.terms) {
    lines->push_back(absl::StrFormat("  %-26s %16s %16s   %+.3f us", term.name,
                                     Us(term.together_ps), Us(term.apart_ps),
                                     static_cast<double>(term.together_ps - term.apart_ps) / 1e6));
  }
}

std::string TermsOf(const Group& group) {
  std::vector<std::string> terms;
  for (const Term& term : group.terms) {
    terms.push_back(absl::StrCat(term.name, term.binds ? "* " : " ",
                                 absl::StrFormat("%.3f", static_cast<double>(term.ps) / 1e6)));
  }
  return absl::StrJoin(terms, ", ");
}

// What the binding term is made of: bytes, bandwidth, threads and bytes in flight.
std::string BindingOf(const Group& group) {
  for (const Term& term : group.terms) {
    if (term.binds) return absl::StrCat(term.name, " = ", term.formula);
  }
  return "";
}

void ListKernels(const BackwardGraph& graph, absl::string_view title, const WhySide& side,
                 std::vector<std::string>* lines) {
  if (side.kernels.empty()) return;
  std::vector<const WhyKernel*> kernels;
  for (const WhyKernel& kernel : side.kernels) kernels.push_back(&kernel);
  std::stable_sort(kernels.begin(), kernels.end(),
                   [](const WhyKernel* a, const WhyKernel* b) { return a->cost_ps > b->cost_ps; });
  lines->push_back(std::string(title));
  for (size_t i = 0; i < kernels.size() && i < kMostKernels; ++i) {
    const Group& group = kernels[i]->group;
    lines->push_back(absl::StrFormat("  %s: %s; %s", Us(kernels[i]->cost_ps),
                                     CountOps(graph, group.nodes), DescribeBody(group)));
    lines->push_back(absl::StrCat(
        "    ", TermsOf(group),
        kernels[i]->margin_ps > 0
            ? absl::StrFormat(", margin %.3f", static_cast<double>(kernels[i]->margin_ps) / 1e6)
            : ""));
    if (const std::string binding = BindingOf(group); !binding.empty()) {
      lines->push_back(absl::StrCat("    ", binding));
    }
  }
  if (kernels.size() > kMostKernels) {
    lines->push_back(absl::StrFormat("  ... and %d more", kernels.size() - kMostKernels));
  }
}

// The ops' names in the changed graph, where they are not the given ones.
std::string NamesThere(const Why& why, const Flip& flip) {
  if (flip.a == why.a && flip.b == why.b) return "";
  return absl::StrCat(" (there %", Index(flip.a), " and %", Index(flip.b), ")");
}

void ListFlips(const WhyAnswer& answer, std::vector<std::string>* lines) {
  if (!answer.flips.has_value()) return;
  const std::vector<Flip>& flips = answer.flips->flips;
  if (flips.empty()) {
    AddWrapped("",
               absl::StrCat("No single number by up to 16x, no batch by up to 16x and no dtype "
                            "flips it (",
                            answer.flips->tried, " plans of the region)."),
               lines);
    return;
  }
  lines->push_back(answer.why.together ? "They would be apart if" : "They would share a kernel if");
  for (size_t i = 0; i < flips.size() && i < kMostFlips; ++i) {
    AddWrapped(
        "  ",
        absl::StrCat(flips[i].change, ": ", flips[i].option, NamesThere(answer.why, flips[i])),
        lines);
  }
  if (flips.size() > kMostFlips) {
    lines->push_back(absl::StrFormat("  ... and %d more", flips.size() - kMostFlips));
  }
}

// Ops of the changed plan for a pair that is named as in the plan as given.
absl::StatusOr<PairChoice> ChoiceThere(const BackwardGraph& given, const BackwardGraph& changed,
                                       const NamedChoice& named) {
  const size_t comma = named.pair.find(',');
  if (comma == std::string::npos) {
    return absl::InvalidArgumentError(absl::StrCat(named.together ? "--force-fuse " : "--forbid ",
                                                   named.pair, ": name two ops, as in %12,%15"));
  }
  RG_ASSIGN_OR_RETURN(const auto pair,
                      FindPair(given, named.pair.substr(0, comma), named.pair.substr(comma + 1)));
  const std::optional<NodeId> a = Counterpart(given, pair.first, changed);
  const std::optional<NodeId> b = Counterpart(given, pair.second, changed);
  for (const auto& [there, here] : {std::pair(a, pair.first), std::pair(b, pair.second)}) {
    if (there.has_value()) continue;
    return absl::FailedPreconditionError(
        absl::StrCat(DescribeOp(given, here), " is not part of the changed graph"));
  }
  return PairChoice{.a = *a, .b = *b, .together = named.together};
}

absl::StatusOr<PlanOutline> OutlineOf(const PlannedGraph& graph, const std::string& name) {
  RG_ASSIGN_OR_RETURN(const PeakMemory memory, PeakMemoryOf(graph));
  return OutlineFromJson(ExplainAsJson(graph, memory, name), name);
}

// "golf_tiny, %3 and %5 apart": what was asked, for the heading.
std::string Heading(const PlanArguments& changed, const std::vector<NamedChoice>& choices) {
  std::string text = changed.graph;
  for (const NamedChoice& choice : choices) {
    absl::StrAppend(&text, choice.together ? ", fused " : ", apart ", choice.pair);
  }
  for (const std::string& name : changed.disable) absl::StrAppend(&text, ", without ", name);
  for (const std::string& name : changed.tighten) absl::StrAppend(&text, ", tight ", name);
  if (!changed.max_memory.empty()) absl::StrAppend(&text, ", at most ", changed.max_memory);
  if (changed.scale_rows != 1) absl::StrAppend(&text, ", rows x ", changed.scale_rows);
  if (!changed.dtype.empty()) absl::StrAppend(&text, ", ", changed.dtype);
  return text;
}

// What was decided about making the two one matmul; they may be the matmuls or parts of its result.
std::optional<Decision> MergeOf(const BackwardGraph& graph, const std::vector<Decision>& decisions,
                                NodeId a, NodeId b) {
  const NodeId one = BehindViews(graph, {a, 0}).node, other = BehindViews(graph, {b, 0}).node;
  for (const Decision& d : decisions) {
    std::vector<NodeId> matmuls = d.a;
    matmuls.insert(matmuls.end(), d.b.begin(), d.b.end());
    const bool about_matmuls = std::all_of(matmuls.begin(), matmuls.end(),
                                           [&](NodeId id) { return graph.op(id) == Op::matmul; });
    const auto about = [&](NodeId id) {
      return std::find(matmuls.begin(), matmuls.end(), id) != matmuls.end();
    };
    if (about_matmuls && about(one) && about(other)) return d;
  }
  return std::nullopt;
}

}  // namespace

absl::StatusOr<WhyAnswer> AnswerWhy(const PlanArguments& arguments, absl::string_view a,
                                    absl::string_view b, bool look_for_flips, Progress* progress) {
  WhyAnswer answer;
  RG_ASSIGN_OR_RETURN(answer.opened, Open(arguments, progress));
  const PlanOptions& options = answer.opened.options;
  progress->Step(absl::StrCat("planning ", arguments.graph, " for ", answer.opened.spec.name));
  int64_t memory_ps_per_mib = 0;
  std::vector<Decision> merges;
  std::vector<std::string> without;
  if (options.max_memory_bytes > 0) {
    RG_ASSIGN_OR_RETURN(Planned planned,
                        PlanFusion(answer.opened.original, answer.opened.spec, options));
    memory_ps_per_mib = planned.memory_ps_per_mib;
    without = std::move(planned.without);
    answer.lowered = std::move(planned.graph);
    merges = std::move(planned.plan.decisions);
  } else {
    RG_ASSIGN_OR_RETURN(LoweredGraph lowered,
                        LowerAndMerge(answer.opened.original, answer.opened.spec, options));
    answer.lowered = std::move(lowered.graph);
    merges = std::move(lowered.merges);
    without = std::move(lowered.without);
  }
  const PlanOptions chosen = Without(options, without);
  RG_ASSIGN_OR_RETURN(const auto pair, FindPair(answer.lowered, a, b));
  RG_ASSIGN_OR_RETURN(answer.why, ExplainWhy(answer.lowered, answer.opened.spec, chosen, pair.first,
                                             pair.second, memory_ps_per_mib));
  answer.merge = MergeOf(answer.lowered, merges, pair.first, pair.second);
  if (!look_for_flips) return answer;
  progress->Step("looking for what would flip it");
  const FlipQuestion question{.original = answer.opened.original,
                              .lowered = answer.lowered,
                              .device_text = answer.opened.spec_text,
                              .options = options,
                              .without = without,
                              .memory_ps_per_mib = memory_ps_per_mib,
                              .a = answer.why.a,
                              .b = answer.why.b,
                              .together = answer.why.together,
                              .can_meet = answer.why.never.empty()};
  RG_ASSIGN_OR_RETURN(answer.flips, FindFlips(question));
  return answer;
}

std::string WhyAsText(const WhyAnswer& answer, absl::string_view graph_name) {
  const Why& why = answer.why;
  std::vector<std::string> lines;
  lines.push_back(absl::StrCat(graph_name, " on ", answer.opened.spec.name, ":"));
  lines.push_back(absl::StrCat("  ", DescribeOp(answer.lowered, why.a)));
  lines.push_back(absl::StrCat("  ", DescribeOp(answer.lowered, why.b)));
  if (answer.merge.has_value()) AddWrapped("", Sentence(answer.merge->reason), &lines);
  if (!why.never.empty()) {
    AddWrapped("", Sentence(absl::StrCat("They can never share a kernel: ", why.never)), &lines);
  } else {
    AddWrapped("",
               absl::StrFormat(
                   "The plan computes them in %s. Their region: %d ops, %d atoms, %s as planned.",
                   why.together ? "one kernel" : "two kernels", why.region_ops, why.region_atoms,
                   Us(why.planned_ps)),
               &lines);
    if (why.one_atom)
      lines.push_back("They are one atom: joined before the search, undone to compare.");
    AddWrapped("", Sentence(absl::StrCat("Decisive: ", why.decides)), &lines);
    ListTerms(why, &lines);
    ListKernels(answer.lowered, "Together:", why.share, &lines);
    ListKernels(answer.lowered, "Apart:", why.part, &lines);
  }
  ListFlips(answer, &lines);
  std::string text;
  for (size_t i = 0; i < lines.size() && i < kLines; ++i)
    absl::StrAppend(&text, FitLine(lines[i]), "\n");
  return text;
}

absl::StatusOr<std::string> AnswerWhatIf(const PlanArguments& given, const PlanArguments& changed,
                                         const std::vector<NamedChoice>& choices,
                                         Progress* progress) {
  RG_ASSIGN_OR_RETURN(const PlannedGraph before, OpenAndPlan(given, progress));
  RG_ASSIGN_OR_RETURN(OpenedGraph opened, Open(changed, progress));
  if (!choices.empty()) {
    RG_ASSIGN_OR_RETURN(const LoweredGraph lowered,
                        LowerAndMerge(opened.original, opened.spec, opened.options));
    for (const NamedChoice& choice : choices) {
      RG_ASSIGN_OR_RETURN(opened.options.pairs.emplace_back(),
                          ChoiceThere(before.planned.graph, lowered.graph, choice));
    }
  }
  RG_ASSIGN_OR_RETURN(const PlannedGraph after, Plan(std::move(opened), changed.graph, progress));
  RG_ASSIGN_OR_RETURN(const PlanOutline a, OutlineOf(before, given.graph));
  RG_ASSIGN_OR_RETURN(const PlanOutline b, OutlineOf(after, Heading(changed, choices)));
  return PrintDiff(a, b, DiffPlans(a, b));
}

}  // namespace retrograd
