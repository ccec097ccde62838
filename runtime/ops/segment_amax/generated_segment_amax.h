// Largest elements of groups by kernels of ours, on every device.
#ifndef RETROGRAD_RUNTIME_OPS_SEGMENT_AMAX_GENERATED_SEGMENT_AMAX_H_
#define RETROGRAD_RUNTIME_OPS_SEGMENT_AMAX_GENERATED_SEGMENT_AMAX_H_

#include <memory>

#include "absl/status/statusor.h"
#include "fusion/ops/segment_amax/segment_walk.h"
#include "runtime/device/device.h"

namespace retrograd {

absl::StatusOr<std::unique_ptr<LoadedCall>> LoadGeneratedSegmentAmax(Device& device,
                                                                     const Call& call,
                                                                     const CallFacts& facts);
// By the given schedule, in place of the one for these facts.
absl::StatusOr<std::unique_ptr<LoadedCall>> LoadSegmentAmaxBy(Device& device, const Call& call,
                                                              const CallFacts& facts,
                                                              const SegmentSchedule& schedule);

std::unique_ptr<CallLoader> MakeGeneratedSegmentAmaxLoader(Device& device);

}  // namespace retrograd

#endif  // RETROGRAD_RUNTIME_OPS_SEGMENT_AMAX_GENERATED_SEGMENT_AMAX_H_
