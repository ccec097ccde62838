// grouped_matmul by kernels of ours, on every device.
#ifndef RETROGRAD_RUNTIME_OPS_GROUPED_MATMUL_GENERATED_GROUPED_MATMUL_H_
#define RETROGRAD_RUNTIME_OPS_GROUPED_MATMUL_GENERATED_GROUPED_MATMUL_H_

#include <memory>

#include "absl/status/statusor.h"
#include "runtime/device/device.h"
#include "runtime/ops/grouped_matmul/grouped_matmul_launch.h"

namespace retrograd {

// Unimplemented, with the numbers, beyond what the kernels take.
absl::StatusOr<std::unique_ptr<LoadedCall>> LoadGeneratedGroupedMatMul(Device& device,
                                                                       const Call& call,
                                                                       const CallFacts& facts);

// The same by a launch of a call whose result has elements.
absl::StatusOr<std::unique_ptr<LoadedCall>> LoadGroupedMatMulLaunch(
    Device& device, const GroupedMatMulLaunch& made);

std::unique_ptr<CallLoader> MakeGeneratedGroupedMatMulLoader(Device& device);

}  // namespace retrograd

#endif  // RETROGRAD_RUNTIME_OPS_GROUPED_MATMUL_GENERATED_GROUPED_MATMUL_H_
