// HostLauncher: runs kernels of host modules on the calling thread, block after block, in an order
// drawn from a seed. Kernels of a checking build have every access to arguments and shared memory
// verified; what is wrong comes back as a status, and the process goes on.
#ifndef RETROGRAD_RUNTIME_HOST_LAUNCH_H_
#define RETROGRAD_RUNTIME_HOST_LAUNCH_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/types/span.h"

struct rg_host_kernel;

namespace retrograd {

// What an argument's memory holds before a launch. Only checking builds look at it.
enum class HostContents : uint8_t {
  kDefined,    // meaningful values
  kUndefined,  // nothing: reading a word that no launch has written since is a fault
  kTracked,    // whatever the launches of this launcher have left there so far
};

// Argument i of a launch.
struct HostArg {
  void* data = nullptr;
  int64_t bytes = 0;       // exactly what the kernel may touch
  int64_t alignment = 16;  // of data in bytes, a power of two: all that the kernel may rely on
  bool written = false;    // the kernel may write it
  HostContents contents = HostContents::kDefined;
};

// A kernel of a loaded module; valid as long as the module.
struct HostKernel {
  const char* name = nullptr;
  const rg_host_kernel* code = nullptr;
};

struct HostLaunchOptions {
  uint64_t seed = 0;  // of the order of blocks and threads
  // A checked launch that accesses memory more often is ended, as one that would never end: 2^31
  // take about a minute.
  int64_t most_accesses = int64_t{1} << 31;
};

// Keeps stacks and shared memory between launches, so that a launch of a fast build allocates
// nothing once a kernel with as many threads has run. Not for several threads at once.
class HostLauncher {
 public:
  HostLauncher();
  ~HostLauncher();
  HostLauncher(HostLauncher&&) noexcept;
  HostLauncher& operator=(HostLauncher&&) noexcept;

  // Allocates now what launches of this kernel will need.
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

#endif  // RETROGRAD_RUNTIME_HOST_LAUNCH_H_
