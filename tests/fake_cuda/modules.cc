// NVRTC and modules: a "cubin" is the source in the host dialect, which is compiled when it is
// loaded. Generated kernels are the same text in both dialects but for the prelude and the spelling
// of what is not finite.
#include <cstring>
#include <map>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "codegen/host_abi.h"
#include "codegen/kernel.h"
#include "runtime/gpu_support_kernels.h"
#include "runtime/host_launch.h"
#include "runtime/host_module.h"
#include "tests/fake_cuda/state.h"

namespace retrograd::fake {
namespace {

constexpr char kCubinStart[] = "fake cubin for ";
constexpr char kSpellings[] = R"(
#define __int_as_float(bits) rg_float_of(bits)
inline double __longlong_as_double(long long bits) {
  double v;
  __builtin_memcpy(&v, &bits, sizeof v);
  return v;
}
)";

struct Function {
  std::string name;
  HostKernel kernel;  // no code: one of the device's own
  int staged_bytes = 0;  // the most dynamic shared memory that a launch may ask for
};

struct Module {
  std::shared_ptr<HostModule> host;
  bool support = false;  // the device's own kernels, which are written out below
  std::map<std::string, Function> functions;  // that were asked for
};

CUresult SetTable(uint64_t* table, const TableEntries& entries) {
  for (int i = 0; i < entries.count; ++i) table[entries.slot[i]] = entries.address[i];
  return CUDA_SUCCESS;
}

CUresult CopyElements(const StridedCopy& c) {
  for (int64_t i = 0; i < c.elements; ++i) {
    int64_t rest = i, to = 0, from = 0;
    for (int d = c.rank - 1; d >= 0; --d) {
      to += rest % c.shape[d] * c.to_strides[d];
      from += rest % c.shape[d] * c.from_strides[d];
      rest /= c.shape[d];
    }
    std::memcpy(reinterpret_cast<char*>(c.to) + to * c.element_bytes,
                reinterpret_cast<const char*>(c.from) + from * c.element_bytes,
                static_cast<size_t>(c.element_bytes));
  }
  return CUDA_SUCCESS;
}

// The parameters are read when the kernel is launched, the table when it runs.
CUresult LaunchOwn(const std::string& name, void** parameters, CUstream stream) {
  if (name == "rg_set_table") {
    auto* const table = *static_cast<uint64_t**>(parameters[0]);
    const auto entries = *static_cast<const TableEntries*>(parameters[1]);
    return Issue(stream, name, [table, entries] { return SetTable(table, entries); });
  }
  if (name == "rg_copy_strided") {
    const auto copy = *static_cast<const StridedCopy*>(parameters[0]);
    return Issue(stream, name, [copy] { return CopyElements(copy); });
  }
  return Issue(stream, name, [] { return CUDA_SUCCESS; });  // rg_spin
}

CUresult LaunchGenerated(const HostKernel& kernel, int64_t blocks, int threads, void** parameters,
                         CUstream stream) {
  auto* const table = *static_cast<void***>(parameters[0]);
  const auto* const slots = static_cast<const int32_t*>(parameters[1]);
  const std::vector<int32_t> at(slots, slots + kernel.code->arguments);
  return Issue(stream, kernel.name, [=] {
    std::vector<HostArg> args;
    for (int32_t slot : at) {
      args.push_back({.data = table[slot], .bytes = INT64_MAX, .alignment = 1, .written = true});
      if (args.back().data == nullptr) return CUDA_ERROR_ILLEGAL_ADDRESS;
    }
    thread_local HostLauncher launcher;
    return launcher.Run(kernel, blocks, threads, args).ok() ? CUDA_SUCCESS
                                                            : CUDA_ERROR_LAUNCH_FAILED;
  });
}

// What the fake NVRTC makes of a source.
struct Compilation {
  std::string source, code, log;
};

}  // namespace
}  // namespace retrograd::fake

using namespace retrograd;        // NOLINT: the vendor's functions are global
using namespace retrograd::fake;  // NOLINT

