// d = a·b (+ d) on the host through a BLAS. bf16 and fp16 operands are widened to fp32, summed in
// fp32 and rounded once.
#ifndef RETROGRAD_RUNTIME_OPS_MATMUL_HOST_MATMUL_H_
#define RETROGRAD_RUNTIME_OPS_MATMUL_HOST_MATMUL_H_

#include "absl/status/statusor.h"
#include "runtime/device/device.h"

namespace retrograd {

// Bytes for the operands that BLAS cannot read, or d where it cannot write, as they stand; or why
// the call is impossible.
absl::StatusOr<int64_t> HostMatMulScratchBytes(const MatMulCall& call);

// The scratch is aligned to 64 bytes. HostMatMulScratchBytes must have accepted the call.
void HostMatMul(const MatMulCall& call, const MatMulPointers& pointers, void* scratch);

}  // namespace retrograd

#endif  // RETROGRAD_RUNTIME_OPS_MATMUL_HOST_MATMUL_H_
