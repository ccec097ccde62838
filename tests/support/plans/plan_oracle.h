// Whether a planted fault matters: runs a plan's kernels and matmuls in double, group by group, on
// buffers that begin as NaN, and compares all that it stores with what the good plan stores. Slow
// and simple; shares nothing with the plan checker that it judges.
#ifndef RETROGRAD_TESTS_SUPPORT_PLANS_PLAN_ORACLE_H_
#define RETROGRAD_TESTS_SUPPORT_PLANS_PLAN_ORACLE_H_

#include <vector>

#include "fusion/plan/plan.h"
#include "graph/reference/reference.h"
#include "tests/support/plans/plan_faults.h"

namespace retrograd {

class PlanOracle {
 public:
  // Plans without attention, or whose attention is not run: see Matters.
  PlanOracle(const BackwardGraph& graph, const FusionPlan& good, uint32_t seed);

  // Faults in lists, layouts, buffers, schedules and dtypes break what other stages rely on,
  // whatever the numbers: they always matter. Others do if an output differs, or memory is overrun.
  bool Matters(PlanFault fault, const FusionPlan& plan) const;

 private:
  using Memory = std::vector<std::vector<double>>;         // by value_index, as its layout spans it
  bool Run(const FusionPlan& plan, Memory& memory) const;  // false: out of bounds or malformed
  std::vector<double> Outputs(const Memory& memory) const;
  bool PairMatters(const FusionPlan& plan) const;
  bool AttentionMatters(const FusionPlan& plan) const;

  const BackwardGraph& g_;
  const FusionPlan& good_;
  std::vector<Memory> inputs_;  // some draws of the graph's inputs
  std::vector<std::vector<double>> wanted_;
};

}  // namespace retrograd

#endif  // RETROGRAD_TESTS_SUPPORT_PLANS_PLAN_ORACLE_H_
