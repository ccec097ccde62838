#include "codegen/emit.h"

#include "codegen/emit_merged.h"
#include "codegen/gemm/emit_fused_matmul.h"
#include "codegen/print/kernel_text.h"
#include "codegen/templates/templates.h"
#include "fusion/kernel/templates/kernel_template.h"
#include "graph/base/status.h"

namespace retrograd {

GroupKernels EmitGroup(const KernelBody& body, Dialect dialect) {
  GroupKernels kernels = EmitterOf(body.schedule.kind)(body, dialect);
  if (!kernels.launches.empty()) {
    const auto main = static_cast<size_t>(MainLaunchNumber(body.ir, body.schedule));
    kernels.launches[main].resident = body.resident;
  }
  return kernels;
}

GroupKernels EmitGroup(const Group& group, Dialect dialect) {
  if (const KernelBody* kernel = KernelOf(group)) return EmitGroup(*kernel, dialect);
  if (const KernelLaunch* launch = SharedLaunchOf(group)) return EmitMerged(*launch, dialect);
  if (const Call* fused = FusedCallOf(group)) return EmitFusedMatMul(*fused, dialect);
  return {};  // a library's, or nothing
}

void StartEarly(GroupKernels* kernels, size_t first) {
  // Addresses are looked up before: nothing that a run launches writes them.
  const auto begin = [](KernelFunction& function) {
    function.statements.insert(0, "  RG_EARLY_START();\n");
  };
  for (size_t i = first; i < kernels->launches.size(); ++i) {
    Kernel& kernel = kernels->launches[i];
    if (kernel.head != KernelHead::kPlain || kernel.direct) continue;
    if (kernel.members.empty()) begin(kernel.function);
    for (KernelFunction& member : kernel.members) begin(member);
    kernel.starts_early = true;
    NameKernel(&kernel);
  }
}

}  // namespace retrograd
