// NVRTC, HIPRTC and modules: a code object is the kernels' source in the host dialect, which is
// compiled when it is loaded. Generated kernels are the same text in both dialects but for the
// prelude and the spelling of what is not finite.
#include <cstring>
#include <map>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "codegen/preludes/host_abi.h"
#include "codegen/translation_unit.h"
#include "runtime/gpu/gpu_support_kernels.h"
#include "runtime/host/host_launch.h"
#include "runtime/host/host_module.h"
#include "tests/fake_gpu/state.h"
#include "tests/support/kernels/kernels_from_text.h"

namespace retrograd::fake {
namespace {

constexpr char kObjectStart[] = "fake object for ";

#if defined(RETROGRAD_FAKE_HIP_LIBRARY)
constexpr Dialect kDialect = Dialect::kHip;
constexpr char kArchOption[] = "--offload-arch=";
constexpr int kWarp = 64;
constexpr int kFreelyStaged = 65536;  // what a block may have without asking
std::string Arch() { return absl::StrFormat("gfx%x", Property("gfx")); }
#else
constexpr Dialect kDialect = Dialect::kCuda;
constexpr char kArchOption[] = "--gpu-architecture=";
constexpr int kWarp = 32;
constexpr int kFreelyStaged = 0;
std::string Arch() { return absl::StrCat("sm_", Property("major"), Property("minor")); }
#endif
// Generated kernels in the words of the host.
std::string InHostWords(absl::string_view text) {
  return absl::StrReplaceAll(text, {{"__int_as_float(", "__builtin_bit_cast(float, "},
                                    {"__longlong_as_double(", "__builtin_bit_cast(double, "}});
}

// Whether a source begins with the dialect's prelude, which is taken off it, with the parts of it
// that the host has, too.
bool ConsumePrelude(absl::string_view* text) {
  PreludeParts tiles = PreludePart::kTensorCores, parts = tiles, wide = tiles;
  parts |= PreludePart::kParts;
  wide |= PreludePart::kWideTiles;
  PreludeParts dropout = wide;
  dropout |= PreludePart::kDropout;
  const PreludeParts known[] = {parts, dropout, wide, tiles, PreludeParts()};
  return std::any_of(std::begin(known), std::end(known), [&](PreludeParts of) {
    return absl::ConsumePrefix(text, Prelude(kDialect, of));
  });
}

struct Function {
  std::string name;
  HostKernel kernel;     // no code: one of the device's own
  bool direct = false;   // its addresses are parameters
  int staged_bytes = 0;  // the most dynamic shared memory that a launch may ask for
};

struct Module {
  std::shared_ptr<HostModule> host;
  bool support = false;          // the device's own kernels, which are written out below
  std::set<std::string> direct;  // names of kernels whose addresses are parameters
  std::map<std::string, Function> functions;  // that were asked for
};

int SetTable(uint64_t* table, const TableEntries& entries) {
  for (int i = 0; i < entries.count; ++i) table[entries.slot[i]] = entries.address[i];
  return kSuccess;
}

int CopyElements(const StridedCopy& c) {
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
  return kSuccess;
}

// The parameters are read when the kernel is launched, the table when it runs.
int LaunchOwn(const std::string& name, void** parameters, GpuStream stream) {
  if (name == "rg_set_table") {
    auto* const table = *static_cast<uint64_t**>(parameters[0]);
    return Issue(stream, name, WordsOf(*static_cast<const TableEntries*>(parameters[1])),
                 [table](const Words& w) { return SetTable(table, FromWords<TableEntries>(w)); });
  }
  if (name == "rg_copy_strided") {
    return Issue(stream, name, WordsOf(*static_cast<const StridedCopy*>(parameters[0])),
                 [](const Words& w) { return CopyElements(FromWords<StridedCopy>(w)); });
  }
  if (name == "rg_fill") {
    return Issue(stream, name, WordsOf(*static_cast<const MemoryFill*>(parameters[0])),
                 [](const Words& w) { return RunFill(FromWords<MemoryFill>(w)); });
  }
  return Issue(stream, name, [] { return kSuccess; });  // rg_spin
}

int RunGenerated(const HostKernel& kernel, int64_t blocks, int threads,
                 const std::vector<void*>& addresses) {
  std::vector<HostArg> args;
  for (void* address : addresses) {
    args.push_back({.data = address, .bytes = INT64_MAX, .alignment = 1, .written = true});
    if (address == nullptr) return kIllegalAddress;
  }
  thread_local HostLauncher launcher;
  return launcher.Run(kernel, blocks, threads, args).ok() ? kSuccess : kLaunchFailed;
}

int LaunchGenerated(const Function& function, int64_t blocks, int threads, void** parameters,
                    GpuStream stream) {
  const HostKernel& kernel = function.kernel;
  if (function.direct) {
    auto* const given = static_cast<uint64_t*>(parameters[0]);
    return Issue(stream, kernel.name, Words(given, given + kernel.code->arguments),
                 [=](const Words& words) {
                   std::vector<void*> addresses;
                   for (uint64_t word : words) addresses.push_back(reinterpret_cast<void*>(word));
                   return RunGenerated(kernel, blocks, threads, addresses);
                 });
  }
  auto* const table = *static_cast<void***>(parameters[0]);
  const auto* const slots = static_cast<const int32_t*>(parameters[1]);
  const std::vector<int32_t> at(slots, slots + kernel.code->arguments);
  return Issue(stream, kernel.name, [=] {
    std::vector<void*> addresses;
    for (int32_t slot : at) addresses.push_back(table[slot]);
    return RunGenerated(kernel, blocks, threads, addresses);
  });
}

// What the fake compiler makes of a source.
struct Compilation {
  std::string source, code, log;
};

}  // namespace

void AllowStagedBytes(GpuFunction function, int bytes) {
  reinterpret_cast<Function*>(function)->staged_bytes = bytes;
}

const std::string& NameOf(GpuFunction function) {
  return reinterpret_cast<Function*>(function)->name;
}

}  // namespace retrograd::fake

