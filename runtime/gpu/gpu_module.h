// CUDA and HIP sources to code objects, by the compiler or from the cache; and how kernels are
// divided among several translation units that are compiled at once.
#ifndef RETROGRAD_RUNTIME_GPU_GPU_MODULE_H_
#define RETROGRAD_RUNTIME_GPU_GPU_MODULE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "codegen/print/kernel.h"
#include "graph/base/cancelled.h"
#include "runtime/compiler/module_cache.h"
#include "runtime/compiler/rtc.h"

namespace retrograd {

struct GpuCompileOptions {
  RtcOptions rtc;
  int jobs = 0;         // compilers at once; 0: one a core, at most 8
  Cancelled cancelled;  // asked before each part is compiled
};

// One source as CompileFor makes it, from the cache or into it; there may be none.
absl::StatusOr<CompiledObject> CompileCached(Dialect dialect, absl::string_view source,
                                             absl::string_view arch, const RtcOptions& options,
                                             const ModuleCache* cache);

// The same of kernels, whose source this is. Some are compiled again (CompileKernels).
absl::StatusOr<CompiledObject> CompileCached(Dialect dialect, absl::Span<const Kernel> kernels,
                                             absl::string_view source, absl::string_view arch,
                                             const RtcOptions& options, const ModuleCache* cache);

// How many compilers run at once.
int Jobs(const GpuCompileOptions& options);

// The kernels in parts of about equal length, for so many compilers.
std::vector<std::vector<Kernel>> Parts(absl::Span<const Kernel> kernels, int jobs);

}  // namespace retrograd

#endif  // RETROGRAD_RUNTIME_GPU_GPU_MODULE_H_
