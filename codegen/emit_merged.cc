// Kernels that share a launch: each is emitted as if it were alone and becomes a member, whose
// block and argument numbers count from its own first ones. Equal ones (the same kernel in several
// layers) are one member. The launch sends each range of blocks to its member. A block is in one of
// them alone, so their shared arrays lie in the same bytes. Kernels of several launches share each
// of them.
#include "codegen/emit_merged.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "codegen/emit.h"
#include "codegen/print/kernel_text.h"
#include "graph/base/status.h"

namespace retrograd {
namespace {

// Neighbours that are the same kernel.
struct Run {
  const Kernel* kernel = nullptr;
  int64_t count = 0;
};

std::vector<Run> Runs(const std::vector<Kernel>& kernels) {
  std::vector<Run> runs;
  for (const Kernel& kernel : kernels) {
    if (runs.empty() || runs.back().kernel->name != kernel.name) runs.push_back({&kernel, 0});
    RG_CHECK(kernel.blocks == runs.back().kernel->blocks);
    ++runs.back().count;
  }
  return runs;
}

// One launch of the kernels, which have the numbers `from` among the members of their group.
Kernel Merged(const std::vector<Kernel>& kernels, const std::vector<uint32_t>& from) {
  Kernel merged{.blocks = 0, .threads = kernels[0].threads};
  for (size_t k = 0; k < kernels.size(); ++k) {
    RG_CHECK(kernels[k].threads == kernels[0].threads);
    for (KernelArg arg : kernels[k].args) {
      arg.member = from[k];
      merged.args.push_back(arg);
    }
  }
  std::vector<absl::string_view> members;  // names of those alone
  for (const Run& run : Runs(kernels)) {
    const auto known = std::find(members.begin(), members.end(), run.kernel->name);
    const int64_t arguments = run.kernel->arguments;
    merged.runs.push_back({.member = static_cast<int>(known - members.begin()),
                           .count = run.count,
                           .first_block = merged.blocks,
                           .blocks = run.kernel->blocks,
                           .first_argument = merged.arguments,
                           .arguments = arguments});
    merged.blocks += run.count * run.kernel->blocks;
    merged.arguments += static_cast<int>(run.count * arguments);
    if (known != members.end()) continue;
    members.push_back(run.kernel->name);
    merged.members.push_back(run.kernel->function);
    merged.shared_bytes = std::max(merged.shared_bytes, run.kernel->shared_bytes);
    merged.threads_meet = merged.threads_meet || run.kernel->threads_meet;
    merged.parts |= run.kernel->parts;
  }
  merged.function.comment = absl::StrCat("// ", kernels.size(), " kernels in one launch\n");
  NameKernel(&merged);
  return merged;
}

}  // namespace

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
    merged.launches.push_back(Merged(kernels, from));
  }
  return merged;
}

}  // namespace retrograd
