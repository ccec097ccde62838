// What the parts of the fake drivers share. The files of this folder are compiled once for each
// vendor: the functions that both have are written once, and get their names here. Device memory is
// host memory, work is done when it is issued, and captured work when its graph is launched.
#ifndef RETROGRAD_TESTS_FAKE_GPU_STATE_H_
#define RETROGRAD_TESTS_FAKE_GPU_STATE_H_

#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "runtime/gpu/gpu_driver.h"
#include "runtime/gpu/gpu_support_kernels.h"

namespace retrograd::fake {

// The results, as CUresult and hipError_t number them.
inline constexpr int kSuccess = 0;
inline constexpr int kInvalidValue = 1;
inline constexpr int kOutOfMemory = 2;
inline constexpr int kInvalidDevice = 101;
inline constexpr int kInvalidImage = 200;
inline constexpr int kInvalidContext = 201;
inline constexpr int kNoBinary = 209;
inline constexpr int kInvalidKernel = 218;
inline constexpr int kInvalidHandle = 400;
inline constexpr int kIllegalState = 401;
inline constexpr int kNotFound = 500;
inline constexpr int kIllegalAddress = 700;
inline constexpr int kLaunchFailed = 719;
inline constexpr int kCaptureUnsupported = 900;
inline constexpr int kCaptureInvalidated = 901;
inline constexpr int kCaptureUnjoined = 904;
inline constexpr int kCaptureIsolation = 905;
inline constexpr int kCapturedEvent = 907;
inline constexpr int kUpdateFailure = 910;

// The bytes of a kernel's one parameter.
using Words = std::vector<uint64_t>;

template <typename T>
Words WordsOf(const T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  Words words((sizeof value + 7) / 8);
  std::memcpy(words.data(), &value, sizeof value);
  return words;
}
template <typename T>
T FromWords(const Words& words) {
  T value;
  std::memcpy(static_cast<void*>(&value), words.data(), sizeof value);
  return value;
}

// A piece of work. Of two graphs of equal kinds one can be updated to the other.
struct Work {
  std::string kind;
  std::function<int(const Words&)> run;
  Words words;                     // that it is run with
  std::optional<MemoryFill> fill;  // of a fill that was captured as one
  uintptr_t node = 0;              // its handle, once a graph's nodes were asked for
  const void* stream = nullptr;    // that it was captured on
};

using Clock = std::map<const void*, int>;  // work seen, by stream

struct Capture {
  const void* origin = nullptr;  // the stream that began it
  std::vector<const void*> streams;
  std::vector<Work> work;
  bool invalid = false;
};

struct Stream {
  std::shared_ptr<Capture> capture;
  Clock clock;
};

struct Event {
  bool recorded = false;
  bool timing = true;
  double us = 0;
  std::shared_ptr<Capture> capture;
  Clock clock;
};

struct Graph {
  std::vector<Work> work;
};

// Counts the call; the failure to return if one was ordered, or 0.
int Enter(const char* entry);

// Whether this thread may make calls that want a context: of CUDA one that was made current, of HIP
// the first device's, which every thread begins with.
bool HasContext();

// By the update's arguments of either vendor: whether the executable could become what the graph
// says.
bool UpdateGraph(GpuGraphExec exec, GpuGraph graph);

// The most dynamic shared memory that launches of the function may ask for.
void AllowStagedBytes(GpuFunction function, int bytes);

// Whether this thread captures, where some calls are not allowed: then its captures are void.
bool RefusedByCapture();

// Does the work, or adds it to the stream's capture. With words: what a kernel is given, and may be
// given otherwise in a graph.
int Issue(GpuStream stream, std::string kind, Words words, std::function<int(const Words&)> run);
int Issue(GpuStream stream, std::string kind, std::function<int()> run);

// The last work that was captured on the stream; null where it captures none.
Work* LastCaptured(GpuStream stream);

// A fill of memory: captured as one.
int IssueFill(GpuStream stream, const MemoryFill& fill);
int RunFill(const MemoryFill& fill);

// The name that a function was found by.
const std::string& NameOf(GpuFunction function);

// Device properties by name.
int Property(const std::string& name);

}  // namespace retrograd::fake

#if defined(RETROGRAD_FAKE_HIP_LIBRARY)
#define FAKE_NAME(cuda, hip) hip
#else
#define FAKE_NAME(cuda, hip) cuda
#endif

// What every entry point begins with.
#define FAKE_ENTER() \
  if (const int rg_ordered = ::retrograd::fake::Enter(__func__); rg_ordered != 0) return rg_ordered
#define FAKE_ENTER_WITH_CONTEXT() \
  FAKE_ENTER();                   \
  if (!::retrograd::fake::HasContext()) return ::retrograd::fake::kInvalidContext

#endif  // RETROGRAD_TESTS_FAKE_GPU_STATE_H_
