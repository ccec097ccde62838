// Kernels through the run-time compilers of both vendors. No GPU is needed.
#ifndef RETROGRAD_TESTS_SUPPORT_KERNELS_GPU_COMPILERS_H_
#define RETROGRAD_TESTS_SUPPORT_KERNELS_GPU_COMPILERS_H_

#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "codegen/print/kernel.h"
#include "runtime/compiler/rtc.h"
#include "tests/catch.h"

namespace retrograd {

struct GpuTarget {
  Dialect dialect;
  absl::string_view arch;
  int warp;  // threads
};
inline constexpr GpuTarget kSm90 = {Dialect::kCuda, "sm_90", 32};
inline constexpr GpuTarget kGfx90a = {Dialect::kHip, "gfx90a", 64};

// That the kernels compile as one translation unit. `what` says which they are where they do not.
inline void CheckCompiles(const GpuTarget& target, absl::Span<const Kernel> kernels,
                          const std::string& what) {
  const auto object = CompileKernels(target.dialect, kernels, target.arch);
  INFO(what << ": " << object.status());
  CHECK(object.ok());
}

}  // namespace retrograd

// The test cases "WHAT for sm_90" and "WHAT for gfx90a", each of which calls CHECK with its target,
// or is skipped where there is no such compiler.
#define RG_TEST_COMPILES(what, check)           \
  TEST_CASE(what " for sm_90") {                \
    RG_NEEDS_COMPILER(CudaCompilerAvailable()); \
    check(kSm90);                               \
  }                                             \
  TEST_CASE(what " for gfx90a") {               \
    RG_NEEDS_COMPILER(HipCompilerAvailable());  \
    check(kGfx90a);                             \
  }                                             \
  static_assert(true)

#endif  // RETROGRAD_TESTS_SUPPORT_KERNELS_GPU_COMPILERS_H_
