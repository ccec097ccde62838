#include "codegen/preludes/gpu_prelude.h"

#include "absl/strings/str_cat.h"
#include "codegen/preludes/gpu/parts.h"

namespace retrograd {
namespace {

// What both dialects have behind their own parts.
std::string Shared() {
  return absl::StrCat(kKernelSignature, kFp8Numbers, kNumberTypes, kVectorLoads, kVectorStores,
                      kArithmetic);
}

}  // namespace

std::string CudaPrelude() {
  return absl::StrCat(kCudaDialect, kCudaBf16, kCudaCopies, kCudaFp16AndFp8, kCudaFunctions,
                      Shared());
}

std::string HipPrelude() { return absl::StrCat(kHipDialect, Shared()); }

}  // namespace retrograd
