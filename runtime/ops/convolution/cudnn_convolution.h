// A convolution, or one of its gradients, as a graph of cuDNN's.
#ifndef RETROGRAD_RUNTIME_OPS_CONVOLUTION_CUDNN_CONVOLUTION_H_
#define RETROGRAD_RUNTIME_OPS_CONVOLUTION_CUDNN_CONVOLUTION_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "fusion/plan/call.h"
#include "runtime/gpu/cuda/cudnn_plans.h"

namespace retrograd {

struct CudnnConvolutionOptions {
  // Also plans that add up in the order in which blocks finish: two runs need not give equal bits.
  bool nondeterministic = false;
  int64_t most_workspace_bytes = int64_t{256} << 20;
  // So many of cuDNN's plans: the first of its list, which it takes to be the fastest, and the last
  // two; 0: all.
  // Each takes milliseconds to build and to time when a call is loaded, and there are some forty.
  int64_t most_plans = 8;
};

// A tensor as cuDNN is told of it: [N,C,H,W] or [N,C,D,H,W], a weight [K,C/groups,H,W] or with D.
struct CudnnDims {
  std::vector<int64_t> shape, strides;
};

// Of the operands, then of the result. A convolution of one spatial dim has H = 1. The strides of
// axes of extent 1, which nobody reads, are those of the order in which the call's tensors lie:
// cuDNN tells orders apart by them.
std::vector<CudnnDims> CudnnDimsOf(const Call& call);

// OK, or Unimplemented with the call's shape and the reason for what cuDNN is known to refuse. Asks
// no library.
absl::Status CudnnConvolutionRefusal(const Call& call);

// Of a call that CudnnConvolutionRefusal passes; it must outlive the request.
CudnnRequest CudnnConvolutionRequest(const Call& call, const CallFacts& facts,
                                     const CudnnConvolutionOptions& options);

}  // namespace retrograd

#endif  // RETROGRAD_RUNTIME_OPS_CONVOLUTION_CUDNN_CONVOLUTION_H_
