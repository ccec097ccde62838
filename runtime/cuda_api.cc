#if defined(RETROGRAD_HAVE_CUDA)

#include "runtime/cuda_api.h"

#include <dlfcn.h>

#include <map>
#include <mutex>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "graph/status.h"

namespace retrograd {
namespace {

#define RG_TEXT_OF(x) #x
#define RG_TEXT(x) RG_TEXT_OF(x)  // of what the header's macros make of x

template <typename Function>
bool FindEntry(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
  return *function != nullptr;
}

// The name of an entry point that the library lacks; null if it has all.
const char* FillTable(void* library, CudaDriver* driver) {
  const char* missing = nullptr;
#define RG_CUDA_FIND(field, function) \
  if (!FindEntry(library, RG_TEXT(function), &driver->field)) missing = RG_TEXT(function);
  RG_CUDA_ENTRY_POINTS(RG_CUDA_FIND)
#undef RG_CUDA_FIND
  // Drivers before 12.8 have only the older version, which takes the same arguments.
  if (driver->EventElapsedTime == nullptr &&
      FindEntry(library, "cuEventElapsedTime", &driver->EventElapsedTime) &&
      absl::StartsWith(missing, "cuEventElapsedTime")) {
    missing = nullptr;
  }
  return missing;
}

absl::StatusOr<const CudaDriver*> Load(const std::string& path) {
  std::vector<const char*> candidates = {"libcuda.so.1", "libcuda.so",
                                         "/usr/lib/wsl/lib/libcuda.so.1"};
  if (!path.empty()) candidates = {path.c_str()};
  void* library = nullptr;
  for (const char* candidate : candidates) {
    if (library == nullptr) library = dlopen(candidate, RTLD_NOW | RTLD_LOCAL);
  }
  if (library == nullptr) {
    return absl::UnavailableError(absl::StrCat("no NVIDIA driver found (",
                                               absl::StrJoin(candidates, ", "),
                                               "): install one, or run with --device host"));
  }
  auto* driver = new CudaDriver;  // like the library, for the rest of the process
  if (const char* missing = FillTable(library, driver)) {
    delete driver;
    return absl::UnavailableError(absl::StrCat("the NVIDIA driver has no ", missing,
                                               ": it is too old; install one of CUDA 12.0 or later"));
  }
  const absl::Status started = CudaStatus(*driver, driver->Init(0), "cuInit");
  if (!started.ok()) {
    delete driver;
    return started;
  }
  return driver;
}

// By whose matter the failure is.
absl::StatusCode CodeOf(CUresult result) {
  switch (result) {
    case CUDA_ERROR_OUT_OF_MEMORY: return absl::StatusCode::kResourceExhausted;
    case CUDA_ERROR_NO_DEVICE:
    case CUDA_ERROR_STUB_LIBRARY:
    case CUDA_ERROR_DEVICE_UNAVAILABLE:
    case CUDA_ERROR_SYSTEM_DRIVER_MISMATCH:
    case CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE:
    case CUDA_ERROR_SYSTEM_NOT_READY: return absl::StatusCode::kUnavailable;
    case CUDA_ERROR_INVALID_DEVICE:
    case CUDA_ERROR_INVALID_VALUE:
    case CUDA_ERROR_INVALID_HANDLE:
    case CUDA_ERROR_INVALID_CONTEXT: return absl::StatusCode::kInvalidArgument;
    case CUDA_ERROR_NO_BINARY_FOR_GPU:
    case CUDA_ERROR_INVALID_IMAGE:
    case CUDA_ERROR_NOT_SUPPORTED: return absl::StatusCode::kUnimplemented;
    case CUDA_ERROR_NOT_FOUND: return absl::StatusCode::kNotFound;
    default: return absl::StatusCode::kInternal;
  }
}

}  // namespace

absl::StatusOr<const CudaDriver*> LoadCudaDriver(const std::string& library) {
  static std::mutex& mutex = *new std::mutex;
  static auto& loaded = *new std::map<std::string, const CudaDriver*>;
  std::lock_guard<std::mutex> lock(mutex);
  const auto found = loaded.find(library);
  if (found != loaded.end()) return found->second;
  // A failure is not remembered: a driver may appear, or be ready later.
  RG_ASSIGN_OR_RETURN(const CudaDriver* driver, Load(library));
  loaded[library] = driver;
  return driver;
}

absl::Status CudaStatus(const CudaDriver& driver, CUresult result, absl::string_view call) {
  if (result == CUDA_SUCCESS) return absl::OkStatus();
  const char* name = nullptr;
  const char* text = nullptr;
  driver.GetErrorName(result, &name);
  driver.GetErrorString(result, &text);
  return absl::Status(CodeOf(result),
                      absl::StrCat(call, ": ", text != nullptr ? text : "an unknown error", " (",
                                   name != nullptr ? name : "CUresult",  " ",
                                   static_cast<int>(result), ")"));
}

}  // namespace retrograd

#endif  // RETROGRAD_HAVE_CUDA