using namespace retrograd;        // NOLINT: the vendor's functions are global
using namespace retrograd::fake;  // NOLINT

extern "C" {

int FAKE_NAME(cuModuleLoadData, hipModuleLoadData)(GpuModule* module, const void* image) {
  FAKE_ENTER_WITH_CONTEXT();
  if (RefusedByCapture()) return kCaptureUnsupported;
  absl::string_view text(static_cast<const char*>(image));
  if (!absl::ConsumePrefix(&text, kObjectStart)) return kInvalidImage;
  if (!absl::ConsumePrefix(&text, Arch() + "\n")) return kNoBinary;
  auto loaded = std::make_unique<Module>();
  loaded->support = text == kGpuSupportKernels;
  std::vector<Kernel> kernels;
  if (!loaded->support) kernels = KernelsFromText(text, kWarp);
  for (const Kernel& kernel : kernels) {
    if (kernel.direct) loaded->direct.insert(kernel.name);
  }
  auto host = HostModule::Compile(kernels, {.warp = kWarp});
  if (!host.ok()) return kInvalidKernel;
  loaded->host = *host;
  *module = reinterpret_cast<GpuModule>(loaded.release());
  return kSuccess;
}

int FAKE_NAME(cuModuleUnload, hipModuleUnload)(GpuModule module) {
  FAKE_ENTER_WITH_CONTEXT();
  delete reinterpret_cast<Module*>(module);
  return kSuccess;
}

int FAKE_NAME(cuModuleGetFunction, hipModuleGetFunction)(GpuFunction* function, GpuModule module,
                                                         const char* name) {
  FAKE_ENTER_WITH_CONTEXT();
  Module& m = *reinterpret_cast<Module*>(module);
  Function made{.name = name, .staged_bytes = kFreelyStaged};
  if (m.support) {
    if (!absl::StrContains(kGpuSupportKernels, absl::StrCat(" ", name, "("))) {
      return kNotFound;
    }
  } else {
    auto found = m.host->Find(name);
    if (!found.ok()) return kNotFound;
    made.kernel = *found;
    made.direct = m.direct.contains(name);
  }
  // Whoever asks twice gets the same.
  *function = reinterpret_cast<GpuFunction>(&m.functions.emplace(name, made).first->second);
  return kSuccess;
}

int FAKE_NAME(cuLaunchKernel,
              hipModuleLaunchKernel)(GpuFunction function, unsigned grid_x, unsigned grid_y,
                                     unsigned grid_z, unsigned block_x, unsigned block_y,
                                     unsigned block_z, unsigned shared_bytes, GpuStream stream,
                                     void** parameters, void** extra) {
  FAKE_ENTER_WITH_CONTEXT();
  const Function& f = *reinterpret_cast<Function*>(function);
  if (grid_x == 0 || grid_x > 0x7fffffffu || grid_y * grid_z * block_y * block_z != 1 ||
      block_x == 0 || block_x > 1024 || extra != nullptr) {
    return kInvalidValue;
  }
  if (static_cast<int>(shared_bytes) > f.staged_bytes) return kInvalidValue;
  if (f.kernel.code == nullptr) return LaunchOwn(f.name, parameters, stream);
  if (static_cast<int>(block_x) != f.kernel.code->threads) return kInvalidValue;
  return LaunchGenerated(f, grid_x, static_cast<int>(block_x), parameters, stream);
}

// --- the compiler; its handles are pointers and its results are 0 for success ---

const char* FAKE_NAME(nvrtcGetErrorString, hiprtcGetErrorString)(int error) {
  return error == 6 ? "ERROR_COMPILATION" : "a failure that was ordered";
}
int FAKE_NAME(nvrtcVersion, hiprtcVersion)(int* major, int* minor) {
  *major = 99;  // like no real one's, so that caches know them apart
  *minor = 0;
  return 0;
}
int FAKE_NAME(nvrtcCreateProgram, hiprtcCreateProgram)(void** program, const char* source,
                                                       const char*, int, const char* const*,
                                                       const char* const*) {
  if (const int ordered = Enter(__func__)) return ordered;
  *program = new Compilation{.source = source};
  return 0;
}
int FAKE_NAME(nvrtcCompileProgram, hiprtcCompileProgram)(void* program, int count,
                                                         const char* const* options) {
  auto& c = *static_cast<Compilation*>(program);
  if (const int ordered = Enter(__func__)) {
    c.log = "kernels(1): error: ordered";
    return ordered;
  }
  std::string arch;
  for (int i = 0; i < count; ++i) {
    absl::string_view option = options[i];
    if (absl::ConsumePrefix(&option, kArchOption)) arch = std::string(option);
  }
  absl::string_view text = c.source;
  std::string kernels(text);
  if (ConsumePrelude(&text)) {
    kernels = InHostWords(text);
  } else if (text != kGpuSupportKernels) {
    c.log = "kernels(1): error: not the prelude of the dialect";
    return 6;
  }
  c.code = absl::StrCat(kObjectStart, arch, "\n", kernels);
  return 0;
}
int FAKE_NAME(nvrtcGetProgramLogSize, hiprtcGetProgramLogSize)(void* program, size_t* size) {
  *size = static_cast<Compilation*>(program)->log.size() + 1;
  return 0;
}
int FAKE_NAME(nvrtcGetProgramLog, hiprtcGetProgramLog)(void* program, char* log) {
  std::strcpy(log, static_cast<Compilation*>(program)->log.c_str());
  return 0;
}
int FAKE_NAME(nvrtcGetCUBINSize, hiprtcGetCodeSize)(void* program, size_t* size) {
  if (const int ordered = Enter(__func__)) return ordered;
  *size = static_cast<Compilation*>(program)->code.size() + 1;
  return 0;
}
int FAKE_NAME(nvrtcGetCUBIN, hiprtcGetCode)(void* program, char* code) {
  if (const int ordered = Enter(__func__)) return ordered;
  std::strcpy(code, static_cast<Compilation*>(program)->code.c_str());
  return 0;
}
int FAKE_NAME(nvrtcDestroyProgram, hiprtcDestroyProgram)(void** program) {
  delete static_cast<Compilation*>(*program);
  return 0;
}

}  // extern "C"
