// The command line: what a plan is, what each kernel costs and why it is not another.
#include <CLI/CLI.hpp>
#include <cstdio>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "graph/base/status.h"
#include "tools/execute/tuned_file.h"
#include "tools/explain/analyze.h"
#include "tools/explain/explain_why.h"
#include "tools/explain/explanation.h"
#include "tools/explain/plan_diff.h"
#include "tools/explain/plan_export.h"
#include "tools/explain/plan_html.h"
#include "tools/explain/plan_options.h"
#include "tools/explain/plan_ranges.h"
#include "tools/support/parse_arguments.h"
#include "tools/support/text_file.h"

namespace retrograd {
namespace {

constexpr char kExamples[] = R"(Examples:
  fusion-explain plan golf_tiny --device h200
  fusion-explain plan step.bwd.pb --device mi300x --format json > plan.json
  fusion-explain plan transformer:layers=12,d=768 --device h200 --disable fusion
  fusion-explain plan golf_tiny --device h200 --format html --streams 3 -o golf.html
  fusion-explain plan golf_tiny --device h200 --tuned golf.tuned.textproto
  fusion-explain plan step.bwd.pb --device h200 --range length=64..4096
  fusion-explain diff before.json after.json --fail-if slower:2%
  fusion-explain diff before.json golf_tiny --device h200
  fusion-explain export golf_tiny --device h200 --to perfetto -o golf.trace.json
  fusion-explain export golf_tiny --to dot | dot -Tsvg > golf.svg
  fusion-explain why golf_tiny %57 %58 --device h200
  fusion-explain whatif golf_tiny --forbid %57,%58 --set max_registers=128
  fusion-explain analyze golf_gpt_34m_b32 --device cuda --counterfactual 8

Text is at most 60 lines: four of summary, then the kernels that cost most with what bounds them,
then the refusals that tell most. JSON is complete; times are picoseconds.
HTML is one file that needs no network: timeline, kernels, terms, sources, refusals.
GRAPH is a file (.bwd.pb, or .rgt as text) or the name of a model (`retrograd models`).)";

// Where and how a plan is written.
struct OutputArguments {
  std::string format = "text";
  int streams = 0;    // of the timeline
  std::string file;   // empty: stdout
  std::string tuned;  // a file of choices, which are shown; empty: none
  std::string range;  // of sizes, instead of one plan; empty: one plan
};

absl::StatusOr<std::string> ExplainAs(const PlanArguments& arguments,
                                      const OutputArguments& output) {
  Progress progress;
  Choices choices;
  if (!output.tuned.empty()) {
    RG_ASSIGN_OR_RETURN(choices, ReadChoices(output.tuned));
  }
  RG_ASSIGN_OR_RETURN(PlannedGraph graph, OpenAndPlan(arguments, &progress));
  graph.choices = std::move(choices);
  progress.Step("placing its values in memory");
  RG_ASSIGN_OR_RETURN(const PeakMemory memory, PeakMemoryOf(graph));
  if (output.format == "json") return ExplainAsJson(graph, memory, arguments.graph);
  if (output.format == "text") return ExplainAsText(graph, memory, arguments.graph);
  progress.Step("printing its kernels");
  RG_ASSIGN_OR_RETURN(const StreamSchedule schedule, ScheduleOf(graph, output.streams));
  return ExplainAsHtml(graph, schedule, memory, arguments.graph);
}

absl::Status ExplainRanges(const PlanArguments& arguments, const OutputArguments& output) {
  if (output.format != "text" && output.format != "json") {
    return absl::InvalidArgumentError(
        absl::StrCat("--format ", output.format, ": with --range there are text and json"));
  }
  if (!output.tuned.empty() || output.streams != 0) {
    return absl::InvalidArgumentError("--tuned and --streams are of one plan, and --range of many");
  }
  RG_ASSIGN_OR_RETURN(const SizeRange range, ParseSizeRange(output.range));
  std::string text;
  {
    Progress progress;
    RG_ASSIGN_OR_RETURN(const PlanRanges ranges, FindPlanRanges(arguments, range, &progress));
    text = output.format == "json" ? RangesAsJson(ranges) : RangesAsText(ranges);
  }
  return WriteTextFile(output.file, text);
}

absl::Status ExplainPlan(const PlanArguments& arguments, const OutputArguments& output) {
  if (!output.range.empty()) return ExplainRanges(arguments, output);
  if (output.format != "text" && output.format != "json" && output.format != "html") {
    return absl::InvalidArgumentError(
        absl::StrCat("--format ", output.format, ": there are text, json and html"));
  }
  RG_ASSIGN_OR_RETURN(const std::string text, ExplainAs(arguments, output));
  return WriteTextFile(output.file, text);
}

constexpr char kDiffNote[] =
    R"(Exit status: 0 if the plans are the same, 1 if not, 2 if one of them could not be had.
With --fail-if (repeatable) 1 only if the second is worse by more than that: slower:P%, traffic:P%,
memory:P% (the peak) or kernels:P%.)";

