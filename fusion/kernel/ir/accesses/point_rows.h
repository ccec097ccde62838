// Rows of tensors that belong to the points of a kernel: a point reads several elements of one row,
// and the rows of points that follow each other lie one after the other. Threads that have a point
// each then read a pitch apart, and each element that a warp asks for is a sector of its own.
//
// A block can copy the rows of its points into shared memory first, neighbours side by side. How
// they lie there is said here, for the prices and for the emitter.
#ifndef RETROGRAD_FUSION_KERNEL_IR_ACCESSES_POINT_ROWS_H_
#define RETROGRAD_FUSION_KERNEL_IR_ACCESSES_POINT_ROWS_H_

#include <cstdint>
#include <vector>

#include "fusion/kernel/ir/kernel_ir.h"

namespace retrograd {

// All lengths are in elements of the buffer.
struct PointRows {
  int buffer = 0;
  int64_t pitch = 0;       // from the row of a point to that of the next
  int64_t first = 0;       // of a row, what is copied: where it begins
  int64_t width = 0;       // and how much it is
  int64_t columns = 0;     // different elements of a row that are read
  std::vector<int> loads;  // instructions, ascending
  bool whole = false;      // rows are copied with what lies between them, as one run
  int64_t stride = 0;      // from row to row in shared memory
  int piece = 1;           // of one copy
};

// The tensors whose rows are worth a copy: several elements of a row are read, and they lie close
// together.
std::vector<PointRows> PointRowsOf(const KernelIr& ir);

// Of a row, where in its copy the load's element lies.
int64_t PlaceInRow(const KernelIr& ir, const PointRows& rows, int load);

// What the rows of so many points take.
int64_t ElementsOf(const PointRows& rows, int64_t points);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_KERNEL_IR_ACCESSES_POINT_ROWS_H_
