#if defined(RETROGRAD_FAKE_CUDA_LIBRARY)

// What CUDA's driver has and HIP has not, or not alike.
#include <vector>

#include "tests/fake_gpu/state.h"

namespace retrograd::fake {
namespace {

thread_local std::vector<void*> contexts;
int the_context;  // its address stands for the context

}  // namespace

bool HasContext() { return !contexts.empty() && contexts.back() == &the_context; }

}  // namespace retrograd::fake

using namespace retrograd;        // NOLINT: the vendor's functions are global
using namespace retrograd::fake;  // NOLINT

extern "C" {

int cuGetErrorName(int, const char** name) {
  *name = "FAKE_ERROR";
  return kSuccess;
}
int cuGetErrorString(int error, const char** text) {
  *text = error == kOutOfMemory ? "out of memory" : "a failure that was ordered";
  return kSuccess;
}
int cuDeviceGetAttribute(int* value, int attribute, int) {
  FAKE_ENTER();
  constexpr int kClockRate = 13, kSms = 16, kL2CacheSize = 38, kMajor = 75, kMinor = 76;
  constexpr int kSharedBytes = 97;  // that a block may ask for
  switch (attribute) {
    case kMajor: *value = Property("major"); break;
    case kMinor: *value = Property("minor"); break;
    case kSms: *value = Property("sms"); break;
    case kClockRate: *value = 1000000; break;
    case kL2CacheSize: *value = 1 << 16; break;
    case kSharedBytes: *value = 227 << 10; break;
    default: *value = 1;
  }
  return kSuccess;
}
int cuDevicePrimaryCtxRetain(void** context, int) {
  FAKE_ENTER();
  *context = &the_context;
  return kSuccess;
}
int cuDevicePrimaryCtxRelease_v2(int) {
  FAKE_ENTER();
  return kSuccess;
}
int cuCtxPushCurrent_v2(void* context) {
  FAKE_ENTER();
  contexts.push_back(context);
  return kSuccess;
}
int cuCtxPopCurrent_v2(void** context) {
  FAKE_ENTER();
  if (contexts.empty()) return kInvalidContext;
  *context = contexts.back();
  contexts.pop_back();
  return kSuccess;
}
int cuFuncSetAttribute(GpuFunction function, int attribute, int value) {
  FAKE_ENTER_WITH_CONTEXT();
  constexpr int kMaxDynamicSharedBytes = 8;
  if (attribute != kMaxDynamicSharedBytes || value < 0 || value > 232448) return kInvalidValue;
  AllowStagedBytes(function, value);
  return kSuccess;
}
int cuStreamGetCtx(GpuStream, void** context) {
  FAKE_ENTER();
  static int another;
  *context = Property("devices") > 1 ? &another : &the_context;
  return kSuccess;
}
int cuGraphExecUpdate_v2(GpuGraphExec exec, GpuGraph graph, void*) {
  FAKE_ENTER_WITH_CONTEXT();
  return UpdateGraph(exec, graph) ? kSuccess : kUpdateFailure;
}

}  // extern "C"

#endif  // RETROGRAD_FAKE_CUDA_LIBRARY
