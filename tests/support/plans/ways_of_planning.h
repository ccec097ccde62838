// Every way in which a graph may be planned, each to the same gradients.
#ifndef RETROGRAD_TESTS_SUPPORT_PLANS_WAYS_OF_PLANNING_H_
#define RETROGRAD_TESTS_SUPPORT_PLANS_WAYS_OF_PLANNING_H_

#include <cstdint>
#include <string>
#include <vector>

#include "tests/support/plans/run_plan.h"

namespace retrograd {

struct Way {
  std::string name;
  RunSetup setup;
};

// The host's kernels in the checking build, blocks and commands in an order drawn by the seed.
RunSetup CheckedSetup(uint32_t seed);

// Each part of the planner switched off, each limit tightened, random partitions and schedules,
// streams, memory without reuse, wavefronts of 64, epilogues wherever a kernel could be one. As
// many for every seed, in the same order.
std::vector<Way> WaysOfPlanning(uint32_t seed);

}  // namespace retrograd

#endif  // RETROGRAD_TESTS_SUPPORT_PLANS_WAYS_OF_PLANNING_H_
