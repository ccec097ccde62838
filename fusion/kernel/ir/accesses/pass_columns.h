// Columns of a pass: axes along which some values vary alone, as the numbers of a channel do, or
// the gates of an image's channels. A thread that goes through several rows at the same columns
// loads and evaluates such values once.
#ifndef RETROGRAD_FUSION_KERNEL_IR_ACCESSES_PASS_COLUMNS_H_
#define RETROGRAD_FUSION_KERNEL_IR_ACCESSES_PASS_COLUMNS_H_

#include <cstdint>

#include "fusion/kernel/ir/kernel_ir.h"

namespace retrograd {

struct PassColumns {
  AxisMask axes = 0;  // the fastest one and any others; 0: nothing is worth keeping
  int64_t inner = 1;  // points of those of them that are inside of all other axes
  int64_t outer = 1;  // points of the rest of them
  int64_t rows = 1;   // points of the other axes
  // Of an element, what is the same in all rows: bytes that its loads bring in, and words that rows
  // need.
  int64_t loaded_bytes = 0;
  int64_t words = 0;
  int64_t stores = 0;  // of values that vary along columns alone

  // Whether a value varies along columns alone, if at all.
  bool Keeps(const Instr& instr) const { return axes != 0 && (instr.axes & ~axes) == 0; }
  // Rows that threads are at at the same time, if each goes through so many.
  int64_t RowsAtOnce(int64_t turns) const { return (rows + turns - 1) / turns; }
};

// Of a kernel without folds. Of several choices, the one that saves most loads.
PassColumns PassColumnsOf(const KernelIr& ir);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_KERNEL_IR_ACCESSES_PASS_COLUMNS_H_
