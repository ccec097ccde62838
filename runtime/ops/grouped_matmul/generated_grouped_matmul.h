// grouped_matmul by kernels of ours, on every device.
#ifndef RETROGRAD_RUNTIME_OPS_GROUPED_MATMUL_GENERATED_GROUPED_MATMUL_H_
#define RETROGRAD_RUNTIME_OPS_GROUPED_MATMUL_GENERATED_GROUPED_MATMUL_H_

#include <memory>

#include "absl/status/statusor.h"
#include "fusion/ops/grouped_matmul/grouped_matmul_tiles.h"
#include "runtime/device/device.h"

namespace retrograd {

// What bounds the schedules on a device of the dialect's.
GroupedLimits GroupedMatMulLimits(Dialect dialect, const DeviceFacts& device);

// Unimplemented, with the numbers, beyond what the kernels take.
absl::StatusOr<std::unique_ptr<LoadedCall>> LoadGeneratedGroupedMatMul(Device& device,
                                                                       const Call& call,
                                                                       const CallFacts& facts);

// The same in one of several schedules.
absl::StatusOr<std::unique_ptr<LoadedCall>> LoadGroupedMatMulTile(Device& device, const Call& call,
                                                                  const CallFacts& facts,
                                                                  const GroupedTile& tile);

std::unique_ptr<CallLoader> MakeGeneratedGroupedMatMulLoader(Device& device);

}  // namespace retrograd

#endif  // RETROGRAD_RUNTIME_OPS_GROUPED_MATMUL_GENERATED_GROUPED_MATMUL_H_
