#include "tools/execute/timeline.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tools/execute/step_times.h"

namespace retrograd {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kPredicted = 1, kMeasured = 2;  // process numbers of the trace
constexpr size_t kNameLength = 80;

double Microseconds(int64_t ps) { return static_cast<double>(ps) / 1e6; }

// Slices as the schedule foresees them; a join that needs no launch is none.
std::vector<StepSpan> PredictedSpans(const CompiledPlan& compiled) {
  std::vector<StepSpan> spans;
  for (const Step& step : compiled.schedule.steps) {
    if (AliasOf(compiled.plan.groups[Index(step.group)]) != nullptr) continue;
    spans.push_back({.group = step.group,
                     .stream = step.stream,
                     .begin_us = Microseconds(step.start_ps),
                     .end_us = Microseconds(step.end_ps)});
  }
  return spans;
}

Json Name(const char* what, int process, int stream, const std::string& name) {
  return {
      {"ph", "M"}, {"pid", process}, {"tid", stream}, {"name", what}, {"args", {{"name", name}}}};
}

// By group: how long its step takes. Negative: it has none.
std::vector<double> Durations(const std::vector<StepSpan>& steps, size_t groups) {
  std::vector<double> durations(groups, -1);
  for (const StepSpan& step : steps) {
    if (step.group != kNoGroup) durations[Index(step.group)] = step.end_us - step.begin_us;
  }
  return durations;
}

Json Slice(const CompiledPlan& compiled, const StepSpan& step, int process,
           const std::vector<double>& predicted, const std::vector<double>& measured) {
  Json slice = {{"ph", "X"},
                {"pid", process},
                {"tid", step.stream},
                {"ts", step.begin_us},
                {"dur", step.end_us - step.begin_us}};
  if (step.group == kNoGroup) {
    slice["name"] = "copy to an output";
    slice["cat"] = "copy";
    slice["args"] = Json::object();
    return slice;
  }
  const uint32_t g = Index(step.group);
  const Group& group = compiled.plan.groups[g];
  slice["name"] = absl::StrCat(g, ": ", OpsOf(compiled.graph, group).substr(0, kNameLength));
  slice["cat"] = KindOf(group);
  Json& arguments = slice["args"] = {
      {"group", g}, {"read_bytes", group.read_bytes}, {"written_bytes", group.written_bytes}};
  if (predicted[g] >= 0) arguments["predicted_us"] = predicted[g];
  if (measured[g] >= 0) arguments["measured_us"] = measured[g];
  return slice;
}

std::string PrintFigures(const char* side, const TimelineFigures& f) {
  return absl::StrFormat("%s: total %.1f us, busy %.1f us, idle %.1f%%, overlap %.1f%%\n", side,
                         f.total_us, f.busy_us, 100 * f.idle_share, 100 * f.overlap_share);
}

Json FiguresJson(const TimelineFigures& f) {
  return {{"total_us", f.total_us},
          {"busy_us", f.busy_us},
          {"idle_percent", 100 * f.idle_share},
          {"overlap_percent", 100 * f.overlap_share}};
}

}  // namespace

TimelineFigures FiguresOf(const std::vector<StepSpan>& steps) {
  std::vector<std::pair<double, double>> spans;
  double sum = 0;
  for (const StepSpan& step : steps) {
    spans.emplace_back(step.begin_us, step.end_us);
    sum += step.end_us - step.begin_us;
  }
  TimelineFigures figures;
  if (spans.empty()) return figures;
  std::sort(spans.begin(), spans.end());
  double until = spans[0].first;
  for (const auto& [begin, end] : spans) {
    figures.busy_us += std::max(0.0, end - std::max(begin, until));
    until = std::max(until, end);
  }
  figures.total_us = until - spans[0].first;
  if (figures.total_us <= 0) return figures;
  figures.idle_share = 1 - figures.busy_us / figures.total_us;
  figures.overlap_share = (sum - figures.busy_us) / figures.total_us;
  return figures;
}

std::string Timeline::Print() const {
  std::string text = absl::StrCat(
      PrintFigures("predicted", predicted_figures), PrintFigures("measured ", measured_figures),
      "measured by ", measured.source, absl::StrFormat("; untraced %.1f us", untraced_us));
  if (!measured.without.empty()) absl::StrAppend(&text, "; ", measured.without);
  return text + "\n";
}

std::string Timeline::ChromeTrace(const CompiledPlan& compiled) const {
  const size_t groups = compiled.plan.groups.size();
  const std::vector<double> predicted_us = Durations(predicted, groups);
  const std::vector<double> measured_us = Durations(measured.steps, groups);
  Json events = Json::array();
  events.push_back(Name("process_name", kPredicted, 0, "predicted"));
  events.push_back(
      Name("process_name", kMeasured, 0, absl::StrCat("measured (", measured.source, ")")));
  for (int process : {kPredicted, kMeasured}) {
    for (int stream = 0; stream < compiled.schedule.streams; ++stream) {
      events.push_back(Name("thread_name", process, stream, absl::StrCat("stream ", stream)));
    }
  }
  for (const StepSpan& step : predicted) {
    events.push_back(Slice(compiled, step, kPredicted, predicted_us, measured_us));
  }
  for (const StepSpan& step : measured.steps) {
    events.push_back(Slice(compiled, step, kMeasured, predicted_us, measured_us));
  }
  const Json document = {{"displayTimeUnit", "ns"},
                         {"otherData",
                          {{"graph", compiled.graph.name()},
                           {"source", measured.source},
                           {"without", measured.without},
                           {"untraced_us", untraced_us},
                           {"predicted", FiguresJson(predicted_figures)},
                           {"measured", FiguresJson(measured_figures)}}},
                         {"traceEvents", std::move(events)}};
  return document.dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace) + "\n";
}

Timeline MakeTimeline(const CompiledPlan& compiled, StepTrace measured, double untraced_us) {
  Timeline timeline{.predicted = PredictedSpans(compiled),
                    .measured = std::move(measured),
                    .untraced_us = untraced_us};
  timeline.predicted_figures = FiguresOf(timeline.predicted);
  timeline.measured_figures = FiguresOf(timeline.measured.steps);
  return timeline;
}

}  // namespace retrograd
