// Kernels to code objects, of which some begin to be compiled before anybody asks for them.
#ifndef RETROGRAD_RUNTIME_GPU_KERNEL_COMPILER_H_
#define RETROGRAD_RUNTIME_GPU_KERNEL_COMPILER_H_

#include <future>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "codegen/print/kernel.h"
#include "runtime/compiler/module_cache.h"
#include "runtime/gpu/gpu_module.h"

namespace retrograd {

// For one device; not for several threads at once.
class KernelCompiler {
 public:
  // cache: null, or outlives this.
  KernelCompiler(Dialect dialect, GpuCompileOptions options, const ModuleCache* cache);
  // Waits for what is being compiled, and leaves the rest.
  ~KernelCompiler();

  // Begins to compile kernels, which have different names, behind those that were expected before.
  void Expect(absl::Span<const Kernel> kernels, absl::string_view arch);
  // Lets go of all that was expected. What is being compiled ends first.
  void Forget();

  // One object for each part of the kernels, which have different names. What Expect was given is
  // waited for, however often it is asked for; the rest is compiled by threads of this call.
  absl::StatusOr<std::vector<CompiledObject>> Compile(absl::Span<const Kernel> kernels,
                                                      absl::string_view arch);

 private:
  using Compiling = std::shared_future<absl::StatusOr<CompiledObject>>;
  class Pool;
  std::string Source(absl::Span<const Kernel> part) const;
  absl::StatusOr<CompiledObject> CompileOne(absl::Span<const Kernel> part,
                                            const std::string& source,
                                            const std::string& arch) const;

  const Dialect dialect_;
  const GpuCompileOptions options_;
  const ModuleCache* const cache_;
  std::map<std::string, Compiling> expected_;  // by architecture and source
  std::unique_ptr<Pool> pool_;                 // null where nothing is expected
};

}  // namespace retrograd

#endif  // RETROGRAD_RUNTIME_GPU_KERNEL_COMPILER_H_
