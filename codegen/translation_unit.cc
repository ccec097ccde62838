#include "codegen/translation_unit.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "codegen/attention/wide_tiles_prelude.h"
#include "codegen/grouped_matmul/block_products_prelude.h"
#include "codegen/preludes/attention_prelude.h"
#include "codegen/preludes/box_prelude.h"
#include "codegen/preludes/cluster_prelude.h"
#include "codegen/preludes/dropout_prelude.h"
#include "codegen/preludes/gpu_prelude.h"
#include "codegen/preludes/grouped_tiles_prelude.h"
#include "codegen/preludes/hopper_prelude.h"
#include "codegen/preludes/host_prelude.h"
#include "codegen/preludes/multiplier_prelude.h"
#include "codegen/preludes/part_prelude.h"
#include "codegen/preludes/tensor_core_prelude.h"
#include "graph/base/status.h"

namespace retrograd {
namespace {

bool IsIdentifier(absl::string_view name) {
  if (name.empty() || absl::ascii_isdigit(name[0])) return false;
  return std::all_of(name.begin(), name.end(),
                     [](char c) { return absl::ascii_isalnum(c) || c == '_'; });
}

bool UsesClusters(PreludeParts parts) {
  return parts.Has(PreludePart::kClusters) || parts.Has(PreludePart::kMultiplier);
}

std::string HopperText(PreludeParts parts) {
  const bool attention = parts.Has(PreludePart::kAttention);
  if (!attention && !parts.Has(PreludePart::kMultiplier)) return "";
  return absl::StrCat(HopperPrelude(),
                      parts.Has(PreludePart::kMultiplier) ? MultiplierPrelude() : "",
                      parts.Has(PreludePart::kBoxes) ? BoxPrelude(Dialect::kCuda) : "",
                      parts.Has(PreludePart::kGroupedTiles) ? GroupedTilesPrelude() : "",
                      parts.Has(PreludePart::kGroupedTiles) ? BlockProductsPrelude() : "",
                      attention && parts.Has(PreludePart::kDropout) ? TiledDropoutPrelude() : "",
                      attention ? AttentionPrelude() : "");
}

}  // namespace

std::string Prelude(Dialect dialect, PreludeParts parts) {
  const std::string any =
      absl::StrCat(parts.Has(PreludePart::kDropout) ? DropoutPrelude() : "",
                   parts.Has(PreludePart::kTensorCores) ? TensorCorePrelude(dialect) : "",
                   parts.Has(PreludePart::kWideTiles) ? WideTilesPrelude(dialect) : "",
                   parts.Has(PreludePart::kParts) ? PartPrelude(dialect) : "",
                   dialect == Dialect::kCuda && UsesClusters(parts) ? ClusterPrelude() : "");
  const std::string hopper = HopperText(parts);
  RG_CHECK(hopper.empty() || dialect == Dialect::kCuda);
  switch (dialect) {
    case Dialect::kCuda: return absl::StrCat(CudaPrelude(), any, hopper);
    case Dialect::kHip: return absl::StrCat(HipPrelude(), any);
    case Dialect::kHost:
      return absl::StrCat(HostPrelude(), any,
                          parts.Has(PreludePart::kBoxes) ? BoxPrelude(Dialect::kHost) : "");
  }
  RG_CHECK(false);
}

std::vector<Kernel> DistinctKernels(absl::Span<const GroupKernels> groups) {
  std::vector<Kernel> kernels;
  absl::flat_hash_set<absl::string_view> known;
  for (const GroupKernels& group : groups) {
    for (const Kernel& kernel : group.launches) {
      if (known.insert(kernel.name).second) kernels.push_back(kernel);
    }
  }
  return kernels;
}

void KeepTextsOnce(absl::Span<GroupKernels> groups) {
  absl::flat_hash_set<std::string> known;
  for (GroupKernels& group : groups) {
    for (Kernel& kernel : group.launches) {
      if (known.insert(kernel.name).second) continue;
      // Assigned empty ones would keep their room.
      KernelFunction none;
      std::swap(kernel.function, none);
      std::vector<KernelFunction>().swap(kernel.members);
    }
  }
}

absl::Status CheckNames(absl::Span<const Kernel> kernels) {
  absl::flat_hash_set<absl::string_view> known;
  for (const Kernel& kernel : kernels) {
    if (!IsIdentifier(kernel.name)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "kernel ", known.size(), " of ", kernels.size(), ": \"", kernel.name.substr(0, 60),
          "\" is not a kernel's name; use letters, digits "
          "and underscores"));
    }
    if (!known.insert(kernel.name).second) {
      return absl::InvalidArgumentError(absl::StrCat("of ", kernels.size(),
                                                     " kernels, two kernels are named ",
                                                     kernel.name, "; pass equal ones once"));
    }
  }
  return absl::OkStatus();
}

std::string PrintKernels(absl::Span<const Kernel> kernels, HeadPrinter head) {
  std::string text;
  for (const Kernel& kernel : kernels) {
    absl::StrAppend(&text, "\n", PrintKernel(kernel, head(kernel)));
  }
  return text;
}

std::string TranslationUnit(absl::Span<const Kernel> kernels, Dialect dialect, HeadPrinter head) {
  PreludeParts parts;
  for (const Kernel& kernel : kernels) parts |= kernel.parts;
  return absl::StrCat(Prelude(dialect, parts), PrintKernels(kernels, head));
}

}  // namespace retrograd
