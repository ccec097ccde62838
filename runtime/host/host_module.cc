#include "runtime/host/host_module.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "codegen/preludes/host_abi.h"
#include "codegen/translation_unit.h"
#include "graph/base/status.h"
#include "runtime/compiler/module_cache.h"
#include "runtime/host/host_compiler.h"

namespace retrograd {
namespace {

// A second compiler starts to pay at about this many kernels.
constexpr size_t kKernelsAFile = 8;

// Kernels in which threads meet need fibers; the others run as plain loops.
std::string HostHead(const Kernel& kernel) {
  return kernel.threads_meet ? PrintCooperativeHead(kernel) : PrintHead(kernel);
}

std::vector<std::string> Flags(const HostCompileOptions& options) {
  std::string optimization = options.optimization;
  if (optimization.empty()) optimization = options.check ? "-O0" : "-O1";
  std::vector<std::string> flags = {
      "-std=c++20", optimization, "-fPIC", "-w",
      // One buffer may hold several types, such as a workspace.
      "-fno-strict-aliasing",
      // Integers wrap on a GPU.
      "-fwrapv",
      // The same arithmetic on every machine, and no calls only to set errno.
      "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math", "-fvisibility=hidden",
      "-fno-exceptions", "-fno-rtti", "-fno-asynchronous-unwind-tables", "-fno-stack-protector",
      absl::StrCat("-DRG_WARP=", options.warp)};
  if (options.check) flags.push_back("-DRG_CHECK_MODE");
  return flags;
}

// All that the code depends on.
std::string CacheKey(const HostCompiler& compiler, const std::vector<std::string>& flags,
                     absl::string_view source) {
  return absl::StrCat("retrograd host module, abi ", RG_HOST_ABI, "\n", compiler.path, "\n",
                      compiler.version, "\n", absl::StrJoin(flags, " "), "\n", source.size(),
                      " bytes, ", Digest(source), "\n");
}

absl::Status WriteFile(const std::string& path, absl::string_view content) {
  std::ofstream out(path, std::ios::binary);
  out << content;
  out.close();
  if (out) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("cannot write ", path, "; is the disk full?"));
}

// The shared object's path in the work directory.
absl::StatusOr<std::string> CompileIn(const std::string& folder, absl::Span<const Kernel> kernels,
                                      const HostCompiler& compiler,
                                      const std::vector<std::string>& flags, int jobs,
                                      const Cancelled& cancelled) {
  if (jobs <= 0) jobs = std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, 8);
  const size_t files = std::clamp<size_t>(kernels.size() / kKernelsAFile, 1, jobs);
  PreludeParts parts;
  for (const Kernel& kernel : kernels) parts |= kernel.parts;
  std::vector<std::string> sources;
  for (size_t file = 0; file < files; ++file) {
    std::string text = absl::StrCat("#line 1 \"host_simt.h\"\n", Prelude(Dialect::kHost, parts));
    // Dealt out in turn, since neighbours tend to be alike in size.
    for (size_t i = file; i < kernels.size(); i += files) {
      // Lines in messages count from the kernel's first.
      absl::StrAppend(&text, "#line 1 \"", kernels[i].name, "\"\n",
                      PrintKernel(kernels[i], HostHead(kernels[i])));
    }
    sources.push_back(absl::StrCat(folder, "/kernels", file, ".cc"));
    RG_RETURN_IF_ERROR(WriteFile(sources.back(), text));
  }
  std::string output = absl::StrCat(folder, "/kernels.so");
  RG_RETURN_IF_ERROR(CompileSharedObject(compiler, flags, sources, output, cancelled));
  return output;
}

std::string TemporaryFolder() {
  const char* folder = std::getenv("TMPDIR");
  return folder != nullptr && folder[0] == '/' ? folder : "/tmp";
}

}  // namespace

