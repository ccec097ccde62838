// Loads that run along another axis than the stores do.
#ifndef RETROGRAD_FUSION_KERNEL_IR_TRANSPOSED_H_
#define RETROGRAD_FUSION_KERNEL_IR_TRANSPOSED_H_

#include <optional>
#include <vector>

#include "fusion/kernel/ir/kernel_ir.h"

namespace retrograd {

// The axis other than the fastest along which some loads are consecutive while a store is
// consecutive along the fastest one; nullopt if no load is, or either axis is shorter than a tile.
std::optional<int> TransposedAxis(const KernelIr& ir);

// The loads of that order, which a transposing kernel passes through shared memory.
std::vector<int> TransposedLoads(const KernelIr& ir, int axis);

// Edge of the square tile, in elements.
inline constexpr int kTransposeTile = 32;

// Tiles of a kernel whose loads are read, and whose stores are written, by accesses of several
// elements: a thread evaluates `width` neighbours along the loads' axis in each of kRows rows, and
// results pass through shared memory.
struct WideTiles {
  int axis = -1;  // the loads'
  int width = 1;
  // Elements of a tile along the loads' axis and the stores': 256 threads evaluate it once.
  int64_t slow() const { return 64; }
  int64_t fast() const { return int64_t{16} * width; }
  int64_t pitch() const { return fast() + kPad; }  // from line to line: threads meet other banks

  static constexpr int kRows = 4;
  static constexpr int kPad = 4;
};

// Nullopt: some access is not of several elements, or lines end amid one.
std::optional<WideTiles> WideTilesOf(const KernelIr& ir);
// Elements of one access of the store, along the fastest axis.
int WideStoreWidth(const KernelIr& ir, const Store& store);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_KERNEL_IR_TRANSPOSED_H_
