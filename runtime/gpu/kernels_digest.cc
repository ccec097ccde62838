#include "runtime/gpu/kernels_digest.h"

#include "absl/strings/str_cat.h"
#include "codegen/translation_unit.h"
#include "runtime/compiler/module_cache.h"

namespace retrograd {

std::string KernelsDigest(Dialect dialect, absl::Span<const Kernel> kernels) {
  std::string text = TranslationUnit(kernels, dialect);
  for (const Kernel& kernel : kernels) {
    absl::StrAppend(&text, kernel.blocks, " x ", kernel.threads, ", ", kernel.cluster, ", ",
                    kernel.staged_bytes, "\n");
  }
  return Digest(text).substr(0, 8);
}

}  // namespace retrograd
