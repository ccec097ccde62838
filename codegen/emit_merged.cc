// Kernels that share a launch: each is emitted as if it were alone. Kernels of several launches
// share each of them.
#include "codegen/emit_merged.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "codegen/emit.h"
#include "codegen/print/merge_kernels.h"

namespace retrograd {
GroupKernels EmitMerged(const KernelLaunch& launch, Dialect dialect) {
  std::vector<GroupKernels> alone;
  size_t launches = 0;
  for (const KernelLaunch::Member& member : launch.members) {
    alone.push_back(EmitGroup(member.kernel, dialect));
    launches = std::max(launches, alone.back().launches.size());
  }
  GroupKernels merged;
  for (size_t l = 0; l < launches; ++l) {
    std::vector<Kernel> kernels;
    std::vector<uint32_t> from;
    for (uint32_t m = 0; m < alone.size(); ++m) {
      if (l >= alone[m].launches.size()) continue;
      kernels.push_back(std::move(alone[m].launches[l]));
      from.push_back(m);
    }
    merged.launches.push_back(MergeKernels(
        kernels, from, absl::StrCat("// ", kernels.size(), " kernels in one launch\n")));
  }
  return merged;
}

}  // namespace retrograd
