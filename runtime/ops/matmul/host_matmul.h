// d = a·b (+ d) on the host through a BLAS. bf16 and fp16 operands are widened to fp32, summed in
// fp32 and rounded once.
#ifndef RETROGRAD_RUNTIME_OPS_MATMUL_HOST_MATMUL_H_
#define RETROGRAD_RUNTIME_OPS_MATMUL_HOST_MATMUL_H_

#include <memory>

#include "absl/status/statusor.h"
#include "runtime/ops/matmul/matmul_facts.h"

namespace retrograd {

// Bytes for the operands that BLAS cannot read, or d where it cannot write, as they stand; or why
// the call is impossible.
absl::StatusOr<int64_t> HostMatMulScratchBytes(const MatMulCall& call);

// The scratch is aligned to 64 bytes. HostMatMulScratchBytes must have accepted the call.
void HostMatMul(const MatMulCall& call, const MatMulPointers& pointers, void* scratch);

// The host's implementation of a matmul.
absl::StatusOr<std::unique_ptr<LoadedCall>> LoadHostMatMul(const Call& call);

}  // namespace retrograd

#endif  // RETROGRAD_RUNTIME_OPS_MATMUL_HOST_MATMUL_H_
