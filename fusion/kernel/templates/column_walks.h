// What the templates have in common that sum down columns: how the threads of a block, and of the
// finalize launch of a split, come by the totals.
#ifndef RETROGRAD_FUSION_KERNEL_TEMPLATES_COLUMN_WALKS_H_
#define RETROGRAD_FUSION_KERNEL_TEMPLATES_COLUMN_WALKS_H_

#include <vector>

#include "fusion/kernel/templates/registers.h"

namespace retrograd {

// Threads of a finalize launch that share a column, each adding up every n-th partial result, and
// those side by side.
int FinalizeThreadRows(int64_t split);
int FinalizeLanes(int64_t split);

// Partial results of each sum that a thread of a finalize launch has under way at once; `bytes`: of
// a partial result of all sums.
int64_t PartialsAtOnce(int64_t split, int64_t bytes);

// Part of the order of addition, the same on all devices: thread rows that one thread adds up. With
// more of them, all threads of the block share the work first.
inline constexpr int kRowsInTurn = 8;

// How a block adds up its thread rows in shared memory: in each step every n-th row becomes one,
// kRowsInTurn in turn, until few are left, which the first thread row adds up. What a step makes
// lies behind what it reads, so that one barrier stands between two steps.
struct ColumnFold {
  std::vector<int64_t> rows;  // before the first step, and after each
  int64_t elements = 0;       // of shared memory for one sum
  int64_t together = 1;       // sums that take each step at once, in memory of their own
};
// Of up to `sums` at once, which are of one type, of thread rows of so many lanes with `width`
// columns each.
ColumnFold ColumnFoldOf(int64_t thread_rows, int64_t lanes, int64_t width, DType type,
                        int64_t sums);

// Shared memory in which the thread rows of a block add up: an array for each type of accumulator.
// In launch 0 of so many threads, each with a vector of columns; else in the finalize launch.
int64_t ColumnTileBytes(const KernelProfile& p, const Schedule& s, int64_t launch);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_KERNEL_TEMPLATES_COLUMN_WALKS_H_
