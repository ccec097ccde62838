// The command line: what a plan is, what each kernel costs and why it is not another.
#include <CLI/CLI.hpp>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "graph/status.h"
#include "tools/explanation.h"
#include "tools/plan_options.h"

namespace retrograd {
namespace {

constexpr char kExamples[] = R"(Examples:
  fusion-explain plan golf_tiny --device h200
  fusion-explain plan step.bwd.pb --device mi300x --format json > plan.json
  fusion-explain plan transformer:layers=12,d=768 --device h200 --disable fusion

Text is at most 60 lines: three of summary, then the kernels that cost most with what bounds them,
then the refusals that tell most. JSON is complete; times are picoseconds.
GRAPH is a file (.bwd.pb, or .rgt as text) or the name of a model (`retrograd models`).)";

absl::Status ExplainPlan(const PlanArguments& arguments, const std::string& format) {
  if (format != "text" && format != "json") {
    return absl::InvalidArgumentError(
        absl::StrCat("--format ", format, ": there are text and json"));
  }
  std::string text;
  {
    Progress progress;
    RG_ASSIGN_OR_RETURN(const PlannedGraph graph, OpenAndPlan(arguments, &progress));
    progress.Step("placing its values in memory");
    RG_ASSIGN_OR_RETURN(const PeakMemory memory, PeakMemoryOf(graph));
    text = format == "json" ? ExplainAsJson(graph, memory, arguments.graph)
                            : ExplainAsText(graph, memory, arguments.graph);
  }
  std::fwrite(text.data(), 1, text.size(), stdout);
  return absl::OkStatus();
}

}  // namespace
}  // namespace retrograd

int main(int argc, char** argv) {
  CLI::App app("Explains which backward ops share a kernel, and why.", "fusion-explain");
  app.footer(retrograd::kExamples);
  app.require_subcommand(1);
  retrograd::PlanArguments arguments;
  std::string format = "text";
  CLI::App* plan = app.add_subcommand("plan", "Explain the plan of a graph for a device");
  retrograd::AddPlanOptions(plan, &arguments, "--device");
  plan->add_option("--format", format, "text or json")->capture_default_str();
  plan->footer(retrograd::kExamples);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error);
  }
  const absl::Status status = retrograd::ExplainPlan(arguments, format);
  return status.ok() ? 0 : retrograd::Report("fusion-explain", status);
}
