// NVRTC and HIPRTC have the same functions under other prefixes, so one table of entry points,
// filled from either library, serves both.
#include "runtime/compiler/rtc.h"

#include <dlfcn.h>

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "codegen/translation_unit.h"
#include "fusion/kernel/ir/scale.h"
#include "graph/base/status.h"
#include "runtime/compiler/code_object.h"

namespace retrograd {
namespace {

constexpr int kMostErrorLines = 6;

// One compiler library: names as its vendor's C headers declare them.
struct Vendor {
  const char* name;       // "NVRTC"
  const char* prefix;     // of the functions
  const char* code_size;  // the functions that yield the code
  const char* code;
  const char* install;                 // what to do where it is missing
  std::vector<const char*> libraries;  // tried in order
};

const Vendor& Nvidia() {
  static const Vendor& vendor =
      *new Vendor{"NVRTC",
                  "nvrtc",
                  "nvrtcGetCUBINSize",
                  "nvrtcGetCUBIN",
                  "install the CUDA toolkit's NVRTC (libnvrtc.so) or give its path",
                  {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2", "libnvrtc.so",
                   "/usr/local/cuda/lib64/libnvrtc.so", "/usr/local/cuda/lib64/libnvrtc.so.13",
                   "/usr/local/cuda/lib64/libnvrtc.so.12"}};
  return vendor;
}

// Up to ROCm 5 HIPRTC is part of the HIP runtime library.
const Vendor& Amd() {
  static const Vendor& vendor = *new Vendor{
      "HIPRTC",
      "hiprtc",
      "hiprtcGetCodeSize",
      "hiprtcGetCode",
      "install HIP's runtime (Debian: libamdhip64-5 and hipcc) or give the library's path",
      {"libhiprtc.so.7", "libhiprtc.so.6", "libhiprtc.so.5", "libhiprtc.so", "libamdhip64.so.5",
       "libamdhip64.so", "/opt/rocm/lib/libhiprtc.so", "/opt/rocm/lib/libamdhip64.so"}};
  return vendor;
}

using Program = void*;

// Entry points; every one returns 0 for success.
struct Compiler {
  const char* (*error_string)(int) = nullptr;
  int (*version)(int*, int*) = nullptr;
  int (*create)(Program*, const char* source, const char* name, int headers, const char* const*,
                const char* const*) = nullptr;
  int (*compile)(Program, int options, const char* const*) = nullptr;
  int (*log_size)(Program, size_t*) = nullptr;
  int (*log)(Program, char*) = nullptr;
  int (*code_size)(Program, size_t*) = nullptr;
  int (*code)(Program, char*) = nullptr;
  int (*destroy)(Program*) = nullptr;
  std::string display;  // "NVRTC 13.0"
};

template <typename Function>
bool Bind(void* library, const std::string& name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(library, name.c_str()));
  return *function != nullptr;
}

// The library stays loaded: compilers keep threads and state of their own.
absl::StatusOr<Compiler> LoadCompiler(const Vendor& vendor, const std::string& path) {
  std::vector<const char*> candidates = vendor.libraries;
  if (!path.empty()) candidates = {path.c_str()};
  for (const char* candidate : candidates) {
    void* library = dlopen(candidate, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) continue;
    Compiler c;
    const std::string prefix = vendor.prefix;
    const bool complete = Bind(library, prefix + "GetErrorString", &c.error_string) &&
                          Bind(library, prefix + "Version", &c.version) &&
                          Bind(library, prefix + "CreateProgram", &c.create) &&
                          Bind(library, prefix + "CompileProgram", &c.compile) &&
                          Bind(library, prefix + "GetProgramLogSize", &c.log_size) &&
                          Bind(library, prefix + "GetProgramLog", &c.log) &&
                          Bind(library, vendor.code_size, &c.code_size) &&
                          Bind(library, vendor.code, &c.code) &&
                          Bind(library, prefix + "DestroyProgram", &c.destroy);
    if (!complete) continue;
    int major = 0, minor = 0;
    c.version(&major, &minor);
    c.display = absl::StrFormat("%s %d.%d", vendor.name, major, minor);
    return c;
  }
  return absl::UnavailableError(absl::StrCat(
      "no ", vendor.name, " found (", absl::StrJoin(candidates, ", "), "): ", vendor.install));
}

// Loaded once for each library path. The error is remembered too.
absl::StatusOr<Compiler> CompilerOf(const Vendor& vendor, const RtcOptions& options) {
  static std::mutex& mutex = *new std::mutex;
  static auto& loaded = *new std::map<std::string, absl::StatusOr<Compiler>>;
  std::lock_guard<std::mutex> lock(mutex);
  const std::string key = absl::StrCat(vendor.name, ":", options.library);
  auto it = loaded.find(key);
  if (it == loaded.end()) {
    it = loaded.emplace(key, LoadCompiler(vendor, options.library)).first;
  }
  return it->second;
}

// The lines with errors, or the log's first lines.
std::string FirstErrors(absl::string_view log) {
  std::vector<absl::string_view> errors, first;
  for (absl::string_view line : absl::StrSplit(log, '\n', absl::SkipEmpty())) {
    if (first.size() < kMostErrorLines) first.push_back(line);
    if (absl::StrContains(line, "error") && errors.size() < kMostErrorLines) {
      errors.push_back(line);
    }
  }
  return absl::StrJoin(errors.empty() ? first : errors, "\n");
}

absl::StatusOr<CompiledObject> CompileWith(const Compiler& c, absl::string_view source,
                                           const std::vector<std::string>& options) {
  Program program = nullptr;
  const std::string text(source);
  const auto failed = [&](absl::string_view step, int error) {
    return absl::InternalError(absl::StrCat(c.display, ": ", step, ": ", c.error_string(error)));
  };
  if (int e = c.create(&program, text.c_str(), "kernels", 0, nullptr, nullptr); e != 0) {
    return failed("creating a program", e);
  }
  const auto destroy = [&c](Program* p) { c.destroy(p); };
  const std::unique_ptr<Program, decltype(destroy)> owner(&program, destroy);

  std::vector<const char*> arguments;
  arguments.reserve(options.size());
  for (const std::string& option : options) arguments.push_back(option.c_str());
  const int compiled = c.compile(program, static_cast<int>(arguments.size()), arguments.data());
  CompiledObject object{.compiler = c.display};
  size_t size = 0;
  if (c.log_size(program, &size) == 0 && size > 0) {
    object.log.resize(size);
    if (c.log(program, object.log.data()) != 0) object.log.clear();
    object.log.resize(std::min(object.log.size(), object.log.find('\0')));
  }
  if (compiled != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(c.display, ": ", c.error_string(compiled), "\n", FirstErrors(object.log)));
  }
  if (int e = c.code_size(program, &size); e != 0) return failed("reading the code's size", e);
  object.code.resize(size);
  if (int e = c.code(program, object.code.data()); e != 0) return failed("reading the code", e);
  return object;
}