// One side of a diff: an explanation as JSON, or a graph that is planned here.
absl::StatusOr<PlanOutline> OutlineOf(const PlanArguments& arguments, Progress* progress) {
  if (absl::EndsWith(arguments.graph, ".json")) {
    RG_ASSIGN_OR_RETURN(const std::string json, ReadTextFile(arguments.graph));
    return OutlineFromJson(json, arguments.graph);
  }
  RG_ASSIGN_OR_RETURN(const PlannedGraph graph, OpenAndPlan(arguments, progress));
  RG_ASSIGN_OR_RETURN(const PeakMemory memory, PeakMemoryOf(graph));
  return OutlineFromJson(ExplainAsJson(graph, memory, arguments.graph), arguments.graph);
}

// Whether the plans differ (beyond the thresholds, if there are any).
absl::StatusOr<bool> ExplainDiff(const PlanArguments& arguments, const std::string& other,
                                 const std::vector<std::string>& fail_if) {
  std::vector<DiffThreshold> thresholds;
  for (const std::string& text : fail_if) {
    RG_ASSIGN_OR_RETURN(thresholds.emplace_back(), ParseDiffThreshold(text));
  }
  Progress progress;
  PlanArguments arguments_of_b = arguments;
  arguments_of_b.graph = other;
  RG_ASSIGN_OR_RETURN(const PlanOutline a, OutlineOf(arguments, &progress));
  RG_ASSIGN_OR_RETURN(const PlanOutline b, OutlineOf(arguments_of_b, &progress));
  const PlanDiff diff = DiffPlans(a, b);
  RG_RETURN_IF_ERROR(WriteTextFile("-", PrintDiff(a, b, diff)));
  bool fails = thresholds.empty() && !diff.same;
  for (const DiffThreshold& threshold : thresholds) {
    const std::string excess = Exceeds(threshold, a, b);
    if (excess.empty()) continue;
    fails = true;
    RG_RETURN_IF_ERROR(WriteTextFile("-", absl::StrCat("FAIL: ", excess, "\n")));
  }
  return fails;
}

absl::Status ExportPlan(const PlanArguments& arguments, const OutputArguments& output) {
  if (output.format != "perfetto" && output.format != "dot") {
    return absl::InvalidArgumentError(
        absl::StrCat("--to ", output.format, ": there are perfetto and dot"));
  }
  std::string text;
  {
    Progress progress;
    RG_ASSIGN_OR_RETURN(const PlannedGraph graph, OpenAndPlan(arguments, &progress));
    RG_ASSIGN_OR_RETURN(const StreamSchedule schedule, ScheduleOf(graph, output.streams));
    text = output.format == "dot" ? ExportDot(graph) : ExportPerfetto(graph, schedule);
  }
  return WriteTextFile(output.file, text);
}

constexpr char kWhyNote[] =
    R"(A and B name ops, of the lowered graph by number (%123; `retrograd dump GRAPH --stage lower`) or by
where they came from: an original op with the number of its call (aten.mul#7), a module
(blocks.3.attn.q), or both (blocks.3.attn.q:aten.mul#7). A name of several calls is answered with a
list. What would flip the answer is looked for in numbers of the device, the batch and the dtype, each
by up to 16 times; the option that is printed applies it.)";

// Which ops, and how the answer is written.
struct WhyArguments {
  std::string a, b;
  bool no_flip = false;
};

absl::Status ExplainPairOf(const PlanArguments& arguments, const WhyArguments& why,
                           const OutputArguments& output) {
  if (output.format != "text" && output.format != "json") {
    return absl::InvalidArgumentError(
        absl::StrCat("--format ", output.format, ": there are text and json"));
  }
  std::string text;
  {
    Progress progress;
    RG_ASSIGN_OR_RETURN(const WhyAnswer answer,
                        AnswerWhy(arguments, why.a, why.b, !why.no_flip, &progress));
    text = output.format == "json" ? WhyAsJson(answer, arguments.graph)
                                   : WhyAsText(answer, arguments.graph);
  }
  return WriteTextFile(output.file, text);
}

constexpr char kWhatIfNote[] =
    R"(The plan as given (GRAPH and --device alone) is compared with the plan under all the other options.
Exit status: 0 if both plans could be had, 1 if not: the message names the limit that a choice breaks,
or the least memory that a plan was found for.)";

