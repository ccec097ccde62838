// What a launch of a host kernel is told, and what a checking build holds it to.
#ifndef RETROGRAD_RUNTIME_HOST_SANITIZER_LAUNCH_REQUEST_H_
#define RETROGRAD_RUNTIME_HOST_SANITIZER_LAUNCH_REQUEST_H_

#include <cstdint>

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

}  // namespace retrograd

#endif  // RETROGRAD_RUNTIME_HOST_SANITIZER_LAUNCH_REQUEST_H_
