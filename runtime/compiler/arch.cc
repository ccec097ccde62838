#include "runtime/compiler/arch.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace retrograd {

std::string ArchFor(absl::Span<const Kernel> kernels, absl::string_view arch) {
  const bool multiplies = std::any_of(kernels.begin(), kernels.end(), [](const Kernel& kernel) {
    return kernel.head == KernelHead::kMultiplier || kernel.head == KernelHead::kAttention ||
           kernel.head == KernelHead::kBoxes;
  });
  const bool widens = multiplies && absl::StartsWith(arch, "sm_") && !absl::EndsWith(arch, "a");
  return absl::StrCat(arch, widens ? "a" : "");
}

}  // namespace retrograd
