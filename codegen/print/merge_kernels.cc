#include "codegen/print/merge_kernels.h"

#include <algorithm>
#include <utility>

#include "absl/strings/string_view.h"
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

}  // namespace

Kernel MergeKernels(const std::vector<Kernel>& kernels, const std::vector<uint32_t>& from,
                    std::string comment) {
  Kernel merged{.head = kernels[0].head,
                .blocks = 0,
                .threads = kernels[0].threads,
                .starts_early = kernels[0].starts_early,
                .direct = kernels[0].direct};
  for (size_t k = 0; k < kernels.size(); ++k) {
    RG_CHECK(kernels[k].threads == merged.threads && kernels[k].head == merged.head);
    RG_CHECK(kernels[k].direct == merged.direct && kernels[k].starts_early == merged.starts_early);
    for (KernelArg arg : kernels[k].args) {
      arg.member = from[k];
      merged.args.push_back(arg);
    }
  }
  std::vector<absl::string_view> members;  // names of those alone
  for (const Run& run : Runs(kernels)) {
    const auto known = std::find(members.begin(), members.end(), run.kernel->name);
    const int64_t arguments = run.kernel->arguments, maps = run.kernel->maps;
    merged.runs.push_back({.member = static_cast<int>(known - members.begin()),
                           .count = run.count,
                           .first_block = merged.blocks,
                           .blocks = run.kernel->blocks,
                           .first_argument = merged.arguments,
                           .arguments = arguments,
                           .first_map = merged.maps,
                           .maps = maps});
    merged.blocks += run.count * run.kernel->blocks;
    merged.arguments += static_cast<int>(run.count * arguments);
    merged.maps += static_cast<int>(run.count * maps);
    if (known != members.end()) continue;
    members.push_back(run.kernel->name);
    merged.members.push_back(run.kernel->function);
    merged.shared_bytes = std::max(merged.shared_bytes, run.kernel->shared_bytes);
    merged.staged_bytes = std::max(merged.staged_bytes, run.kernel->staged_bytes);
    merged.threads_meet = merged.threads_meet || run.kernel->threads_meet;
    merged.parts |= run.kernel->parts;
  }
  merged.function.comment = std::move(comment);
  NameKernel(&merged);
  return merged;
}

}  // namespace retrograd
