// GpuDriver: a GPU's driver, NVIDIA's or AMD's. Both have the same functions under other names;
// what works on them is written once. Drivers are loaded when first asked for, so that one binary
// starts on machines without one. Only for the files that make up the devices of GPUs.
#ifndef RETROGRAD_RUNTIME_GPU_GPU_DRIVER_H_
#define RETROGRAD_RUNTIME_GPU_GPU_DRIVER_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace retrograd {

// The driver's handles: CUstream or hipStream_t, and so on. An address of device memory is a void*;
// CUDA's own type for it, an integer, is passed alike.
using GpuStream = struct GpuStreamRecord*;
using GpuEvent = struct GpuEventRecord*;
using GpuModule = struct GpuModuleRecord*;
using GpuFunction = struct GpuFunctionRecord*;
using GpuGraph = struct GpuGraphRecord*;
using GpuGraphExec = struct GpuGraphExecRecord*;

// Numbers that both vendors' headers give the same meaning, HIP's on purpose.
inline constexpr int kGpuSuccess = 0;
inline constexpr int kGpuOutOfMemory = 2;
inline constexpr int kGpuNotFound = 500;
inline constexpr unsigned kGpuNonBlockingStream = 1;
inline constexpr unsigned kGpuTimedEvent = 0;
inline constexpr unsigned kGpuUntimedEvent = 2;
inline constexpr int kGpuCaptureThreadLocal = 1;  // other threads may go on allocating
inline constexpr int kGpuNoCapture = 0;           // a stream's status

// Every entry point that both have: the field, CUDA's symbol, HIP's symbol, and what it takes. It
// returns an int, 0 for success: the vendors' enums are passed alike.
#define RG_GPU_ENTRY_POINTS(X)                                                                  \
  X(Init, cuInit, hipInit, unsigned)                                                            \
  X(DeviceGetCount, cuDeviceGetCount, hipGetDeviceCount, int*)                                  \
  X(DeviceGet, cuDeviceGet, hipDeviceGet, int*, int)                                            \
  X(DeviceGetName, cuDeviceGetName, hipDeviceGetName, char*, int, int)                          \
  X(Synchronize, cuCtxSynchronize, hipDeviceSynchronize, void)                                  \
  X(MemGetInfo, cuMemGetInfo_v2, hipMemGetInfo, size_t*, size_t*)                               \
  X(MemAlloc, cuMemAlloc_v2, hipMalloc, void**, size_t)                                         \
  X(MemFree, cuMemFree_v2, hipFree, void*)                                                      \
  X(MemcpyHtoDAsync, cuMemcpyHtoDAsync_v2, hipMemcpyHtoDAsync, void*, const void*, size_t,      \
    GpuStream)                                                                                  \
  X(MemcpyDtoHAsync, cuMemcpyDtoHAsync_v2, hipMemcpyDtoHAsync, void*, const void*, size_t,      \
    GpuStream)                                                                                  \
  X(MemcpyDtoDAsync, cuMemcpyDtoDAsync_v2, hipMemcpyDtoDAsync, void*, const void*, size_t,      \
    GpuStream)                                                                                  \
  X(MemsetD8Async, cuMemsetD8Async, hipMemsetD8Async, void*, unsigned char, size_t, GpuStream)  \
  X(ModuleLoadData, cuModuleLoadData, hipModuleLoadData, GpuModule*, const void*)               \
  X(ModuleUnload, cuModuleUnload, hipModuleUnload, GpuModule)                                   \
  X(ModuleGetFunction, cuModuleGetFunction, hipModuleGetFunction, GpuFunction*, GpuModule,      \
    const char*)                                                                                \
  X(LaunchKernel, cuLaunchKernel, hipModuleLaunchKernel, GpuFunction, unsigned, unsigned,       \
    unsigned, unsigned, unsigned, unsigned, unsigned, GpuStream, void**, void**)                \
  X(StreamCreate, cuStreamCreate, hipStreamCreateWithFlags, GpuStream*, unsigned)               \
  X(StreamDestroy, cuStreamDestroy_v2, hipStreamDestroy, GpuStream)                             \
  X(StreamSynchronize, cuStreamSynchronize, hipStreamSynchronize, GpuStream)                    \
  X(StreamWaitEvent, cuStreamWaitEvent, hipStreamWaitEvent, GpuStream, GpuEvent, unsigned)      \
  X(StreamIsCapturing, cuStreamIsCapturing, hipStreamIsCapturing, GpuStream, int*)              \
  X(StreamBeginCapture, cuStreamBeginCapture_v2, hipStreamBeginCapture, GpuStream, int)         \
  X(StreamEndCapture, cuStreamEndCapture, hipStreamEndCapture, GpuStream, GpuGraph*)            \
  X(EventCreate, cuEventCreate, hipEventCreateWithFlags, GpuEvent*, unsigned)                   \
  X(EventDestroy, cuEventDestroy_v2, hipEventDestroy, GpuEvent)                                 \
  X(EventRecord, cuEventRecord, hipEventRecord, GpuEvent, GpuStream)                            \
  X(EventSynchronize, cuEventSynchronize, hipEventSynchronize, GpuEvent)                        \
  X(EventElapsedTime, cuEventElapsedTime, hipEventElapsedTime, float*, GpuEvent, GpuEvent)      \
  X(GraphDestroy, cuGraphDestroy, hipGraphDestroy, GpuGraph)                                    \
  X(GraphInstantiate, cuGraphInstantiateWithFlags, hipGraphInstantiateWithFlags, GpuGraphExec*, \
    GpuGraph, unsigned long long)                                                               \
  X(GraphExecDestroy, cuGraphExecDestroy, hipGraphExecDestroy, GpuGraphExec)                    \
  X(GraphLaunch, cuGraphLaunch, hipGraphLaunch, GpuGraphExec, GpuStream)

