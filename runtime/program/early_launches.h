// Early launches: a kernel that starts before the one in front of it on its stream has finished,
// and waits in its first instructions until it has. The start of the kernel is then hidden; small
// kernels win by it, large ones lose to the blocks that wait on their multiprocessors.
//
// A launch is early, and a call may be, only
// - if its kernel waits (Kernel::starts_early): of generated kernels those that are predicted to be
//   short, of calls the first launch of a convolution that we generate, while others start as ever.
//   It waits for all work of the kernel in front, which waited in turn or was launched when all
//   before it had finished, so that memory changes in the stream's order as ever;
// - if right in front of it on its stream, in the same phase, stands a launch of ours or a call: a
//   launch that waits for another stream starts late anyway. Behind a library's kernel, which may
//   not say when others may start, it does when all blocks have ended, before what they wrote is
//   seen by all. Where a call does not end with a kernel the device launches it as others;
// - if it gains: the predicted time and the bytes of both are within the limits of the device's
//   spec, or they are of a sum at indices: its threads wait for loads that follow from others
//   before they move many bytes, and a second launch hardly moves any; or both are launches of one
//   group and the later one adds up partial results. Behind a large kernel, which does not say when
//   others may start, it does when all blocks have ended, so that it takes no room from them.
#ifndef RETROGRAD_RUNTIME_PROGRAM_EARLY_LAUNCHES_H_
#define RETROGRAD_RUNTIME_PROGRAM_EARLY_LAUNCHES_H_

#include "absl/status/status.h"
#include "fusion/device/device_spec.h"
#include "runtime/program/commands.h"
#include "runtime/program/compile.h"

namespace retrograd {

EarlyLaunchLimits EarlyLaunchLimitsOf(const DeviceSpec& spec);

// Whether the launches of a group, so many, gain if they start early.
bool MayStartEarly(const Group& group, int64_t launches, const EarlyLaunchLimits& limits);

void MarkEarlyLaunches(const CompiledPlan& compiled, CommandList* list);

// The first two of the conditions, without which gradients would be wrong.
absl::Status CheckEarlyLaunches(const CommandList& list);

}  // namespace retrograd

#endif  // RETROGRAD_RUNTIME_PROGRAM_EARLY_LAUNCHES_H_