// Blocks on an SM that kernels are compiled for, where that is not left to the assembler.
using BlocksByKernel = absl::flat_hash_map<std::string, int64_t>;

constexpr int64_t kRegistersPerSm = 65536, kRegisterStep = 8, kMostRegisters = 255;
constexpr int kMostResidencyRounds = 4;

// The least part of its registers that a kernel is held to. An estimate: fewer were not tried.
constexpr double kLeastOfRegisters = 0.8;

int64_t RegistersFor(int64_t blocks, int64_t threads) {
  return std::min(kRegistersPerSm / (blocks * threads) / kRegisterStep * kRegisterStep,
                  kMostRegisters);
}

int64_t WholeSteps(int64_t registers) { return CeilDiv(registers, kRegisterStep) * kRegisterStep; }

// A plan cuts a kernel's work for the blocks that it expects to be resident: where the kernel takes
// a few registers more, its last blocks wait for the first. 0: the kernel is left as it is. One
// whose sizes vary is: equal texts have other grids.
int64_t BlocksOfPlan(const Kernel& kernel, const KernelResources& compiled, int64_t sms) {
  if (kernel.resident == 0 || !kernel.lifted.empty() || compiled.spill_bytes > 0) return 0;
  const int64_t resident =
      kRegistersPerSm / std::max<int64_t>(WholeSteps(compiled.registers) * kernel.threads, 1);
  if (kernel.resident <= resident || sms == 0 || kernel.blocks <= resident * sms) return 0;
  const auto least = static_cast<int64_t>(kLeastOfRegisters * compiled.registers);
  return RegistersFor(kernel.resident, kernel.threads) >= least ? kernel.resident : 0;
}

