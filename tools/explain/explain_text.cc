// The explanation as text: four lines of summary, the kernels that cost most and what bounds them,
// the refusals that tell most.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "fusion/plan/call_key.h"
#include "tools/explain/explanation.h"
#include "tools/support/terminal_line.h"

namespace retrograd {
namespace {

constexpr size_t kLines = 60;
constexpr size_t kMostKernels = 13;   // two lines each
constexpr size_t kMostChoices = 2;    // of a call, a line each
constexpr size_t kKernelLines = 48;   // of all kernels, with the summary above them
constexpr size_t kMostMerged = 3;     // up to three lines each
constexpr size_t kMostRefusals = 12;  // two or three lines each

double Ratio(int64_t a, int64_t b) {
  return b == 0 ? 1 : static_cast<double>(a) / static_cast<double>(b);
}

void Summarise(const PlannedGraph& graph, const PeakMemory& memory, absl::string_view name,
               std::vector<std::string>* lines) {
  const PlanSummary& s = graph.planned.plan.summary;
  lines->push_back(absl::StrFormat(
      "%s on %s%s: %d ops%s -> %d kernels and library calls; predicted %s, unfused %s (%.2fx)",
      name, graph.spec.name, graph.spec.calibrated ? "" : " (uncalibrated)", s.ops,
      s.recomputed_ops == 0 ? "" : absl::StrCat(" and ", s.recomputed_ops, " again"), s.kernels,
      PrintTime(s.price_ps), PrintTime(s.unfused_ps), Ratio(s.unfused_ps, s.price_ps)));
  if (!graph.sizes.empty()) lines->push_back(absl::StrCat("planned at ", graph.sizes));
  lines->push_back(absl::StrFormat(
      "traffic %s (unfused %s); memory %s: inputs %s, outputs %s, arena %s (without reuse %s)",
      PrintBytes(s.bytes), PrintBytes(s.unfused_bytes), PrintBytes(memory.total()),
      PrintBytes(memory.inputs_bytes), PrintBytes(memory.outputs_bytes),
      PrintBytes(memory.arena_bytes), PrintBytes(memory.without_reuse_bytes)));
  lines->push_back(absl::StrFormat(
      "lower bound %s (%.0f%%): unavoidable bytes at full bandwidth + one launch a kernel",
      PrintTime(s.bound_ps), 100 * Ratio(s.bound_ps, s.price_ps)));
  lines->push_back(absl::StrFormat(
      "gap to the model's optimum %s; %d regions, %d distinct, at most %d atoms; values alive at "
      "once %s",
      s.gap_ps == 0 ? "0, proven" : absl::StrCat("<= ", PrintTime(s.gap_ps)), s.regions,
      s.distinct_regions, s.largest_region_atoms, PrintBytes(s.peak_bytes)));
  if (s.launches_saved == 0) return;
  lines->push_back(absl::StrFormat(
      "independent kernels share launches: %d fewer, which wins %s; the gap does not cover that",
      s.launches_saved, PrintTime(s.shared_launch_ps)));
}

// Who makes a library call, where that was timed: by whom, and by which of their plans.
void ListChoices(const Group& group, const Choices& choices, std::vector<std::string>* lines) {
  const Call* call = CallOf(group);
  if (call == nullptr || choices.empty()) return;
  const auto timed = ChoicesFor(choices, CallKey(*call));
  for (size_t i = 0; i < timed.size() && i < kMostChoices; ++i) {
    const auto& [key, choice] = *timed[i];
    const std::string model = key.device.substr(0, key.device.find(','));
    lines->push_back(absl::StrFormat("%8stimed on %s, %s: 1 of %d, %s", "", model, key.kind,
                                     choice.candidates.size(), Describe(choice)));
  }
}

void ListKernels(const PlannedGraph& graph, size_t most, std::vector<std::string>* lines) {
  const FusionPlan& plan = graph.planned.plan;
  const std::vector<KernelKind> kinds = KernelKinds(graph.planned.graph, plan);
  int64_t total = 0;
  for (const KernelKind& kind : kinds) total += kind.total_ps;
  lines->push_back(
      absl::StrFormat("Most expensive of %d distinct kernels and calls:", kinds.size()));
  for (size_t i = 0; i < kinds.size() && i < most; ++i) {
    if (lines->size() + 2 + kMostChoices > kKernelLines) break;
    const KernelKind& kind = kinds[i];
    lines->push_back(absl::StrFormat(
        "%5.1f%% %9s  %4s  %s", 100 * Ratio(kind.total_ps, total), PrintTime(kind.total_ps),
        absl::StrCat(kind.groups.size(), "x"),
        absl::StrCat(kind.ops, kind.origins.empty() ? "" : "  from ", kind.origins)));
    lines->push_back(absl::StrFormat("%8sgroup %d: %s%s%s", "", Index(kind.groups[0]), kind.how,
                                     kind.binds.empty() ? "" : "; bound by ", kind.binds));
    ListChoices(plan.groups[Index(kind.groups[0])], graph.choices, lines);
  }
}

// The text in lines of at most kTerminalColumns, broken at spaces, at most three of them.
void AddWrapped(absl::string_view indent, absl::string_view text, std::vector<std::string>* lines) {
  const size_t room = kTerminalColumns - indent.size();
  for (int line = 1; line < 3 && text.size() > room; ++line) {
    const size_t space = text.rfind(' ', room);
    const size_t cut = space == absl::string_view::npos ? room : space;
    lines->push_back(absl::StrCat(indent, text.substr(0, cut)));
    text.remove_prefix(std::min(cut + 1, text.size()));
  }
  lines->push_back(absl::StrCat(indent, text));
}

void ListMerged(const PlannedGraph& graph, std::vector<std::string>* lines) {
  const std::vector<MergedMatMul> merged = MergedMatMulsOf(graph.planned.graph, graph.planned.plan);
  if (!merged.empty()) lines->push_back("Merged matmuls:");
  for (size_t i = 0; i < merged.size() && i < kMostMerged; ++i) {
    const Decision& d = *merged[i].decision;
    AddWrapped("  ", absl::StrCat(merged[i].times, "x, as %", Index(d.a[0]), ": ", d.reason),
               lines);
  }
}

void ListRefusals(const PlannedGraph& graph, size_t most_lines, std::vector<std::string>* lines) {
  const std::vector<Refusal> refusals = Refusals(graph.planned.graph, graph.planned.plan);
  if (refusals.empty() || lines->size() + 2 > most_lines) return;
  lines->push_back(
      absl::StrFormat("Most telling of %d refused fusions and schedules:", refusals.size()));
  for (const Refusal& refusal : MostTelling(refusals, kMostRefusals)) {
    const Decision& d = *refusal.decision;
    std::vector<std::string> entry{
        absl::StrFormat("  %s%s  [%s]", refusal.sides,
                        refusal.times > 1 ? absl::StrFormat("  (%d times)", refusal.times) : "",
                        d.limit.empty() ? "cost" : d.limit)};
    AddWrapped("    ", d.reason, &entry);
    if (lines->size() + entry.size() > most_lines) return;
    lines->insert(lines->end(), entry.begin(), entry.end());
  }
}

}  // namespace

std::string ExplainAsText(const PlannedGraph& graph, const PeakMemory& memory,
                          absl::string_view name) {
  std::vector<std::string> lines;
  Summarise(graph, memory, name, &lines);
  ListKernels(graph, kMostKernels, &lines);
  ListMerged(graph, &lines);
  ListRefusals(graph, kLines, &lines);
  std::string text;
  for (const std::string& line : lines) absl::StrAppend(&text, FitLine(line), "\n");
  return text;
}

}  // namespace retrograd
