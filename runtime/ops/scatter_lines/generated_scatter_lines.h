// Sums at indices of each line by a kernel of ours, on every device.
#ifndef RETROGRAD_RUNTIME_OPS_SCATTER_LINES_GENERATED_SCATTER_LINES_H_
#define RETROGRAD_RUNTIME_OPS_SCATTER_LINES_GENERATED_SCATTER_LINES_H_

#include <memory>

#include "absl/status/statusor.h"
#include "runtime/device/device.h"

namespace retrograd {

absl::StatusOr<std::unique_ptr<LoadedCall>> LoadGeneratedScatterLines(Device& device,
                                                                      const Call& call,
                                                                      const CallFacts& facts);

std::unique_ptr<CallLoader> MakeGeneratedScatterLinesLoader(Device& device);

}  // namespace retrograd

#endif  // RETROGRAD_RUNTIME_OPS_SCATTER_LINES_GENERATED_SCATTER_LINES_H_
