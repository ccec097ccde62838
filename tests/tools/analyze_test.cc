// What `fusion-explain analyze` tells: errors of predictions, steps alone and within a run, and
// refused fusions that were built.
#include "tools/explain/analyze.h"

#include <unistd.h>

#include <filesystem>

#include "tests/catch.h"
#include "tests/support/plans/matmul_epilogues.h"
#include "tests/support/reporting_device.h"
#include "tools/run/run.h"
#include "tools/support/text_file.h"

namespace retrograd {
namespace {

TEST_CASE("the model's error counts steps of over 10 us, and pairs that differ by over 5%") {
  //                                  20% long  right  10% short, too short to count
  const std::vector<double> predicted = {120, 50, 18, 99}, measured = {100, 50, 20, 9};
  const ModelError error = ErrorOf(predicted, measured);
  CHECK(error.steps == 3);
  CHECK(std::abs(error.mean_absolute - 0.1) < 1e-12);
  CHECK(std::abs(error.mean_signed - 0.1 / 3) < 1e-12);
  CHECK(error.pairs == 3);
  CHECK(error.right_order == 1);
}

TEST_CASE("a pair whose predictions stand in the wrong order, or are equal, is counted as wrong") {
  CHECK(ErrorOf({20, 30}, {40, 20}).right_order == 0);
  CHECK(ErrorOf({30, 30}, {40, 20}).right_order == 0);
  CHECK(ErrorOf({20, 30}, {40, 41}).pairs == 0);  // 2.5% apart: in no order
  CHECK(ErrorOf({}, {}).steps == 0);
}

TEST_CASE("an analysis on the host times every step alone and within a run, and builds refusals") {
  AnalyzeArguments arguments{.device = "host", .repeat = 2, .counterfactual = 2};
  arguments.plan.graph = "norm_stack:layers=2,rows=64,columns=48,dtype=fp32";
  Progress progress;
  const auto analysis = Analyze(arguments, &progress);
  INFO(analysis.status());
  REQUIRE(analysis.ok());
  REQUIRE(!analysis->rows.empty());
  for (const ModelRow& row : analysis->rows) {
    CHECK(row.predicted_us > 0);
    CHECK(row.alone_us > 0);
    CHECK(row.within_us > 0);
  }
  CHECK(analysis->counterfactuals.size() <= 2);
  for (const Counterfactual& c : analysis->counterfactuals) {
    INFO(c.failed);
    if (!c.failed.empty()) continue;
    CHECK(c.measured_apart_us > 0);
    CHECK(c.measured_together_us > 0);
    CHECK(c.predicted_together_us > 0);
  }
  const auto json = AnalysisAsJson(*analysis);
  CHECK(json.at("steps").size() == analysis->rows.size());
  CHECK(json.at("refused").size() == analysis->counterfactuals.size());
  CHECK_THAT(AnalysisAsText(*analysis), ContainsSubstring("mean absolute error"));
}

TEST_CASE("what is analyzed is what would run: the same kernels, launches and library calls") {
  const std::string graph =
      std::filesystem::temp_directory_path() / absl::StrCat("analyze_test_", getpid(), ".rgt");
  REQUIRE(WriteTextFile(graph, kMatMulWithEpilogue).ok());
  for (const bool epilogues : {true, false}) {
    INFO("epilogues " << epilogues);
    // One device for each, on which every run fails once the program is loaded.
    ReportingDevice analyzed({.epilogues = epilogues}), run({.epilogues = epilogues});
    Progress progress;
    AnalyzeArguments analyze_arguments;
    analyze_arguments.plan.graph = graph;
    const absl::Status after = AnalyzeOn(analyze_arguments, analyzed, &progress).status();
    CHECK(after.code() == absl::StatusCode::kUnimplemented);
    RunArguments run_arguments;
    run_arguments.plan.graph = graph;
    run_arguments.random = 1;
    CHECK(RunOn(run_arguments, run).status().code() == absl::StatusCode::kUnimplemented);
    REQUIRE(run.loads() == 1);
    CHECK((run.fused() > 0) == epilogues);
    CHECK(analyzed.kernels() == run.kernels());
    CHECK(analyzed.work() == run.work());
  }
  std::filesystem::remove(graph);
}

TEST_CASE("an analysis on a device that is not there says which there are") {
  AnalyzeArguments arguments{.device = "tpu"};
  arguments.plan.graph = "mlp:layers=1,tokens=8,in=8,hidden=8,out=8";
  Progress progress;
  const auto analysis = Analyze(arguments, &progress);
  REQUIRE(!analysis.ok());
  CHECK_THAT(std::string(analysis.status().message()), ContainsSubstring("there are host, cuda"));
}

}  // namespace
}  // namespace retrograd
