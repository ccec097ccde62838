// Calls that could share launches, one after the other.
#ifndef RETROGRAD_RUNTIME_DEVICE_CALLS_IN_TURN_H_
#define RETROGRAD_RUNTIME_DEVICE_CALLS_IN_TURN_H_

#include <memory>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "runtime/device/device.h"

namespace retrograd {

// As Device::LoadTogether: a run has the operands and results of all calls, in their order.
absl::StatusOr<std::unique_ptr<LoadedCall>> LoadInTurn(Device& device,
                                                       absl::Span<const ExpectedCall> calls);

}  // namespace retrograd

#endif  // RETROGRAD_RUNTIME_DEVICE_CALLS_IN_TURN_H_