// One entry point of a loaded library.
template <typename Signature>
struct GpuEntry;
template <typename... Args>
struct GpuEntry<int(Args...)> {
  const char* name = nullptr;  // the symbol
  int (*function)(Args...) = nullptr;
  int operator()(Args... args) const { return function(args...); }
};

// What a device is called by in calls of its driver.
struct GpuContext {
  int device = 0;
  void* handle = nullptr;  // CUDA's primary context; HIP has the device alone
};

// What a driver tells of a device.
struct GpuFacts {
  std::string model;            // "NVIDIA H200"
  std::string arch;             // as the compiler wants it: "sm_90", "gfx90a"
  int64_t cache_bytes = 0;      // of all caches, at least
  int64_t clock_khz = 0;        // of the cores, at most
  int64_t sms = 1;              // multiprocessors or compute units
  int64_t shared_bytes = 0;     // shared memory that a block's launch may ask for
  bool early_launches = false;  // whether driver and device have GpuDriver::LaunchEarly
};

// A kernel in a captured graph.
struct GraphKernel {
  void* node = nullptr;        // of the graph
  std::string launch;          // bytes that are equal where function, grid and blocks are
  std::string parameters;      // the bytes of all, each from a multiple of 8 on
  std::vector<size_t> begins;  // by parameter: its first byte there
};

class GpuDriver {
 public:
  virtual ~GpuDriver() = default;

#define RG_GPU_FIELD(field, cuda, hip, ...) GpuEntry<int(__VA_ARGS__)> field;
  RG_GPU_ENTRY_POINTS(RG_GPU_FIELD)
#undef RG_GPU_FIELD

  // What the driver says about a failed call: the call, the driver's own words, and a code that
  // says whose matter it is. OK for 0.
  absl::Status StatusOf(int result, absl::string_view call) const;

  // Unimplemented, saying why, for a device that our kernels are not written for.
  virtual absl::StatusOr<GpuFacts> Describe(int device) const = 0;
  virtual absl::StatusOr<GpuContext> Open(int device) const = 0;
  virtual void Close(const GpuContext& context) const = 0;

