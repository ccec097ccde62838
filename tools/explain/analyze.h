// `fusion-explain analyze`: what a plan's kernels were predicted to take beside what they take,
// alone and within a run; and the same for fusions that the plan refuses.
#ifndef RETROGRAD_TOOLS_EXPLAIN_ANALYZE_H_
#define RETROGRAD_TOOLS_EXPLAIN_ANALYZE_H_

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tools/fit/model_error.h"
#include "tools/support/pipeline.h"

namespace retrograd {

class Device;

struct AnalyzeArguments {
  PlanArguments plan;
  std::string device = "host";  // where it runs: "cuda", "cuda:1"
  int repeat = 20;              // figures are medians of so many runs
  int counterfactual = 0;       // refused fusions that are built and timed
  bool cold = false;            // steps alone, with nothing in the caches
  bool json = false;
};

// A refused fusion, built: the kernels that differ, in the plan and with the fusion forced.
struct Counterfactual {
  std::string a, b;    // ops of both sides
  std::string failed;  // why it could not be had; what follows is 0 then
  double predicted_apart_us = 0, predicted_together_us = 0;
  double measured_apart_us = 0, measured_together_us = 0;
  double whole_apart_us = 0, whole_together_us = 0;  // of the whole backward
  // "right": the fusion takes longer; "wrong": shorter; "even": within kEvenShare, or 0.3 us.
  std::string verdict;
};
inline constexpr double kEvenShare = 0.02;

struct Analysis {
  std::string graph, device, model, spec;
  std::string note;                          // Executable::note
  double predicted_us = 0, measured_us = 0;  // of the whole backward
  std::string source;                        // by what times within a run were taken
  std::vector<ModelRow> rows;
  ModelError alone, within;  // of the rows' times alone and within a run
  std::vector<Counterfactual> counterfactuals;
};

// On the device that the arguments name, or on another, which is called so.
absl::StatusOr<Analysis> Analyze(const AnalyzeArguments& arguments, Progress* progress);
absl::StatusOr<Analysis> AnalyzeOn(const AnalyzeArguments& arguments, Device& device,
                                   Progress* progress);
std::string AnalysisAsText(const Analysis& analysis);
nlohmann::ordered_json AnalysisAsJson(const Analysis& analysis);

}  // namespace retrograd

#endif  // RETROGRAD_TOOLS_EXPLAIN_ANALYZE_H_