// The choices and the other device of a whatif.
struct WhatIfArguments {
  std::vector<std::string> fuse, forbid;
  std::string other_spec;
};

absl::Status ExplainWhatIf(const PlanArguments& arguments, const WhatIfArguments& whatif) {
  PlanArguments changed = arguments;
  if (!whatif.other_spec.empty()) changed.spec = whatif.other_spec;
  const PlanArguments given{
      .graph = arguments.graph, .spec = arguments.spec, .bind = arguments.bind};
  std::vector<NamedChoice> choices;
  for (const std::string& pair : whatif.fuse) choices.push_back({pair, true});
  for (const std::string& pair : whatif.forbid) choices.push_back({pair, false});
  std::string text;
  {
    Progress progress;
    RG_ASSIGN_OR_RETURN(text, AnswerWhatIf(given, changed, choices, &progress));
  }
  return WriteTextFile("-", text);
}

constexpr char kAnalyzeNote[] =
    R"(Inputs are drawn at random. Each kernel and library call is timed alone, again and again, and
within a run of the whole. The error counts steps of more than 10 us, the order pairs of them that
differ by more than 5%. --counterfactual N forces the N refused fusions that are predicted to lose
least, one at a time, and times the kernels that differ.)";

absl::Status ExplainAnalysis(const AnalyzeArguments& arguments, const std::string& file) {
  std::string text;
  {
    Progress progress;
    RG_ASSIGN_OR_RETURN(const Analysis analysis, Analyze(arguments, &progress));
    text = arguments.json ? AnalysisAsJson(analysis).dump(1, ' ', true) + "\n"
                          : AnalysisAsText(analysis);
  }
  return WriteTextFile(file, text);
}

void AddOutputOptions(CLI::App* command, OutputArguments* output) {
  command
      ->add_option("--streams", output->streams,
                   "Streams of the timeline, 1 to 16; 0: as many as gain")
      ->capture_default_str();
  command->add_option("-o,--output", output->file, "File to write; default: stdout");
}

}  // namespace
}  // namespace retrograd

