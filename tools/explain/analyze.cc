#include "tools/explain/analyze.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "graph/base/status.h"
#include "runtime/executable/executable.h"
#include "tools/execute/device_tensors.h"
#include "tools/execute/make_device.h"
#include "tools/execute/make_executable.h"
#include "tools/execute/step_times.h"
#include "tools/explain/explanation.h"

namespace retrograd {
namespace {

using Json = nlohmann::ordered_json;

constexpr uint64_t kInputSeed = 1;
constexpr size_t kWorst = 10;    // rows of the text
constexpr double kEvenUs = 0.3;  // below the repeatability of a measurement

double Microseconds(int64_t ps) { return static_cast<double>(ps) / 1e6; }

// A graph's inputs and outputs on a device, on which plans of the graph run.
class Bench {
 public:
  static absl::StatusOr<std::unique_ptr<Bench>> Make(const AnalyzeArguments& arguments,
                                                     const BackwardGraph& graph, Device& device) {
    auto bench = std::make_unique<Bench>(arguments, device);
    RG_ASSIGN_OR_RETURN(bench->inputs_, DrawInputs(graph, kInputSeed, &device, &bench->buffers_));
    RG_ASSIGN_OR_RETURN(bench->outputs_, AllocateOutputs(graph, &bench->buffers_));
    return bench;
  }
  Bench(const AnalyzeArguments& arguments, Device& device)
      : arguments_(arguments), device_(device), buffers_(&device) {}

  absl::StatusOr<Executable> Load(const OpenedGraph& graph, const std::string& name,
                                  Progress* progress) {
    return MakeExecutable(graph, name, {}, device_, progress);
  }
  // Median time of the whole.
  absl::StatusOr<double> Whole(Program& program) {
    RG_ASSIGN_OR_RETURN(const TimeSamples samples,
                        device_.Time([&] { return program.Run(inputs_, outputs_); },
                                     arguments_.repeat, /*cold=*/false));
    return Median(samples);
  }
  // By group, medians of the steps alone.
  absl::StatusOr<std::map<uint32_t, double>> Alone(
      Program& program, std::optional<absl::Span<const GroupId>> only = std::nullopt) {
    RG_ASSIGN_OR_RETURN(
        const std::vector<StepTime> times,
        program.TimeSteps(inputs_, outputs_, arguments_.repeat, arguments_.cold, only));
    std::map<uint32_t, double> alone;
    for (const StepTime& time : times) alone[Index(time.group)] = Median(time.microseconds);
    return alone;
  }
  absl::StatusOr<StepTrace> Trace(Program& program) {
    return program.Trace(inputs_, outputs_, arguments_.repeat);
  }

