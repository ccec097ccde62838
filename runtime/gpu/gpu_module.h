// CUDA and HIP kernels to code objects: in several translation units, each compiled by a thread of
// its own unless the cache knows it.
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

// One object for each part of the kernels, which have different names.
absl::StatusOr<std::vector<CompiledObject>> CompileParts(Dialect dialect,
                                                         absl::Span<const Kernel> kernels,
                                                         absl::string_view arch,
                                                         const GpuCompileOptions& options,
                                                         const ModuleCache* cache);

}  // namespace retrograd

#endif  // RETROGRAD_RUNTIME_GPU_GPU_MODULE_H_
