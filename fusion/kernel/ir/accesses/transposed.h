// Accesses that run along another axis than a store does.
#ifndef RETROGRAD_FUSION_KERNEL_IR_ACCESSES_TRANSPOSED_H_
#define RETROGRAD_FUSION_KERNEL_IR_ACCESSES_TRANSPOSED_H_

#include <optional>
#include <vector>

#include "fusion/kernel/ir/kernel_ir.h"

namespace retrograd {

// The axis other than the fastest along which some loads are consecutive while a store is
// consecutive along the fastest one; nullopt if no load is, or either axis is shorter than a tile.
std::optional<int> TransposedLoadAxis(const KernelIr& ir);
// The same, or if there is none the axis along which some stores are consecutive while another
// access is consecutive along the fastest one.
std::optional<int> TransposedAxis(const KernelIr& ir);

// The loads and the stores of that order, which a transposing kernel passes through shared memory.
std::vector<int> TransposedLoads(const KernelIr& ir, int axis);
std::vector<int> TransposedStores(const KernelIr& ir, int axis);
// Whether an access runs along the axis, and not along the fastest one.
bool RunsAlong(const IndexExpr& offset, int axis, int fastest);

// Edge of the square tile, in elements.
inline constexpr int kTransposeTile = 32;
// Elements of a square tile that each of its block's threads has.
inline constexpr int kSquareTurns = 4;
// Of the loads that do not pass through a square tile, the first few that vary over both of its
// axes: a thread asks for those of all its elements at once.
std::vector<int> LoadsAhead(const KernelIr& ir, int axis);

// Tiles of a kernel whose loads are read, and whose stores are written, by accesses of several
// elements: a thread evaluates `width` neighbours along the loads' axis in each of kRows rows, and
// results pass through shared memory.
struct WideTiles {
  int axis = -1;  // the loads'
  int width = 1;
  int64_t fast_tile = 16;  // fast(): a power of two
  // Elements of a tile along the loads' axis and the stores': 256 threads evaluate it once.
  int64_t slow() const { return int64_t{256} * kRows * width / fast_tile; }
  int64_t fast() const { return fast_tile; }
  int64_t pitch() const { return fast() + kPad; }  // from line to line: threads meet other banks

  static constexpr int kRows = 4;
  static constexpr int64_t kShortest = 16;  // of fast()
  static constexpr int64_t kLongest = 16;   // of fast(), in vectors
  static constexpr int kPad = 4;
};

// Nullopt: some access is not of several elements, or lines end amid one.
std::optional<WideTiles> WideTilesOf(const KernelIr& ir);
// Those of a grid: the longest along the stores of which it has so many. Nullopt: of none.
std::optional<WideTiles> WideTilesOf(const KernelIr& ir, int64_t blocks);
// Elements of one access of the store, along the fastest axis.
int WideStoreWidth(const KernelIr& ir, const Store& store);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_KERNEL_IR_ACCESSES_TRANSPOSED_H_
