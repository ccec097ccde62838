// What changed between two plans: kernels by the ops that they compute, time, traffic and memory.
// Reads explanations as `plan --format json` writes them, so that a plan of last month compares.
#ifndef RETROGRAD_TOOLS_EXPLAIN_PLAN_DIFF_H_
#define RETROGRAD_TOOLS_EXPLAIN_PLAN_DIFF_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace retrograd {

// What a comparison looks at, of one plan.
struct PlanOutline {
  struct Kernel {
    // Who its ops are, sorted: module path, origin, instance and op name, and which such op of the
    // graph. Node numbers don't count: another lowering may number the same ops differently.
    std::vector<std::string> ops;
    std::string what;  // "mul 3, sum 2  from aten.add", for people
    std::string how;   // schedule or library call, with predicted registers and spills
    int64_t price_ps = 0;
    int64_t bytes = 0;  // read and written
  };
  std::string graph, device;
  std::vector<Kernel> kernels;
  int64_t launches = 0, price_ps = 0, bytes = 0, peak_bytes = 0;
};

// `name` leads the error messages.
absl::StatusOr<PlanOutline> OutlineFromJson(absl::string_view json, absl::string_view name);

struct PlanDiff {
  struct Change {
    size_t a, b;  // places in the kernels of either plan: the same ops, run otherwise
  };
  std::vector<size_t> removed, added;  // places in the kernels of a and of b, dearest first
  std::vector<Change> changed;         // largest change of price first
  size_t unchanged = 0;
  bool same = true;  // nothing of the above, and equal totals
};
PlanDiff DiffPlans(const PlanOutline& a, const PlanOutline& b);

// At most 60 lines of at most 120 columns.
std::string PrintDiff(const PlanOutline& a, const PlanOutline& b, const PlanDiff& diff);

// How much worse b may be: "slower:2%", "traffic:0%", "memory:5%", "kernels:10%".
struct DiffThreshold {
  std::string measure;
  double percent = 0;
};
absl::StatusOr<DiffThreshold> ParseDiffThreshold(absl::string_view text);

// Empty, or how b exceeds the threshold: "predicted time grew by 3.1%, over the allowed 2%".
std::string Exceeds(const DiffThreshold& threshold, const PlanOutline& a, const PlanOutline& b);

}  // namespace retrograd

#endif  // RETROGRAD_TOOLS_EXPLAIN_PLAN_DIFF_H_
