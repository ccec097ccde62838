// A call into fp32 by one into 16 bits and a kernel of ours that widens what that has stored: for
// libraries whose plans into fp32 are slower, or that have none.
#ifndef RETROGRAD_RUNTIME_OPS_CONVOLUTION_WIDENED_CALL_H_
#define RETROGRAD_RUNTIME_OPS_CONVOLUTION_WIDENED_CALL_H_

#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "codegen/print/dialect.h"
#include "codegen/print/kernel.h"
#include "runtime/device/device.h"

namespace retrograd {

// Of the narrow result's address, and of the scratch memory that its call is given, in bytes.
inline constexpr int64_t kScratchAlignment = 256;

// The call of one result as it is in the operands' dtype, at the beginning of memory of its own;
// nullopt where that is the result's already, or the result has gaps.
std::optional<Call> NarrowOf(const Call& call);

// Widens the result of NarrowOf(call), in the order in which it lies.
Kernel WideningKernel(const Call& call, const CallFacts& facts, Dialect dialect);

// `narrow` makes NarrowOf(call), which is not nullopt. The narrow result lies in the scratch
// memory.
absl::StatusOr<std::unique_ptr<LoadedCall>> LoadWidened(Device& device, const Call& call,
                                                        const CallFacts& facts,
                                                        std::unique_ptr<LoadedCall> narrow);

}  // namespace retrograd

#endif  // RETROGRAD_RUNTIME_OPS_CONVOLUTION_WIDENED_CALL_H_
