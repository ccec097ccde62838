#include "codegen/emit.h"

#include <algorithm>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "codegen/emit_merged.h"
#include "codegen/gemm/emit_fused_matmul.h"
#include "codegen/preludes/gpu_prelude.h"
#include "codegen/preludes/host_prelude.h"
#include "codegen/preludes/multiplier_prelude.h"
#include "codegen/templates/templates.h"
#include "graph/base/status.h"

namespace retrograd {

GroupKernels EmitGroup(const KernelBody& body, Dialect dialect) {
  return EmitterOf(body.schedule.kind)(body, dialect);
}

GroupKernels EmitGroup(const Group& group, Dialect dialect) {
  if (const KernelBody* kernel = KernelOf(group)) return EmitGroup(*kernel, dialect);
  if (const KernelLaunch* launch = SharedLaunchOf(group)) return EmitMerged(*launch, dialect);
  if (const Call* fused = FusedCallOf(group)) return EmitFusedMatMul(*fused, dialect);
  return {};  // a library's, or nothing
}

std::string Prelude(Dialect dialect) {
  switch (dialect) {
    case Dialect::kCuda: return CudaPrelude();
    case Dialect::kHip: return HipPrelude();
    case Dialect::kHost: return std::string(HostPrelude());
  }
  RG_CHECK(false);
}

std::string EmitTranslationUnit(const std::vector<GroupKernels>& kernels, Dialect dialect) {
  std::string text = Prelude(dialect);
  const bool multiplies =
      std::any_of(kernels.begin(), kernels.end(), [](const GroupKernels& group) {
        return std::any_of(group.launches.begin(), group.launches.end(), [](const Kernel& kernel) {
          return absl::StrContains(kernel.source, kMultiplierStart);
        });
      });
  if (multiplies) absl::StrAppend(&text, MultiplierPrelude());
  absl::flat_hash_set<absl::string_view> printed;
  for (const GroupKernels& group : kernels) {
    for (const Kernel& kernel : group.launches) {
      if (printed.insert(kernel.name).second) absl::StrAppend(&text, "\n", kernel.source);
    }
  }
  return text;
}

}  // namespace retrograd
