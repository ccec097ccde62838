// HostLauncher: runs kernels of host modules on the calling thread, block after block, in an order
// drawn from a seed. Kernels of a checking build have every access to arguments and shared memory
// verified; what is wrong comes back as a status, and the process goes on.
#ifndef RETROGRAD_RUNTIME_HOST_HOST_LAUNCH_H_
#define RETROGRAD_RUNTIME_HOST_HOST_LAUNCH_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "runtime/host/sanitizer/launch_request.h"

namespace retrograd {

// Keeps stacks, shared memory and queues of copies between launches, so that a launch of a fast
// build allocates nothing once a kernel with as many threads and copies has run. Not for several
// threads at once.
class HostLauncher {
 public:
  HostLauncher();
  ~HostLauncher();
  HostLauncher(HostLauncher&&) noexcept;
  HostLauncher& operator=(HostLauncher&&) noexcept;

  // Allocates now what launches of this kernel will need, but for its queues of copies.
  absl::Status Reserve(const HostKernel& kernel);

  absl::Status Run(const HostKernel& kernel, int64_t blocks, int threads,
                   absl::Span<const HostArg> args, const HostLaunchOptions& options = {});

  // For kTracked arguments: memory that something other than a launch has written, or given up.
  void MarkDefined(const void* data, int64_t bytes);
  void MarkUndefined(const void* data, int64_t bytes);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace retrograd

#endif  // RETROGRAD_RUNTIME_HOST_HOST_LAUNCH_H_