 private:
  const AnalyzeArguments& arguments_;
  Device& device_;
  Buffers buffers_;
  std::vector<const void*> inputs_;
  std::vector<void*> outputs_;
};

std::vector<ModelRow> RowsOf(const CompiledPlan& compiled, const std::map<uint32_t, double>& alone,
                             const StepTrace& trace) {
  std::map<uint32_t, double> within;
  for (const StepSpan& step : trace.steps) {
    if (step.group != kNoGroup) within[Index(step.group)] += step.end_us - step.begin_us;
  }
  std::vector<ModelRow> rows;
  for (const auto& [g, us] : alone) {
    const Group& group = compiled.plan.groups[g];
    rows.push_back({.group = g,
                    .kind = KindOf(group),
                    .ops = OpsOf(compiled.graph, group),
                    .how = DescribeBody(group),
                    .predicted_us = Microseconds(group.price_ps),
                    .alone_us = us,
                    .within_us = within.contains(g) ? within.at(g) : 0,
                    .read_bytes = group.read_bytes,
                    .written_bytes = group.written_bytes});
  }
  return rows;
}

ModelError ErrorOfRows(const std::vector<ModelRow>& rows, double ModelRow::*measured) {
  std::vector<double> predicted_us, measured_us;
  for (const ModelRow& row : rows) {
    predicted_us.push_back(row.predicted_us);
    measured_us.push_back(row.*measured);
  }
  return ErrorOf(predicted_us, measured_us);
}

// --- refused fusions

// Whether all of these are computed by kernels of ours.
bool InKernels(const FusionPlan& plan, const std::vector<NodeId>& nodes) {
  return std::all_of(nodes.begin(), nodes.end(), [&](NodeId id) {
    const GroupId group = plan.group_of[Index(id)];
    return group != kNoGroup && !KernelsOf(plan.groups[Index(group)]).empty();
  });
}

// Fusions of kernels that price alone refuses, those that lose least first; equal ones about
// different places once.
std::vector<const Decision*> CheapestRefusals(const BackwardGraph& graph, const FusionPlan& plan,
                                              size_t most) {
  std::vector<const Decision*> chosen;
  std::set<std::tuple<std::string, std::string, int64_t>> seen;
  for (const Refusal& refusal : Refusals(graph, plan)) {
    const Decision& d = *refusal.decision;
    if (d.together || !d.limit.empty() || d.a.empty() || d.b.empty()) continue;
    if (!InKernels(plan, d.a) || !InKernels(plan, d.b)) continue;
    const int64_t loss_ps = d.together_ps - d.apart_ps;
    if (seen.emplace(CountOps(graph, d.a), CountOps(graph, d.b), loss_ps).second) {
      chosen.push_back(&d);
    }
  }
  std::stable_sort(chosen.begin(), chosen.end(), [](const Decision* a, const Decision* b) {
    return a->together_ps - a->apart_ps < b->together_ps - b->apart_ps;
  });
  if (chosen.size() > most) chosen.resize(most);
  return chosen;
}

// Groups of one plan that the other does not have.
std::vector<GroupId> OnlyIn(const FusionPlan& plan, const FusionPlan& other) {
  std::vector<GroupId> only;
  for (uint32_t g = 0; g < plan.groups.size(); ++g) {
    const Group& group = plan.groups[g];
    const bool shared = std::any_of(other.groups.begin(), other.groups.end(), [&](const Group& o) {
      return o.nodes == group.nodes && o.recomputed == group.recomputed &&
             o.price_ps == group.price_ps && o.body == group.body;
    });
    if (!shared) only.push_back(GroupId{g});
  }
  return only;
}

double PredictedUs(const FusionPlan& plan, const std::vector<GroupId>& groups) {
  int64_t ps = 0;
  for (GroupId id : groups) ps += plan.groups[Index(id)].price_ps;
  return Microseconds(ps);
}

std::string Verdict(double apart_us, double together_us) {
  const double even = std::max(kEvenUs, kEvenShare * apart_us);
  if (std::abs(together_us - apart_us) <= even) return "even";
  return together_us > apart_us ? "right" : "wrong";
}

// The plan with the refused fusion forced, beside the plan.
absl::Status TimeForced(const OpenedGraph& graph, const Executable& executable, const Decision& d,
                        Bench* bench, Progress* progress, Counterfactual* result) {
  OpenedGraph forced = graph;
  forced.options.feedback = executable.feedback();
  forced.options.pairs.push_back({.a = d.a[0], .b = d.b[0], .together = true});
  RG_ASSIGN_OR_RETURN(const Executable other, bench->Load(forced, "a refused fusion", progress));
  const FusionPlan &a = executable.compiled().plan, &b = other.compiled().plan;
  const std::vector<GroupId> apart = OnlyIn(a, b), together = OnlyIn(b, a);
  result->predicted_apart_us = PredictedUs(a, apart);
  result->predicted_together_us = PredictedUs(b, together);
  RG_ASSIGN_OR_RETURN(const auto apart_us, bench->Alone(executable.program(), apart));
  RG_ASSIGN_OR_RETURN(const auto together_us, bench->Alone(other.program(), together));
  for (const auto& [g, us] : apart_us) result->measured_apart_us += us;
  for (const auto& [g, us] : together_us) result->measured_together_us += us;
  RG_ASSIGN_OR_RETURN(result->whole_apart_us, bench->Whole(executable.program()));
  RG_ASSIGN_OR_RETURN(result->whole_together_us, bench->Whole(other.program()));
  result->verdict = Verdict(result->measured_apart_us, result->measured_together_us);
  return absl::OkStatus();
}

std::string Percent(double share) { return absl::StrFormat("%.1f%%", 100 * share); }

std::string PrintError(const char* what, const ModelError& e) {
  return absl::StrFormat(
      "%-13s mean absolute error %s (mean %+.1f%%) of %d steps over %.0f us; %s of %d pairs in the "
      "right order\n",
      what, Percent(e.mean_absolute), 100 * e.mean_signed, e.steps, kLeastCountedUs,
      Percent(e.right_order), e.pairs);
}

Json ErrorJson(const ModelError& e) {
  return {{"steps", e.steps},
          {"mean_absolute_error", e.mean_absolute},
          {"mean_error", e.mean_signed},
          {"pairs", e.pairs},
          {"right_order", e.right_order}};
}

}  // namespace

absl::StatusOr<Analysis> Analyze(const AnalyzeArguments& arguments, Progress* progress) {
  RG_ASSIGN_OR_RETURN(const std::unique_ptr<Device> device, MakeDevice(arguments.device, {}));
  return AnalyzeOn(arguments, *device, progress);
}

absl::StatusOr<Analysis> AnalyzeOn(const AnalyzeArguments& arguments, Device& device,
                                   Progress* progress) {
  RG_ASSIGN_OR_RETURN(const OpenedGraph graph, Open(arguments.plan, progress, &device));
  RG_ASSIGN_OR_RETURN(const std::unique_ptr<Bench> bench,
                      Bench::Make(arguments, graph.original, device));
  RG_ASSIGN_OR_RETURN(const Executable executable,
                      bench->Load(graph, arguments.plan.graph, progress));
  progress->Step(absl::StrCat("timing ", arguments.plan.graph));
  Analysis analysis{.graph = arguments.plan.graph,
                    .device = arguments.device,
                    .model = device.Describe().model,
                    .spec = graph.spec.name,
                    .note = executable.note(),
                    .predicted_us = Microseconds(executable.compiled().schedule.makespan_ps)};
  RG_ASSIGN_OR_RETURN(analysis.measured_us, bench->Whole(executable.program()));
  RG_ASSIGN_OR_RETURN(const auto alone, bench->Alone(executable.program()));
  RG_ASSIGN_OR_RETURN(const StepTrace trace, bench->Trace(executable.program()));
  analysis.source = trace.source;
  analysis.rows = RowsOf(executable.compiled(), alone, trace);
  analysis.alone = ErrorOfRows(analysis.rows, &ModelRow::alone_us);
  analysis.within = ErrorOfRows(analysis.rows, &ModelRow::within_us);
  const BackwardGraph& lowered = executable.graph();
  for (const Decision* d : CheapestRefusals(lowered, executable.plan(),
                                            static_cast<size_t>(arguments.counterfactual))) {
    Counterfactual& result = analysis.counterfactuals.emplace_back();
    result.a = CountOps(lowered, d->a);
    result.b = CountOps(lowered, d->b);
    const absl::Status timed = TimeForced(graph, executable, *d, bench.get(), progress, &result);
    if (!timed.ok()) result.failed = std::string(timed.message());
  }
  return analysis;
}

std::string AnalysisAsText(const Analysis& analysis) {
  std::string text = absl::StrFormat(
      "%s on %s (%s), planned for %s: predicted %.1f us, measured %.1f us\n", analysis.graph,
      analysis.device, analysis.model, analysis.spec, analysis.predicted_us, analysis.measured_us);
  if (!analysis.note.empty()) absl::StrAppend(&text, "note: ", analysis.note, "\n");
  absl::StrAppend(&text, PrintError("alone:", analysis.alone),
                  PrintError("within a run:", analysis.within), "times within a run by ",
                  analysis.source, "\n\nfurthest off:\n   predicted      alone     within  step\n");
  std::vector<const ModelRow*> worst;
  for (const ModelRow& row : analysis.rows) worst.push_back(&row);
  std::stable_sort(worst.begin(), worst.end(), [](const ModelRow* a, const ModelRow* b) {
    return std::abs(a->predicted_us - a->alone_us) > std::abs(b->predicted_us - b->alone_us);
  });
  for (size_t i = 0; i < std::min(kWorst, worst.size()); ++i) {
    const ModelRow& row = *worst[i];
    absl::StrAppendFormat(&text, "  %10.1f %10.1f %10.1f  %d: %.80s\n", row.predicted_us,
                          row.alone_us, row.within_us, row.group, row.ops);
  }
  if (analysis.counterfactuals.empty()) return text;
  absl::StrAppend(&text,
                  "\nrefused fusions, built (us of the kernels that differ):\n"
                  "  predicted apart -> together    measured apart -> together  refusal\n");
  for (const Counterfactual& c : analysis.counterfactuals) {
    if (!c.failed.empty()) {
      absl::StrAppendFormat(&text, "  not built: %s | %s: %.100s\n", c.a, c.b, c.failed);
      continue;
    }
    absl::StrAppendFormat(&text, "  %12.1f -> %10.1f %14.1f -> %10.1f  %-7s %.40s | %.40s\n",
                          c.predicted_apart_us, c.predicted_together_us, c.measured_apart_us,
                          c.measured_together_us, c.verdict, c.a, c.b);
  }
  return text;
}

Json AnalysisAsJson(const Analysis& analysis) {
  Json steps = Json::array(), refused = Json::array();
  for (const ModelRow& row : analysis.rows) {
    steps.push_back({{"group", row.group},
                     {"kind", row.kind},
                     {"ops", row.ops},
                     {"how", row.how},
                     {"predicted_us", row.predicted_us},
                     {"alone_us", row.alone_us},
                     {"within_us", row.within_us},
                     {"read_bytes", row.read_bytes},
                     {"written_bytes", row.written_bytes}});
  }
  for (const Counterfactual& c : analysis.counterfactuals) {
    Json row = {{"a", c.a}, {"b", c.b}};
    if (!c.failed.empty()) {
      row["failed"] = c.failed;
    } else {
      row.update(Json{{"predicted_apart_us", c.predicted_apart_us},
                      {"predicted_together_us", c.predicted_together_us},
                      {"measured_apart_us", c.measured_apart_us},
                      {"measured_together_us", c.measured_together_us},
                      {"whole_apart_us", c.whole_apart_us},
                      {"whole_together_us", c.whole_together_us},
                      {"refusal", c.verdict}});
    }
    refused.push_back(std::move(row));
  }
  return {{"graph", analysis.graph},
          {"device", analysis.device},
          {"model", analysis.model},
          {"spec", analysis.spec},
          {"spec_note", analysis.note},
          {"predicted_us", analysis.predicted_us},
          {"measured_us", analysis.measured_us},
          {"source", analysis.source},
          {"alone", ErrorJson(analysis.alone)},
          {"within", ErrorJson(analysis.within)},
          {"steps", std::move(steps)},
          {"refused", std::move(refused)}};
}

}  // namespace retrograd
