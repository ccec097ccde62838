// Slabs of columns: a cluster of blocks has some neighbouring columns, and each of its blocks a
// part of their rows, which may stay in shared memory from the block's first stage to its last. How
// a schedule of held_columns cuts a kernel into them, for prices and for the emitter.
//
// A kernel's columns are numbered with those that lie side by side in memory next to each other,
// whatever the order of its axes. Here `rows` are what a column's reductions fold.
#ifndef RETROGRAD_FUSION_KERNEL_TEMPLATES_HELD_COLUMNS_COLUMN_SLABS_H_
#define RETROGRAD_FUSION_KERNEL_TEMPLATES_HELD_COLUMNS_COLUMN_SLABS_H_

#include <optional>
#include <vector>

#include "fusion/kernel/ir/accesses/vector_access.h"
#include "fusion/kernel/templates/registers.h"

namespace retrograd {

struct ColumnSlab {
  Vectors vectors;       // columns of a thread, along the axis in which a row's pieces are read
  int lanes = 1;         // threads side by side, each with a vector
  int thread_rows = 1;   // of a block
  int rows_at_once = 1;  // neighbours in memory that a thread evaluates in straight-line code
  int64_t rows_of_block = 0;  // about equal parts: the last ones of a cluster may have fewer
  int64_t batches = 0;  // of thread_rows x rows_at_once rows, that a block goes through for these
  int64_t columns = 0;  // of the kernel
  int64_t rows = 0;     // of a column
  int64_t slabs = 1;    // clusters
  AxisMask row_axes = 0, column_axes = 0;

  int width() const { return vectors.width; }
  int64_t columns_of_slab() const { return int64_t{lanes} * vectors.width; }
  int64_t rows_of_batch() const { return int64_t{thread_rows} * rows_at_once; }
  int64_t places_of_block() const { return batches * rows_of_batch(); }  // at least its rows
};

// Threads that add up by shuffles, whatever the warp; and how many such teams, or rows of threads
// where those are longer, have sums of each of their block's columns.
inline constexpr int kThreadsOfTeam = 32;
int TeamsOf(const ColumnSlab& slab);

// `shape` as held_columns classifies a kernel.
ColumnSlab SlabOf(const KernelIr& ir, const RowsAndColumns& shape, const Schedule& schedule);

// The axis that rows are read along, if it is not folded: the fastest one, or that of transposed
// loads; -1: there is none.
int ColumnAxis(const KernelIr& ir, AxisMask folded);

// The most columns that any load takes at once along the axis.
int WidestOfColumns(const KernelIr& ir, int axis);

// The loads that stay in shared memory: all that bring in an element for each row of each column.
// Nullopt: one of them cannot be copied there, as its elements are guarded, looked up or apart.
std::optional<std::vector<int>> HeldLoads(const KernelIr& ir, const RowsAndColumns& shape,
                                          const Vectors& vectors);
// Bytes of one element of each.
int64_t HeldBytesOfElement(const KernelIr& ir, const std::vector<int>& loads);

// Whether threads share columns, so that they exchange what they fold.
inline bool SharesColumns(const Schedule& s) { return s.rows_per_block > 1 || s.cluster > 1; }

// Whether a store's elements lie side by side along the rows, so that results of a batch pass
// through a tile in shared memory and are stored by accesses of so many elements. 0: they do not.
int TileStoreWidth(const KernelIr& ir, const ColumnSlab& slab, const Store& store);
// Elements of such a tile from one column to the next: threads meet other banks.
int64_t TilePitch(const ColumnSlab& slab);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_KERNEL_TEMPLATES_HELD_COLUMNS_COLUMN_SLABS_H_
