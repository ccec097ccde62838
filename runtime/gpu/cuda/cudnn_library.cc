#include "runtime/gpu/cuda/cudnn_library.h"

#include <map>
#include <utility>

#include "graph/base/status.h"

namespace retrograd {

absl::StatusOr<std::shared_ptr<CudnnHandle>> CudnnHandle::Shared(const std::string& library, int sm,
                                                                 const GpuContext& context) {
  static auto& mutex = *new std::mutex;
  static auto& known = *new std::map<std::pair<int, void*>, std::weak_ptr<CudnnHandle>>;
  const std::lock_guard<std::mutex> lock(mutex);
  std::weak_ptr<CudnnHandle>& place = known[{context.device, context.handle}];
  std::shared_ptr<CudnnHandle> handle = place.lock();
  if (handle == nullptr) {
    RG_ASSIGN_OR_RETURN(handle, Create(library, sm));
    place = handle;
  }
  return handle;
}

}  // namespace retrograd

#ifdef RETROGRAD_HAVE_CUDNN

#include <dlfcn.h>

#include <mutex>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/types/span.h"
#include "graph/base/status.h"
#include "runtime/gpu/cuda/cudnn_frontend_calls.h"

namespace cudnn_frontend {
void* cudnn_dlhandle = nullptr;  // where the headers look up cuDNN's functions
}

namespace retrograd {
namespace fe = cudnn_frontend;
namespace {

// The first of the libraries that loads, or null.
void* OpenFirst(absl::Span<const std::string> names) {
  for (const std::string& name : names) {
    if (void* library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
  }
  return nullptr;
}

// Loads cuDNN, and the CUDA runtime that the headers ask for by its bare name.
absl::Status LoadLibraries(const std::string& library) {
  static std::mutex mutex;
  static std::string loaded;  // as it was asked for
  const std::lock_guard<std::mutex> lock(mutex);
  if (fe::cudnn_dlhandle != nullptr) {
    if (library.empty() || library == loaded) return absl::OkStatus();
    return absl::UnavailableError(absl::StrCat(
        "cuDNN cannot be loaded from ", library, ": this process has loaded it from ",
        loaded.empty() ? "where it is usually found" : loaded, ", and there is one for all"));
  }
  std::vector<std::string> names = {"libcudnn.so.9", "/usr/local/cuda/lib64/libcudnn.so.9",
                                    "/usr/local/cuda/lib/libcudnn.so.9"};
  if (!library.empty()) names = {library};
  const std::string versions[] = {"13", "12"};
  void* runtime = nullptr;
  for (const std::string& version : versions) {
    const std::string name = absl::StrCat("libcudart.so.", version);
    if (runtime == nullptr) {
      runtime = OpenFirst({name, absl::StrCat("/usr/local/cuda/lib64/", name)});
    }
  }
  if (runtime == nullptr) {
    return absl::UnavailableError(
        "no CUDA runtime found (libcudart.so.13, .12), which cuDNN needs: install the CUDA toolkit "
        "or put it on LD_LIBRARY_PATH");
  }
  fe::cudnn_dlhandle = OpenFirst(names);
  if (fe::cudnn_dlhandle == nullptr) {
    return absl::UnavailableError(
        absl::StrCat("no cuDNN found (", absl::StrJoin(names, ", "),
                     "): install cuDNN 9 (PyPI: nvidia-cudnn-cu13) or put it on LD_LIBRARY_PATH"));
  }
  loaded = library;
  return absl::OkStatus();
}

}  // namespace

std::string CudnnFirstLine(absl::string_view text) {
  const std::vector<absl::string_view> lines = absl::StrSplit(text, '\n', absl::SkipWhitespace());
  return lines.empty() ? "no reason given" : std::string(lines[0].substr(0, 300));
}

absl::Status CudnnFrontendStatus(fe::error_t error, absl::string_view step) {
  if (error.is_good()) return absl::OkStatus();
  const std::string text = absl::StrCat("cuDNN, ", step, ": ", CudnnFirstLine(error.get_message()));
  switch (error.get_code()) {
    case fe::error_code_t::INVALID_VARIANT_PACK: return absl::InvalidArgumentError(text);
    case fe::error_code_t::CUDA_API_FAILED:
    case fe::error_code_t::HANDLE_ERROR:
    case fe::error_code_t::GRAPH_EXECUTION_FAILED: return absl::InternalError(text);
    default: return absl::UnimplementedError(text);
  }
}

fe::DataType_t CudnnDataType(DType dtype) {
  switch (dtype) {
    case DType::kBf16: return fe::DataType_t::BFLOAT16;
    case DType::kFp16: return fe::DataType_t::HALF;
    case DType::kFp32: return fe::DataType_t::FLOAT;
    case DType::kInt32: return fe::DataType_t::INT32;
    case DType::kInt64: return fe::DataType_t::INT64;
    default: return fe::DataType_t::NOT_SET;
  }
}

absl::StatusOr<std::unique_ptr<CudnnHandle>> CudnnHandle::Create(const std::string& library,
                                                                 int sm) {
  RG_RETURN_IF_ERROR(LoadLibraries(library));
  std::unique_ptr<CudnnHandle> made(new CudnnHandle);
  made->sm_ = sm;
  RG_RETURN_IF_ERROR(CudnnGuarded("creating a handle", [&]() -> absl::Status {
    const size_t version = fe::detail::get_backend_version();
    made->version_ =
        absl::StrFormat("cuDNN %d.%d.%d", version / 10000, version / 100 % 100, version % 100);
    cudnnHandle_t handle = nullptr;
    const cudnnStatus_t status = fe::detail::create_handle(&handle);
    if (status != CUDNN_STATUS_SUCCESS) {
      return absl::UnavailableError(
          absl::StrCat(made->version_, " does not start: ", fe::detail::get_error_string(status)));
    }
    made->native_ = handle;
    return absl::OkStatus();
  }));
  return made;
}

CudnnHandle::~CudnnHandle() {
  if (native_ == nullptr) return;
  CudnnGuarded("destroying the handle", [&] {
    fe::detail::destroy_handle(static_cast<cudnnHandle_t>(native_));
    return absl::OkStatus();
  }).IgnoreError();
}

absl::Status CudnnHandle::UseStream(void* stream) {
  if (stream == stream_) return absl::OkStatus();
  const cudnnStatus_t status = fe::detail::set_stream(static_cast<cudnnHandle_t>(native_),
                                                      static_cast<cudaStream_t>(stream));
  if (status != CUDNN_STATUS_SUCCESS) {
    return absl::InternalError(
        absl::StrCat("cuDNN does not take the stream: ", fe::detail::get_error_string(status)));
  }
  stream_ = stream;
  return absl::OkStatus();
}

}  // namespace retrograd

#else  // !RETROGRAD_HAVE_CUDNN

namespace retrograd {

// Without the headers there is no handle, and whoever has no handle calls nothing else.
absl::StatusOr<std::unique_ptr<CudnnHandle>> CudnnHandle::Create(const std::string&, int) {
  return absl::UnavailableError(
      "this build has no cuDNN: run scripts/cudnn_headers.sh and build again (it fetches the "
      "headers of PyPI's nvidia-cudnn-frontend and nvidia-cudnn-cu13)");
}
CudnnHandle::~CudnnHandle() = default;
absl::Status CudnnHandle::UseStream(void*) { return absl::OkStatus(); }

}  // namespace retrograd

#endif  // RETROGRAD_HAVE_CUDNN
