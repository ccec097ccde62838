// Random graphs with a random plan over them, for the stages that look at groups and their prices
// but not into kernels: each op is a group of its own.
#ifndef RETROGRAD_TESTS_SUPPORT_PLANS_RANDOM_PLAN_H_
#define RETROGRAD_TESTS_SUPPORT_PLANS_RANDOM_PLAN_H_

#include <cstdint>

#include "fusion/plan/plan.h"
#include "graph/ir/backward_graph.h"

namespace retrograd {

struct RandomPlan {
  BackwardGraph graph;
  FusionPlan plan;
};

struct RandomPlanOptions {
  int ops = 40;
  int full_percent = 40;        // share of groups that fill the chip
  int accumulate_percent = 10;  // share of groups that add to a value in place, where they can
};

// Tensors of several sizes; outputs that are stored values, inputs, repeated, absent and of other
// strides; donated inputs; permitted take-overs; workspaces.
RandomPlan MakeRandomPlan(uint64_t seed, const RandomPlanOptions& options = {});

// The plan in which every op that computes is a group of its own, priced at 1 us, with no kernel.
FusionPlan OneGroupPerOp(const BackwardGraph& graph);

}  // namespace retrograd

#endif  // RETROGRAD_TESTS_SUPPORT_PLANS_RANDOM_PLAN_H_
