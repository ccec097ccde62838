// What the templates have in common that sum down columns: how the threads of a block, and of the
// finalize launch of a split, come by the totals.
#ifndef RETROGRAD_FUSION_KERNEL_TEMPLATES_COLUMN_WALKS_H_
#define RETROGRAD_FUSION_KERNEL_TEMPLATES_COLUMN_WALKS_H_

#include "fusion/kernel/templates/registers.h"

namespace retrograd {

// Threads of a finalize launch that share a column, each adding up every n-th partial result, and
// those side by side.
int FinalizeThreadRows(int64_t split);
int FinalizeLanes(int64_t split);

// Shared memory in which the thread rows of a block add up: a tile for each type of accumulator.
// In launch 0 of so many threads, each with a vector of columns; else in the finalize launch.
int64_t ColumnTileBytes(const KernelProfile& p, const Schedule& s, int64_t launch);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_KERNEL_TEMPLATES_COLUMN_WALKS_H_
