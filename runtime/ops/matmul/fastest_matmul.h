// Which of a library's algorithms for a matmul is the fastest here, found by running them.
#ifndef RETROGRAD_RUNTIME_OPS_MATMUL_FASTEST_MATMUL_H_
#define RETROGRAD_RUNTIME_OPS_MATMUL_FASTEST_MATMUL_H_

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "runtime/gpu/gpu_driver.h"
#include "runtime/ops/matmul/matmul_facts.h"

namespace retrograd {

struct MatMulCandidates {
  int count = 0;
  int64_t workspace_bytes = 0;          // that any of them may want
  absl::FunctionRef<bool(int)> choose;  // false if it does not hold here
  absl::FunctionRef<absl::Status(const MatMulPointers&, void* workspace)> run;  // the chosen one
};

// Runs every candidate on memory of its own, in the current context. Waits for the device.
absl::StatusOr<int> FastestMatMul(const GpuDriver& driver, GpuStream stream, const MatMulCall& call,
                                  const MatMulCandidates& candidates);

}  // namespace retrograd

#endif  // RETROGRAD_RUNTIME_OPS_MATMUL_FASTEST_MATMUL_H_
