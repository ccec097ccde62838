// The backward pass of attention as a graph of cuDNN's.
#ifndef RETROGRAD_RUNTIME_OPS_ATTENTION_CUDNN_ATTENTION_H_
#define RETROGRAD_RUNTIME_OPS_ATTENTION_CUDNN_ATTENTION_H_

#include "absl/status/status.h"
#include "runtime/gpu/cuda/cudnn_plans.h"
#include "runtime/ops/attention/attention_facts.h"

namespace retrograd {

// OK, or Unimplemented with the call's shape and the reason for what cuDNN is known to refuse. Asks
// no library.
absl::Status CudnnRefusal(const AttentionCall& call, const AttentionFacts& facts);

struct CudnnAttentionOptions {
  // Two runs give the same bits. Without it dQ is summed in the order in which blocks finish, which
  // is faster; with it cuDNN on Hopper keeps the scores' gradients, 2 bytes for each query, key and
  // head, in the workspace.
  bool deterministic = true;
};

// Of a call that CudnnRefusal passes; it must outlive the request. Operands and results are aligned
// to 16 bytes.
CudnnRequest CudnnAttentionRequest(const AttentionCall& call, const AttentionFacts& facts,
                                   const CudnnAttentionOptions& options);

}  // namespace retrograd

#endif  // RETROGRAD_RUNTIME_OPS_ATTENTION_CUDNN_ATTENTION_H_
