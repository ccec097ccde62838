// An attention's call with its attributes as plain fields.
#ifndef RETROGRAD_FUSION_OPS_ATTENTION_ATTENTION_CALL_H_
#define RETROGRAD_FUSION_OPS_ATTENTION_ATTENTION_CALL_H_

#include <vector>

#include "fusion/plan/call.h"

namespace retrograd {

// A [B, H, T, D] tensor inside a stored value, any strides with the last one 1.
using AttentionOperand = CallTensor;

struct AttentionCall {
  NodeId node{};
  DType dtype = DType::kFp32;
  double scale = 1;
  bool causal = false;
  // dO, Q, K, V, O, log-sum-exp [B,H,T], bias if any, with dropout seed and offset
  std::vector<AttentionOperand> operands;
  std::vector<AttentionOperand> results;  // dQ, dK, dV
  friend bool operator==(const AttentionCall&, const AttentionCall&) = default;
};

// The call of an attention_backward.
AttentionCall AttentionOf(const Call& call);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_OPS_ATTENTION_ATTENTION_CALL_H_
