// A translation unit of generated kernels taken apart, so that its kernels can be compiled by
// several compilers at once.
#ifndef RETROGRAD_RUNTIME_COMPILER_KERNEL_TEXTS_H_
#define RETROGRAD_RUNTIME_COMPILER_KERNEL_TEXTS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace retrograd {

inline constexpr absl::string_view kKernelStart =
    "RG_KERNEL(";  // or kMultiplierStart, kAttentionStart

struct KernelText {
  std::string name;
  absl::string_view members;  // from its first RG_MEMBER line to its RG_KERNEL line
  absl::string_view text;     // from there to the next kernel
};

struct SplitSource {
  absl::string_view prelude;
  std::vector<KernelText> kernels;
};

// Views into the source.
absl::StatusOr<SplitSource> SplitKernels(absl::string_view source);

}  // namespace retrograd

#endif  // RETROGRAD_RUNTIME_COMPILER_KERNEL_TEXTS_H_