absl::StatusOr<std::shared_ptr<HostModule>> HostModule::Compile(absl::Span<const Kernel> kernels,
                                                                const HostCompileOptions& options) {
  if (options.warp != 32 && options.warp != 64) {
    return absl::InvalidArgumentError(
        absl::StrCat("a warp of ", options.warp, " threads: the host has 32 or 64"));
  }
  RG_RETURN_IF_ERROR(CheckNames(kernels));
  if (kernels.empty()) return std::shared_ptr<HostModule>(new HostModule);
  std::vector<std::string> names;
  for (const Kernel& kernel : kernels) names.push_back(kernel.name);
  RG_ASSIGN_OR_RETURN(const HostCompiler compiler, FindHostCompiler(options.compiler));
  const std::vector<std::string> flags = Flags(options);
  const std::string key =
      CacheKey(compiler, flags, TranslationUnit(kernels, Dialect::kHost, HostHead));

  std::optional<ModuleCache> cache;
  if (options.cache) {
    absl::StatusOr<ModuleCache> opened = ModuleCache::Open(
        options.cache_dir.empty() ? ModuleCache::DefaultDirectory("host") : options.cache_dir,
        options.cache_bytes);
    if (opened.ok()) cache = *std::move(opened);
  }
  if (cache.has_value()) {
    if (const std::optional<std::string> entry = cache->Find(key)) {
      absl::StatusOr<std::shared_ptr<HostModule>> module = Load(*entry, names);
      if (module.ok()) {
        (*module)->from_cache_ = true;
        return module;
      }
    }
    // A cache that cannot be written is no reason to fail: below is a way without it.
    absl::StatusOr<WorkDirectory> work = WorkDirectory::MakeIn(cache->directory());
    if (work.ok()) {
      absl::StatusOr<std::string> built =
          CompileIn(work->path(), kernels, compiler, flags, options.jobs, options.cancelled);
      if (built.ok()) built = cache->Insert(key, *built);
      if (built.ok()) {
        absl::StatusOr<std::shared_ptr<HostModule>> module = Load(*built, names);
        if (module.ok()) return module;
        built = module.status();
      }
      if (absl::IsInternal(built.status())) return built.status();
    }
  }
  RG_ASSIGN_OR_RETURN(const WorkDirectory work, WorkDirectory::MakeIn(TemporaryFolder()));
  RG_ASSIGN_OR_RETURN(const std::string built, CompileIn(work.path(), kernels, compiler, flags,
                                                         options.jobs, options.cancelled));
  return Load(built, names);
}

absl::StatusOr<std::shared_ptr<HostModule>> HostModule::Load(
    const std::string& path, const std::vector<std::string>& kernels) {
  std::shared_ptr<HostModule> module(new HostModule);
  module->handle_ = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (module->handle_ == nullptr) {
    return absl::UnavailableError(absl::StrCat("cannot load host kernels: ", dlerror()));
  }
  for (const std::string& name : kernels) {
    const auto* code = static_cast<const rg_host_kernel*>(dlsym(module->handle_, name.c_str()));
    if (code == nullptr || code->abi != RG_HOST_ABI) {
      return absl::InternalError(absl::StrCat("host kernels: ", name, " is not in ", path,
                                              ", or of another version of the host dialect"));
    }
    module->names_.push_back(name);
    module->kernels_[name] = {module->names_.back().c_str(), code};
  }
  return module;
}

HostModule::~HostModule() {
  if (handle_ != nullptr) dlclose(handle_);
}

absl::StatusOr<HostKernel> HostModule::Find(absl::string_view kernel) const {
  auto it = kernels_.find(kernel);
  if (it != kernels_.end()) return it->second;
  return absl::NotFoundError(
      absl::StrCat("no host kernel ", kernel, " among the module's ", kernels_.size()));
}

absl::Status HostModule::Launch(absl::string_view kernel, int64_t blocks, int threads,
                                const std::vector<HostArg>& args,
                                const HostLaunchOptions& options) const {
  RG_ASSIGN_OR_RETURN(const HostKernel found, Find(kernel));
  HostLauncher launcher;
  return launcher.Run(found, blocks, threads, args, options);
}

}  // namespace retrograd