int main(int argc, char** argv) {
  CLI::App app("Explains which backward ops share a kernel, and why.", "fusion-explain");
  app.footer(retrograd::kExamples);
  app.require_subcommand(1);
  retrograd::PlanArguments arguments;
  retrograd::OutputArguments plan_output;
  CLI::App* plan = app.add_subcommand("plan", "Explain the plan of a graph for a device");
  retrograd::AddPlanOptions(plan, &arguments, "--device");
  retrograd::AddGraphChanges(plan, &arguments);
  plan->add_option("--format", plan_output.format, "text, json or html (one file for a browser)")
      ->capture_default_str();
  retrograd::AddOutputOptions(plan, &plan_output);
  plan->add_option("--tuned", plan_output.tuned,
                   "File of `retrograd tune`: shows the implementations of library calls");
  plan->add_option("--range", plan_output.range,
                   "Plans at many sizes of one symbol: which kernels, schedules and size classes "
                   "of library calls hold from where to where; the others stay as --bind says")
      ->type_name("NAME=LOW..HIGH[:STEP]");
  plan->footer(retrograd::kExamples);

  retrograd::PlanArguments diff_arguments;
  std::string other;
  std::vector<std::string> fail_if;
  CLI::App* diff = app.add_subcommand("diff", "Compare two plans (exit status 1: they differ)");
  retrograd::AddPlanOptions(diff, &diff_arguments, "--device");
  diff->add_option("other", other, "What to compare with: like GRAPH; both may be .json plans")
      ->required()
      ->type_name("GRAPH");
  diff->add_option("--fail-if", fail_if, "Exit with 1 only beyond this: slower:2%; repeatable")
      ->allow_extra_args(false);
  diff->footer(retrograd::kDiffNote);

  retrograd::PlanArguments export_arguments;
  retrograd::OutputArguments export_output;
  CLI::App* export_command =
      app.add_subcommand("export", "Write the plan in another viewer's format");
  retrograd::AddPlanOptions(export_command, &export_arguments, "--device");
  export_command
      ->add_option("--to", export_output.format,
                   "perfetto (the predicted timeline as a trace) or dot (the fused graph)")
      ->required();
  retrograd::AddOutputOptions(export_command, &export_output);

  retrograd::PlanArguments why_arguments;
  retrograd::WhyArguments why_ops;
  retrograd::OutputArguments why_output;
  CLI::App* why = app.add_subcommand("why", "Say why two ops share a kernel or don't");
  retrograd::AddPlanOptions(why, &why_arguments, "--device");
  retrograd::AddGraphChanges(why, &why_arguments);
  why->add_option("a", why_ops.a, "An op")->required()->type_name("A");
  why->add_option("b", why_ops.b, "Another")->required()->type_name("B");
  why->add_flag("--no-flip", why_ops.no_flip, "Don't look for what would flip the answer");
  why->add_option("--format", why_output.format, "text or json")->capture_default_str();
  why->add_option("-o,--output", why_output.file, "File to write; default: stdout");
  why->footer(retrograd::kWhyNote);

  retrograd::PlanArguments whatif_arguments;
  retrograd::WhatIfArguments whatif_choices;
  CLI::App* whatif = app.add_subcommand("whatif", "Compare the plan with that under other choices");
  retrograd::AddPlanOptions(whatif, &whatif_arguments, "--device");
  retrograd::AddGraphChanges(whatif, &whatif_arguments);
  whatif->add_option("--force-fuse", whatif_choices.fuse, "Two ops in one kernel; repeatable")
      ->type_name("A,B")
      ->allow_extra_args(false);
  whatif->add_option("--forbid", whatif_choices.forbid, "Two ops in two kernels; repeatable")
      ->type_name("A,B")
      ->allow_extra_args(false);
  whatif->add_option("--to-device", whatif_choices.other_spec, "Another device");
  whatif->footer(retrograd::kWhatIfNote);

  retrograd::AnalyzeArguments analyze_arguments;
  std::string analyze_file;
  CLI::App* analyze =
      app.add_subcommand("analyze", "Run a plan's kernels and compare with what was predicted");
  retrograd::AddPlanOptions(analyze, &analyze_arguments.plan, "--spec", "that of where it runs");
  analyze->add_option("--device", analyze_arguments.device, "Where to run: host, cuda or cuda:N")
      ->capture_default_str();
  analyze->add_option("--repeat", analyze_arguments.repeat, "Runs; figures are medians")
      ->check(CLI::Range(1, 10000))
      ->capture_default_str();
  analyze
      ->add_option("--counterfactual", analyze_arguments.counterfactual,
                   "Refused fusions to build and time")
      ->check(CLI::Range(0, 1000));
  analyze->add_flag("--cold", analyze_arguments.cold,
                    "Drive the caches empty before each step that is timed alone");
  analyze->add_flag("--json", analyze_arguments.json, "Every step, as JSON");
  analyze->add_option("-o,--output", analyze_file, "File to write; default: stdout");
  analyze->footer(retrograd::kAnalyzeNote);

  if (const std::optional<int> done = retrograd::ParseArguments(app, argc, argv)) return *done;
  if (diff->parsed()) {
    const absl::StatusOr<bool> differs = retrograd::ExplainDiff(diff_arguments, other, fail_if);
    if (differs.ok()) return *differs ? 1 : 0;
    retrograd::Report("fusion-explain", differs.status());
    return 2;
  }
  const absl::Status status =
      export_command->parsed() ? retrograd::ExportPlan(export_arguments, export_output)
      : why->parsed()          ? retrograd::ExplainPairOf(why_arguments, why_ops, why_output)
      : whatif->parsed()       ? retrograd::ExplainWhatIf(whatif_arguments, whatif_choices)
      : analyze->parsed()      ? retrograd::ExplainAnalysis(analyze_arguments, analyze_file)
                               : retrograd::ExplainPlan(arguments, plan_output);
  return status.ok() ? 0 : retrograd::Report("fusion-explain", status);
}
