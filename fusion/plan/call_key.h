// What the time of a call depends on, as text: equal layers and equal graphs have equal keys.
#ifndef RETROGRAD_FUSION_PLAN_CALL_KEY_H_
#define RETROGRAD_FUSION_PLAN_CALL_KEY_H_

#include <string>

#include "fusion/plan/call.h"

namespace retrograd {

// Op, dtypes, shapes, strides and attributes, on one line: "matmul bf16[64,32]32,1 ...". Neither
// values nor offsets enter, nor an epilogue.
std::string CallKey(const Call& call);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_PLAN_CALL_KEY_H_