extern "C" {

CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  FAKE_ENTER_WITH_CONTEXT(cuModuleLoadData);
  if (RefusedByCapture()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  absl::string_view text(static_cast<const char*>(image));
  if (!absl::ConsumePrefix(&text, kCubinStart)) return CUDA_ERROR_INVALID_IMAGE;
  const std::string arch = absl::StrCat("sm_", Property("major"), Property("minor"), "\n");
  if (!absl::ConsumePrefix(&text, arch)) return CUDA_ERROR_NO_BINARY_FOR_GPU;
  auto loaded = std::make_unique<Module>();
  loaded->support = text == kGpuSupportKernels;
  auto host = HostModule::Compile(loaded->support ? "" : text, {});
  if (!host.ok()) return CUDA_ERROR_INVALID_PTX;
  loaded->host = *host;
  *module = reinterpret_cast<CUmodule>(loaded.release());
  return CUDA_SUCCESS;
}

CUresult cuModuleUnload(CUmodule module) {
  FAKE_ENTER_WITH_CONTEXT(cuModuleUnload);
  delete reinterpret_cast<Module*>(module);
  return CUDA_SUCCESS;
}

CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  FAKE_ENTER_WITH_CONTEXT(cuModuleGetFunction);
  Module& m = *reinterpret_cast<Module*>(module);
  Function made{name, {}, 0};
  if (m.support) {
    if (!absl::StrContains(kGpuSupportKernels, absl::StrCat(" ", name, "("))) {
      return CUDA_ERROR_NOT_FOUND;
    }
  } else {
    auto found = m.host->Find(name);
    if (!found.ok()) return CUDA_ERROR_NOT_FOUND;
    made.kernel = *found;
  }
  // Whoever asks twice gets the same.
  *function = reinterpret_cast<CUfunction>(&m.functions.emplace(name, made).first->second);
  return CUDA_SUCCESS;
}

CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value) {
  FAKE_ENTER_WITH_CONTEXT(cuFuncSetAttribute);
  if (attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES || value < 0 || value > 232448) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  reinterpret_cast<Function*>(function)->staged_bytes = value;
  return CUDA_SUCCESS;
}

CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                        unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                        CUstream stream, void** parameters, void** extra) {
  FAKE_ENTER_WITH_CONTEXT(cuLaunchKernel);
  const Function& f = *reinterpret_cast<Function*>(function);
  if (grid_x == 0 || grid_x > 0x7fffffffu || grid_y * grid_z * block_y * block_z != 1 ||
      block_x == 0 || block_x > 1024 || extra != nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (static_cast<int>(shared_bytes) > f.staged_bytes) return CUDA_ERROR_INVALID_VALUE;
  if (f.kernel.code == nullptr) return LaunchOwn(f.name, parameters, stream);
  if (static_cast<int>(block_x) != f.kernel.code->threads) return CUDA_ERROR_INVALID_VALUE;
  return LaunchGenerated(f.kernel, grid_x, static_cast<int>(block_x), parameters, stream);
}

// --- NVRTC; its handles are pointers and its results are 0 for success ---

const char* nvrtcGetErrorString(int error) {
  return error == 6 ? "NVRTC_ERROR_COMPILATION" : "a failure that was ordered";
}
int nvrtcVersion(int* major, int* minor) {
  *major = 99;  // like no real one's, so that caches know them apart
  *minor = 0;
  return 0;
}
int nvrtcCreateProgram(void** program, const char* source, const char*, int, const char* const*,
                       const char* const*) {
  if (const int ordered = Enter("nvrtcCreateProgram")) return ordered;
  *program = new Compilation{.source = source};
  return 0;
}
int nvrtcCompileProgram(void* program, int count, const char* const* options) {
  auto& c = *static_cast<Compilation*>(program);
  if (const int ordered = Enter("nvrtcCompileProgram")) {
    c.log = "kernels(1): error: ordered";
    return ordered;
  }
  std::string arch;
  for (int i = 0; i < count; ++i) {
    absl::string_view option = options[i];
    if (absl::ConsumePrefix(&option, "--gpu-architecture=")) arch = std::string(option);
  }
  absl::string_view text = c.source;
  std::string host;
  if (absl::ConsumePrefix(&text, Prelude(Dialect::kCuda))) {
    host = absl::StrCat(Prelude(Dialect::kHost), kSpellings);
  } else if (text != kGpuSupportKernels) {
    c.log = "kernels(1): error: not the prelude of the CUDA dialect";
    return 6;
  }
  c.code = absl::StrCat(kCubinStart, arch, "\n", host, text);
  return 0;
}
int nvrtcGetProgramLogSize(void* program, size_t* size) {
  *size = static_cast<Compilation*>(program)->log.size() + 1;
  return 0;
}
int nvrtcGetProgramLog(void* program, char* log) {
  std::strcpy(log, static_cast<Compilation*>(program)->log.c_str());
  return 0;
}
int nvrtcGetCUBINSize(void* program, size_t* size) {
  if (const int ordered = Enter("nvrtcGetCUBINSize")) return ordered;
  *size = static_cast<Compilation*>(program)->code.size() + 1;
  return 0;
}
int nvrtcGetCUBIN(void* program, char* code) {
  if (const int ordered = Enter("nvrtcGetCUBIN")) return ordered;
  std::strcpy(code, static_cast<Compilation*>(program)->code.c_str());
  return 0;
}
int nvrtcDestroyProgram(void** program) {
  delete static_cast<Compilation*>(*program);
  return 0;
}

}  // extern "C"
