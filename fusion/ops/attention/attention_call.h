// An attention's call with its attributes as plain fields.
#ifndef RETROGRAD_FUSION_OPS_ATTENTION_ATTENTION_CALL_H_
#define RETROGRAD_FUSION_OPS_ATTENTION_ATTENTION_CALL_H_

#include <cstddef>
#include <string>
#include <vector>

#include "fusion/plan/call.h"
#include "graph/ir/library/dropout_mask.h"

namespace retrograd {

// A [B, H, T, D] tensor inside a stored value, any strides with the last one 1.
using AttentionOperand = CallTensor;

struct AttentionCall {
  NodeId node{};
  DType dtype = DType::kFp32;
  double scale = 1;
  bool causal = false;
  double dropout_p = 0;  // of the probabilities
  std::string variant;   // whose random numbers drop them out, of PyTorch's implementations
  // dO, Q, K, V, O, log-sum-exp [B,H,T], bias if any, with dropout seed and offset
  std::vector<AttentionOperand> operands;
  std::vector<AttentionOperand> results;  // dQ, dK, dV, dS [B,H,T,S] if it is asked for
  friend bool operator==(const AttentionCall&, const AttentionCall&) = default;
};

// The call of an attention_backward.
AttentionCall AttentionOf(const Call& call);

// Places of operands: the bias is the seventh if there is one; the seed stands before the offset.
inline constexpr size_t kAttentionBias = 6;
size_t AttentionSeed(const AttentionCall& call);  // with dropout; else the number of operands
bool HasBias(const AttentionCall& call);
// The place of dS, the gradient of the scores, which is that of a bias of their shape.
inline constexpr size_t kScoreGradient = 3;
bool HasScoreGradient(const AttentionCall& call);
// Whose random numbers; of a call that drops out by a known generator.
DropoutVariant DropoutOf(const AttentionCall& call);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_OPS_ATTENTION_ATTENTION_CALL_H_