  // Makes the context current on this thread; Leave takes what Enter gave.
  virtual absl::Status Enter(const GpuContext& context, int* before) const = 0;
  virtual void Leave(int before) const = 0;

  // Lets launches ask for so much memory of a block beyond what the kernel declares.
  virtual absl::Status AllowStaged(GpuFunction function, int64_t bytes) const = 0;
  // Whether a caller's stream is of this context, as far as the driver can tell.
  virtual absl::StatusOr<bool> IsOf(const GpuContext& context, GpuStream stream) const = 0;
  // Makes fills of memory in a captured graph launches of `fill` (gpu_support_kernels.h), where
  // that makes launching the graph cheaper. A driver that cannot edit a graph leaves it as it is.
  virtual absl::Status FillByKernel(GpuGraph, GpuFunction /*fill*/) const {
    return absl::OkStatus();
  }
  // Records a timed event. In a capture it becomes a node that does so at each replay, and is no
  // mere dependency; Unimplemented where the driver has none.
  virtual absl::Status Mark(GpuEvent event, GpuStream stream, bool capturing) const;
  // Launches a kernel that may start before the one in front of it on the stream has finished, and
  // waits in it for that (codegen's RG_EARLY_START). Behind other work it starts when that has
  // finished. In a capture only, where GpuFacts::early_launches says so.
  virtual absl::Status LaunchEarly(GpuFunction function, unsigned blocks, unsigned threads,
                                   unsigned shared_bytes, GpuStream stream,
                                   void** parameters) const;
  // The kernels of a captured graph, in an order that is the same for graphs of the same work.
  // Unimplemented where the driver does not tell their parameters, or other nodes have addresses.
  virtual absl::StatusOr<std::vector<GraphKernel>> KernelsOf(GpuGraph graph) const;
  // Launches of the executable, from the next one on, give the kernel these parameters. kernel: of
  // the graph that the executable was made of.
  virtual absl::Status SetParameters(GpuGraphExec exec, const GraphKernel& kernel) const;
  // False where the executable cannot become what the graph says.
  virtual bool Update(GpuGraphExec exec, GpuGraph graph) const = 0;

 protected:
  virtual std::string Words(int result) const = 0;  // "out of memory (CUDA_ERROR_OUT_OF_MEMORY 2)"
};

// A context made current for the time of a call; what was current before is again.
class CurrentContext {
 public:
  CurrentContext(const GpuDriver& driver, const GpuContext& context)
      : driver_(driver), status_(driver.Enter(context, &before_)) {}
  ~CurrentContext() {
    if (status_.ok()) driver_.Leave(before_);
  }
  CurrentContext(const CurrentContext&) = delete;
  CurrentContext& operator=(const CurrentContext&) = delete;
  const absl::Status& status() const { return status_; }

 private:
  const GpuDriver& driver_;
  int before_ = 0;
  absl::Status status_;
};

// --- for those who load one ---

// The symbol's address in *function; false if the library lacks it.
bool FindSymbol(void* library, const char* symbol, void** function);

// The first of these libraries that can be loaded; null if there is none. It stays for good.
void* FirstLibrary(const std::vector<const char*>& candidates);

// Drivers that were loaded, by path. A failure is not remembered: a driver may appear, or be ready
// later.
class LoadedDrivers {
 public:
  absl::StatusOr<const GpuDriver*> Get(
      const std::string& path,
      absl::FunctionRef<absl::StatusOr<const GpuDriver*>(const std::string&)> load);

 private:
  std::mutex mutex_;
  std::map<std::string, const GpuDriver*> loaded_;
};

}  // namespace retrograd

// Calls an entry point and returns a failure from the enclosing function.
#define RG_GPU(driver, entry, ...)                              \
  do {                                                          \
    if (const int rg_result = (driver).entry(__VA_ARGS__);      \
        rg_result != ::retrograd::kGpuSuccess) {                \
      return (driver).StatusOf(rg_result, (driver).entry.name); \
    }                                                           \
  } while (false)

#endif  // RETROGRAD_RUNTIME_GPU_GPU_DRIVER_H_
