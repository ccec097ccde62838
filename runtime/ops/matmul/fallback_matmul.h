// A matmul as a kernel of ours, for what no library takes: any strides, types and batches, one
// thread an element of the result. Correct, and slow.
#ifndef RETROGRAD_RUNTIME_GPU_FALLBACK_MATMUL_H_
#define RETROGRAD_RUNTIME_GPU_FALLBACK_MATMUL_H_

#include "absl/status/statusor.h"
#include "codegen/print/kernel.h"
#include "fusion/ops/matmul/matmul_call.h"

namespace retrograd {

// The kernel; its arguments are a, b and d, which begin at the stored
// values' first elements. blocks is 0 where there is nothing to do.
absl::StatusOr<Kernel> FallbackMatMul(const MatMulCall& call, Dialect dialect);

}  // namespace retrograd

#endif  // RETROGRAD_RUNTIME_GPU_FALLBACK_MATMUL_H_