// Left to itself, NVIDIA's assembler spills a few registers where that makes room for one more
// block on an SM. A plan counts on no spills, so such a kernel is compiled again for fewer blocks.
// 0: it does not spill, or no fewer blocks help.
int64_t BlocksWithoutSpills(const Kernel& kernel, const KernelResources& compiled) {
  if (compiled.spill_bytes == 0) return 0;
  const int64_t used = WholeSteps(compiled.registers);
  int64_t blocks = kRegistersPerSm / std::max<int64_t>(used * kernel.threads, 1);
  while (blocks > 0 && RegistersFor(blocks, kernel.threads) <= used) --blocks;
  return blocks;
}

const Kernel* FindKernel(absl::Span<const Kernel> kernels, absl::string_view name) {
  const auto kernel =
      std::find_if(kernels.begin(), kernels.end(), [&](const Kernel& k) { return k.name == name; });
  return kernel == kernels.end() ? nullptr : &*kernel;
}

std::string SourceFor(absl::Span<const Kernel> kernels, const BlocksByKernel& blocks_of) {
  return TranslationUnit(kernels, Dialect::kCuda, [&](const Kernel& kernel) {
    const auto it = blocks_of.find(kernel.name);
    return it != blocks_of.end() ? PrintResidentHead(kernel, it->second) : PrintHead(kernel);
  });
}

}  // namespace

absl::StatusOr<CompiledObject> CompileCuda(absl::string_view source, absl::string_view arch,
                                           const RtcOptions& options) {
  RG_ASSIGN_OR_RETURN(const Compiler compiler, CompilerOf(Nvidia(), options));
  // fp32 arithmetic as written, but for contraction into fused multiply-adds; -v for resources.
  RG_ASSIGN_OR_RETURN(CompiledObject object,
                      CompileWith(compiler, source,
                                  {absl::StrCat("--gpu-architecture=", arch), "--std=c++17",
                                   // Quotients within two units in the last place, as Triton's
                                   // are: a third of the instructions.
                                   "--prec-div=false", "--ptxas-options=-v",
                                   // A generic lambda cannot say that it is the device's.
                                   "-default-device"}));
  object.kernels = ResourcesFromPtxasLog(object.log);
  return object;
}

absl::StatusOr<CompiledObject> CompileHip(absl::string_view source, absl::string_view arch,
                                          const RtcOptions& options) {
  RG_ASSIGN_OR_RETURN(const Compiler compiler, CompilerOf(Amd(), options));
  RG_ASSIGN_OR_RETURN(
      CompiledObject object,
      CompileWith(compiler, source, {absl::StrCat("--offload-arch=", arch), "-std=c++17", "-O3"}));
  object.kernels = ResourcesFromAmdObject(object.code);
  return object;
}

absl::StatusOr<CompiledObject> CompileFor(Dialect dialect, absl::string_view source,
                                          absl::string_view arch, const RtcOptions& options) {
  RG_CHECK(dialect != Dialect::kHost);
  return dialect == Dialect::kCuda ? CompileCuda(source, arch, options)
                                   : CompileHip(source, arch, options);
}

