// CUDA sources to cubins: the translation unit in several parts, each compiled by a thread of its
// own unless the cache knows it.
#ifndef RETROGRAD_RUNTIME_CUDA_MODULE_H_
#define RETROGRAD_RUNTIME_CUDA_MODULE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/module_cache.h"
#include "runtime/rtc.h"

namespace retrograd {

struct CudaCompileOptions {
  RtcOptions rtc;
  int jobs = 0;  // compilers at once; 0: one a core, at most 8
};

// One source as CompileCuda makes it, from the cache or into it; there may be none.
absl::StatusOr<CompiledObject> CompileCudaCached(absl::string_view source, absl::string_view arch,
                                                 const RtcOptions& options,
                                                 const ModuleCache* cache);

// One object for each part. source: the prelude, then kernels, each beginning with a line
// RG_KERNEL(name, threads, args).
absl::StatusOr<std::vector<CompiledObject>> CompileCudaParts(absl::string_view source,
                                                             absl::string_view arch,
                                                             const CudaCompileOptions& options,
                                                             const ModuleCache* cache);

}  // namespace retrograd

#endif  // RETROGRAD_RUNTIME_CUDA_MODULE_H_
