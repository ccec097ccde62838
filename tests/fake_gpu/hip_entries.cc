#if defined(RETROGRAD_FAKE_HIP_LIBRARY)

// What HIP's runtime has and CUDA's driver has not, or not alike.
#include <cstring>

#include "absl/strings/str_format.h"
#include "tests/fake_gpu/state.h"

namespace retrograd::fake {
namespace {

thread_local int current_device = 0;

}  // namespace

bool HasContext() { return current_device == 0; }

}  // namespace retrograd::fake

using namespace retrograd;        // NOLINT: the vendor's functions are global
using namespace retrograd::fake;  // NOLINT

extern "C" {

const char* hipGetErrorName(int) { return "FAKE_ERROR"; }
const char* hipGetErrorString(int error) {
  return error == kOutOfMemory ? "out of memory" : "a failure that was ordered";
}
int hipGetDevice(int* device) {
  FAKE_ENTER();
  *device = current_device;
  return kSuccess;
}
int hipSetDevice(int device) {
  FAKE_ENTER();
  if (device < 0 || device >= Property("devices")) return kInvalidDevice;
  current_device = device;
  return kSuccess;
}
// The name comes first; the rest lies as no release has it.
int hipGetDevicePropertiesR0600(char* properties, int) {
  FAKE_ENTER();
  std::strcpy(properties, "gfxless Fake GPU");
  const std::string arch = absl::StrFormat("gfx%x:sramecc+:xnack-", Property("gfx"));
  std::memcpy(properties + 1234, arch.c_str(), arch.size() + 1);
  return kSuccess;
}
int hipDeviceGetAttribute(int* value, int attribute, int) {
  FAKE_ENTER();
  constexpr int kComputeUnits = 63;
  *value = attribute == kComputeUnits ? Property("sms") : 0;
  return kSuccess;
}
int hipStreamGetDevice(GpuStream, int* device) {
  FAKE_ENTER();
  *device = Property("devices") > 1 ? 1 : 0;
  return kSuccess;
}
int hipGraphExecUpdate(GpuGraphExec exec, GpuGraph graph, void**, int* result) {
  FAKE_ENTER_WITH_CONTEXT();
  const bool updated = UpdateGraph(exec, graph);
  *result = updated ? 0 : 2;  // the topology changed
  return updated ? kSuccess : kUpdateFailure;
}

}  // extern "C"

#endif  // RETROGRAD_FAKE_HIP_LIBRARY