namespace {

// The blocks of those kernels for which the assembler's choice is not the best, by `compiled`, what
// it has made of them. These alone are compiled to find out.
absl::StatusOr<BlocksByKernel> ChooseBlocks(absl::Span<const Kernel> kernels,
                                            absl::Span<const KernelResources> compiled,
                                            absl::string_view arch, const RtcOptions& options) {
  BlocksByKernel blocks_of;
  absl::flat_hash_set<std::string> spills_alone;
  std::vector<Kernel> trying;
  const auto try_with = [&](const Kernel& kernel, int64_t blocks) {
    if (blocks < 1) return;
    blocks_of[kernel.name] = blocks;
    trying.push_back(kernel);
  };
  for (const KernelResources& resources : compiled) {
    const Kernel* const kernel = FindKernel(kernels, resources.name);
    // Others have one block on an SM.
    if (kernel == nullptr || !MayBeResident(*kernel)) continue;
    if (resources.spill_bytes > 0) spills_alone.insert(kernel->name);
    try_with(*kernel, resources.spill_bytes == 0 ? BlocksOfPlan(*kernel, resources, options.sms)
                                                 : BlocksWithoutSpills(*kernel, resources));
  }
  for (int round = 0; round < kMostResidencyRounds && !trying.empty(); ++round) {
    const std::vector<Kernel> tried = std::exchange(trying, {});
    RG_ASSIGN_OR_RETURN(const CompiledObject trial,
                        CompileCuda(SourceFor(tried, blocks_of), arch, options));
    for (const KernelResources& resources : trial.kernels) {
      const Kernel* const kernel = FindKernel(tried, resources.name);
      if (kernel == nullptr || resources.spill_bytes == 0) continue;
      if (spills_alone.count(kernel->name) == 0) {
        blocks_of.erase(kernel->name);
      } else {
        try_with(*kernel, BlocksWithoutSpills(*kernel, resources));
      }
    }
  }
  return blocks_of;
}

}  // namespace

absl::StatusOr<CompiledObject> CompileKernels(Dialect dialect, absl::Span<const Kernel> kernels,
                                              absl::string_view arch, const RtcOptions& options) {
  if (dialect != Dialect::kCuda) {
    return CompileFor(dialect, TranslationUnit(kernels, dialect), arch, options);
  }
  RG_ASSIGN_OR_RETURN(CompiledObject object, CompileCuda(SourceFor(kernels, {}), arch, options));
  RG_ASSIGN_OR_RETURN(const BlocksByKernel blocks_of,
                      ChooseBlocks(kernels, object.kernels, arch, options));
  if (blocks_of.empty()) return object;
  return CompileCuda(SourceFor(kernels, blocks_of), arch, options);
}

std::string CompiledBy(absl::Span<const Kernel> kernels, const RtcOptions& options) {
  std::string text = absl::StrCat(options.sms, " multiprocessors\n");
  for (const Kernel& kernel : kernels) {
    if (kernel.resident == 0 || !kernel.lifted.empty()) continue;
    absl::StrAppend(&text, kernel.name, ": ", kernel.blocks, " blocks, ", kernel.resident, "\n");
  }
  return text;
}

absl::StatusOr<std::string> CompilerName(Dialect dialect, const RtcOptions& options) {
  RG_CHECK(dialect != Dialect::kHost);
  RG_ASSIGN_OR_RETURN(const Compiler compiler,
                      CompilerOf(dialect == Dialect::kCuda ? Nvidia() : Amd(), options));
  return compiler.display;
}

absl::Status CudaCompilerAvailable(const RtcOptions& options) {
  return CompilerOf(Nvidia(), options).status();
}

absl::Status HipCompilerAvailable(const RtcOptions& options) {
  return CompilerOf(Amd(), options).status();
}

}  // namespace retrograd
