#include "runtime/gpu/gpu_driver.h"

#include <dlfcn.h>

#include "absl/strings/str_cat.h"
#include "graph/base/status.h"

namespace retrograd {
namespace {

// Whose matter the failure is. The numbers are CUresult's, and hipError_t's for these failures.
absl::StatusCode CodeOf(int result) {
  switch (result) {
    case kGpuOutOfMemory: return absl::StatusCode::kResourceExhausted;
    case 3:    // not initialized: HIP without a kernel driver
    case 34:   // stub library
    case 35:   // HIP: insufficient driver
    case 46:   // device unavailable
    case 100:  // no device
    case 802:  // system not ready
    case 803:  // system driver mismatch
    case 804:  // compatibility not supported on the device
      return absl::StatusCode::kUnavailable;
    case 1:    // invalid value
    case 101:  // invalid device
    case 201:  // invalid context
    case 400:  // invalid handle
      return absl::StatusCode::kInvalidArgument;
    case 200:  // invalid image
    case 209:  // no binary for the GPU
    case 801:  // not supported
      return absl::StatusCode::kUnimplemented;
    case kGpuNotFound: return absl::StatusCode::kNotFound;
    default: return absl::StatusCode::kInternal;
  }
}

}  // namespace

absl::Status GpuDriver::StatusOf(int result, absl::string_view call) const {
  if (result == kGpuSuccess) return absl::OkStatus();
  return absl::Status(CodeOf(result), absl::StrCat(call, ": ", Words(result)));
}

absl::Status GpuDriver::Mark(GpuEvent event, GpuStream stream, bool capturing) const {
  if (capturing) return absl::UnimplementedError("the driver records no times in a capture");
  RG_GPU(*this, EventRecord, event, stream);
  return absl::OkStatus();
}

absl::Status GpuDriver::LaunchEarly(GpuFunction, unsigned, unsigned, unsigned, GpuStream,
                                    void**) const {
  return absl::UnimplementedError("the driver launches no kernel early");
}

absl::StatusOr<std::vector<GraphKernel>> GpuDriver::KernelsOf(GpuGraph) const {
  return absl::UnimplementedError("the driver does not tell the parameters of a graph's kernels");
}

absl::Status GpuDriver::SetParameters(GpuGraphExec, const GraphKernel&) const {
  return absl::UnimplementedError("the driver does not set the parameters of a graph's kernels");
}

bool FindSymbol(void* library, const char* symbol, void** function) {
  *function = dlsym(library, symbol);
  return *function != nullptr;
}

void* FirstLibrary(const std::vector<const char*>& candidates) {
  for (const char* candidate : candidates) {
    if (void* library = dlopen(candidate, RTLD_NOW | RTLD_LOCAL)) return library;
  }
  return nullptr;
}

absl::StatusOr<const GpuDriver*> LoadedDrivers::Get(
    const std::string& path,
    absl::FunctionRef<absl::StatusOr<const GpuDriver*>(const std::string&)> load) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (const auto found = loaded_.find(path); found != loaded_.end()) return found->second;
  RG_ASSIGN_OR_RETURN(const GpuDriver* const driver, load(path));
  return loaded_[path] = driver;
}

}  // namespace retrograd
