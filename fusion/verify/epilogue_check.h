// The plan checker's part for matmuls with an epilogue: what the two halves (HalvesOf) do not show.
#ifndef RETROGRAD_FUSION_VERIFY_EPILOGUE_CHECK_H_
#define RETROGRAD_FUSION_VERIFY_EPILOGUE_CHECK_H_

#include "absl/status/status.h"
#include "fusion/plan/plan.h"

namespace retrograd {

// P5, P9. After it the group's halves may be taken.
absl::Status CheckEpilogue(const BackwardGraph& graph, const Group& group, const Call& call);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_VERIFY_EPILOGUE_CHECK_H_
