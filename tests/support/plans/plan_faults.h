// Faults planted into good plans, as a planner's mistake would leave them: tests show that the plan
// checker catches them.
#ifndef RETROGRAD_TESTS_SUPPORT_PLANS_PLAN_FAULTS_H_
#define RETROGRAD_TESTS_SUPPORT_PLANS_PLAN_FAULTS_H_

#include <cstdint>
#include <optional>
#include <random>
#include <string>

#include "fusion/plan/plan.h"

namespace retrograd {

// The kinds, and how many there are.
enum class PlanFault {
  // What belongs where.
  kOpMissing,
  kOpTwice,
  kOpElsewhere,
  kOrderSwapped,
  kOwnerWrong,
  kInputMissing,
  kInputInvented,
  kOutputMissing,
  kOutputInvented,
  kRecomputeUndeclared,
  kRecomputeInvented,
  // What a kernel computes.
  kLayoutChanged,
  kStoreMissing,
  kStoreTwice,
  kStoreOffset,
  kStoreInstr,
  kLoadOffset,
  kLoadBuffer,
  kGuardMoved,
  kGuardMissing,
  kFillChanged,
  kConstantChanged,
  kIndexChanged,
  kOpChanged,
  kOperandChanged,
  kOperandsSwapped,
  kDTypeChanged,
  kRoundMissing,
  kFoldChanged,
  kExtentChanged,
  kLookupChanged,
  kScatterChanged,
  kBufferSpan,
  kBufferDType,
  kBufferAlignment,
  kBufferValue,
  // How it is walked, and in which bytes.
  kTemplateWrong,
  kBlocksWrong,
  kThreadsWrong,
  kWidthWrong,
  kSplitWrong,
  kWorkspaceSmall,
  kInPlaceIllegal,
  // Library calls.
  kMatMulDims,
  kMatMulStride,
  kMatMulOffset,
  kMatMulOperands,
  kMatMulDType,
  kMatMulAccumulate,
  kAttentionOperands,
  kAttentionStride,
  kAttentionScale,
  kCount,
};
const char* Name(PlanFault fault);

// The plan with one such fault at a random place; nothing if it has no place for it. The fault may
// happen to change nothing that matters: see plan_oracle.h.
std::optional<FusionPlan> PlantFault(const BackwardGraph& graph, const FusionPlan& plan,
                                     PlanFault fault, std::mt19937& rng);

}  // namespace retrograd

#endif  // RETROGRAD_TESTS_SUPPORT_PLANS_PLAN_FAULTS_H_
