// How a scatter_add kernel goes about its work, and its scratch memory: fixed chunks of sorted
// positions are summed.
#ifndef RETROGRAD_FUSION_KERNEL_TEMPLATES_SCATTER_WORKSPACE_H_
#define RETROGRAD_FUSION_KERNEL_TEMPLATES_SCATTER_WORKSPACE_H_

#include "fusion/kernel/ir/kernel_ir.h"
#include "graph/ir/sorted_indices.h"

namespace retrograd {

// Positions that a thread loads before it adds up the first.
inline constexpr int kScatterAtOnce = 8;
// Vectors of the table that a thread looks after where it writes zeros.
inline constexpr int64_t kScatterZeros = 4;

struct ScatterWorkspace {
  SortedIndices sorted;  // what the kernel reads
  int64_t outer = 1, inner = 1;
  int64_t chunk = 0;  // sorted positions that one thread column sums before it hands over
  int64_t chunks = 0;
  // All of the workspace. [outer][chunks][2][inner]: of a chunk's first and last segment, where
  // they go on in other chunks.
  int64_t bytes = 0;
  bool empty() const { return sorted.indices == 0 || outer * inner == 0; }  // zeros alone
};
ScatterWorkspace ScatterWorkspaceOf(const KernelIr& ir);

int ScatterLaunches(const ScatterWorkspace& workspace);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_KERNEL_TEMPLATES_SCATTER_WORKSPACE_H_
