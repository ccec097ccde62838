// How a scatter_add kernel goes about its work, and its scratch memory: the indices are sorted,
// equal ones in order, and fixed chunks of sorted positions are summed.
#ifndef RETROGRAD_FUSION_KERNEL_TEMPLATES_SCATTER_WORKSPACE_H_
#define RETROGRAD_FUSION_KERNEL_TEMPLATES_SCATTER_WORKSPACE_H_

#include "fusion/kernel/ir/kernel_ir.h"

namespace retrograd {

// Positions that a thread loads before it adds up the first.
inline constexpr int kScatterAtOnce = 8;
// Vectors of the table that a thread looks after where it writes zeros.
inline constexpr int64_t kScatterZeros = 4;

// A pass of the sort puts indices in the order of one digit of theirs. Each block goes through all
// indices, for the values of the digit that are its own: so a pass is one launch and no block waits
// for another. One pass does where the digit is the whole index; where so many blocks would read
// too much, digits have 10 bits.
struct ScatterSort {
  int passes = 1;
  int digit_bits = 31;     // of each pass but the last, which takes what is left
  int64_t digits = 0;      // values of a pass's digit, at most
  int64_t threads = 0;     // of a block
  int64_t own_digits = 0;  // of a block
  int64_t packs =
      0;  // of four indices, that a thread goes through; they follow each other in the list
  int64_t at_once = 1;  // packs loaded together; divides packs
};

// Byte offsets of the parts, each a multiple of 16. Numbers of rows and table rows are int32.
struct ScatterWorkspace {
  int64_t rows = 0;  // indices
  int64_t outer = 1, inner = 1;
  ScatterSort sort;
  int64_t chunk = 0;  // sorted positions that one thread column sums before it hands over
  int64_t chunks = 0;
  int64_t starts = 0;  // [table_rows + 1] first sorted position of each table row
  int64_t order = 0;   // [rows] position of the k-th smallest index; equal ones in order
  int64_t keys = 0;    // [rows] the k-th smallest wrapped index; table_rows if out of range
  // [packs][threads][4] what the even (odd) passes of the sort read: keys, -1 behind the last, and
  // where they stood at first (pass 0: where they stand)
  int64_t dealt_keys[2] = {0, 0}, dealt_order[2] = {0, 0};
  int64_t partials = 0;  // [outer][chunks][2][inner]: of a chunk's first and last segment, where
                         // they go on in other chunks
  int64_t bytes = 0;
  bool empty() const { return rows == 0 || outer * inner == 0; }  // nothing to add: zeros alone
};
ScatterWorkspace ScatterWorkspaceOf(const KernelIr& ir);

// Words of shared memory that a block of a pass counts in, those between the rows included.
int64_t ScatterCounters(const ScatterSort& sort);

int ScatterLaunches(const ScatterWorkspace& workspace);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_KERNEL_TEMPLATES_SCATTER_WORKSPACE_H_
