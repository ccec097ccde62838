// How a scatter_add kernel goes about its work, and its scratch memory: sorted positions are cut
// into fixed chunks. A segment, the positions of one row of the table, that is no longer than a
// chunk is summed by the threads of the chunk that it begins in, up to its end. Of a longer one
// each chunk sums its own part. What else each position has, such as a sum over its columns, is
// stored by the threads that go through it, where the position stands.
#ifndef RETROGRAD_FUSION_KERNEL_TEMPLATES_SCATTER_WORKSPACE_H_
#define RETROGRAD_FUSION_KERNEL_TEMPLATES_SCATTER_WORKSPACE_H_

#include <algorithm>
#include <vector>

#include "fusion/kernel/ir/kernel_ir.h"
#include "fusion/kernel/templates/schedule.h"
#include "graph/ir/sorted_indices.h"

namespace retrograd {

inline constexpr int kScatterThreads = 256;  // of a block
// Positions that a thread loads before it adds up the first. Where it folds them first, it keeps
// what it has loaded meanwhile: of more positions so much that an SM has room for few threads.
constexpr int PositionsAtOnce(bool folds) { return folds ? 4 : 8; }
// Whether chunks have so many batches that those which are whole have a text of their own. Not
// where a block shares its positions in rounds: the second text takes registers, by which fewer
// blocks of narrow rows would be resident.
constexpr bool HasWholeBatches(int64_t chunk, bool folds) {
  return chunk >= 2 * PositionsAtOnce(folds);
}
// Threads that add up a long segment of many parts, each every so manieth of them.
inline constexpr int kCombineLanes = 32;
// Shared positions that a thread loads at once.
inline constexpr int64_t kMostSharedAtOnce = 4;
// Vectors of the table that a thread looks after where it writes zeros.
inline constexpr int64_t kScatterZeros = 8;

struct ScatterWorkspace {
  SortedIndices sorted;  // what the kernel reads
  AxisMask outer_axes = 0, inner_axes = 0;
  int64_t outer = 1, inner = 1;
  int64_t chunk = 0;  // sorted positions; of the longest segment that is not cut
  int64_t chunks = 0;
  // Parts of a long segment behind its first that one thread adds up in order.
  int64_t few_parts = 0;
  // All of the workspace. [outer][chunks][2][inner]: a chunk's parts of long segments, of which it
  // has two at most: its first segment and its last.
  int64_t bytes = 0;
  // Whether a segment may have more parts than that, which a block's threads then add up together.
  bool may_have_many() const { return chunks - 1 > few_parts; }
  bool empty() const { return sorted.indices == 0 || outer * inner == 0; }  // zeros alone
};
ScatterWorkspace ScatterWorkspaceOf(const KernelIr& ir);

int ScatterLaunches(const ScatterWorkspace& workspace);

// Shared memory of the launch that adds up parts, with vectors of so many columns.
int64_t SharedBytesOfCombine(const KernelIr& ir, int vector_width);

// Threads that go through a chunk of positions side by side: one for each vector of inner columns.
// Where columns are folded, each fold has a team of a power of two of them, of which some may have
// no vector.
struct ChunkThreads {
  int64_t vectors = 1;  // of a position
  int64_t fold = 0;     // vectors of one fold; 0: nothing is folded
  int64_t team = 1;

  int64_t count() const { return fold == 0 ? vectors : vectors / fold * team; }
  bool idle() const { return fold > 0 && team > fold; }  // some have no vector
};
ChunkThreads ChunkThreadsOf(const KernelIr& ir, int vector_width);

// The inner columns that are folded, which every fold has in common: the last ones. 0: none.
AxisMask FoldedColumns(const KernelIr& ir);
// Whether threads with vectors of so many columns fold in teams of a warp.
bool FoldsInWarps(const KernelIr& ir, int vector_width);

// By instruction: whether a fold is needed for it. Such a value is made by the fold's team.
std::vector<bool> AfterFolds(const KernelIr& ir);

// By instruction: whether it loads the indices that the list has sorted, and nothing but rows of
// tables as long as the sums' is gathered by them. It is not loaded: at a position, the list says
// which row is meant.
std::vector<bool> KeyLoads(const KernelIr& ir);

// What the threads of a scatter_add's block share of its sorted positions, in shared memory: the
// row that the position's index names, and what is the same in all columns there, such as the index
// of a gathered row. Each is loaded once for a block instead of once for each thread, and all of
// them are under way together: a thread then waits for nothing but the columns that it sums.
struct SharedPositions {
  std::vector<int> values;  // instructions that vary over positions, but not over inner columns
  // By value: of how many rows it says which one is gathered, where nothing else is done with it.
  // It is shared as int32, counted from the first row, and is -1 where there is no such row. Else
  // 0.
  std::vector<int64_t> rows;
  std::vector<int> keys;  // of these those that are not loaded (KeyLoads), which take no memory
  bool places = false;    // columns are read by where the index stood, which is somewhere else
  // Columns are read at rows that `values` name, or at all positions alike, and nothing is stored
  // of a position: what stands behind a thread's last position does no harm there.
  bool rows_alone = false;
  // The block finds out whether any of its positions names a row that does not exist, so that whole
  // batches need not test each.
  bool finds_lost = false;
  int64_t of_block = 0;  // positions, a multiple of those that its threads load at once
  int64_t bytes = 0;     // of shared memory

  int64_t of_thread() const { return of_block / kScatterThreads; }
  // Positions that a thread loads at once, and how often.
  int64_t at_once() const { return std::min(of_thread(), kMostSharedAtOnce); }
  int64_t rounds() const { return of_thread() / at_once(); }
};
SharedPositions SharedPositionsOf(const KernelIr& ir, int vector_width);

// Whether blocks of threads that sum vectors of so many columns can share them, and each position
// is read by several of their threads.
bool CanSharePositions(const KernelIr& ir, int vector_width);

// Threads that sum one slice of the outer axes, and the blocks that sum them all.
int64_t ThreadsOfSlice(const KernelIr& ir, int vector_width);
int64_t BlocksOfSums(const KernelIr& ir, const Schedule& schedule);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_KERNEL_TEMPLATES_SCATTER_WORKSPACE_H_
