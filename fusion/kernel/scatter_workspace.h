// Scratch memory of a scatter_add kernel.
#ifndef RETROGRAD_FUSION_KERNEL_SCATTER_WORKSPACE_H_
#define RETROGRAD_FUSION_KERNEL_SCATTER_WORKSPACE_H_

#include "fusion/kernel/kernel_ir.h"

namespace retrograd {

// Positions of sorted rows that one thread column sums before it hands over.
inline constexpr int64_t kScatterChunk = 64;

// The sort of the indices looks at this many bits of them a pass, and gives each block a piece of
// so many.
inline constexpr int kSortDigitBits = 6;
inline constexpr int64_t kSortPiece = 512;
int SortPasses(int64_t table_rows);  // that tell apart the keys 0 .. table_rows
int ScatterLaunches(const KernelIr& ir);

// Byte offsets of the parts, each a multiple of 16. Numbers of rows and table rows are int32.
struct ScatterWorkspace {
  int64_t rows = 0;  // indices
  int64_t outer = 1, inner = 1;
  int64_t chunks = 0;  // of kScatterChunk sorted positions
  int64_t pieces = 0;  // of kSortPiece indices
  int64_t starts = 0;  // [table_rows + 1] first sorted position of each table row
  int64_t order = 0;   // [rows] position of the k-th smallest index; equal ones in order
  int64_t keys = 0;    // [rows] the k-th smallest wrapped index; table_rows if out of range
  int64_t spare_order = 0, spare_keys = 0;  // the same, between two passes of the sort
  int64_t counts = 0;  // [digit][pieces] of a pass: how many, then where they go
  int64_t partials = 0;  // [outer][chunks][2][inner]: of a chunk's first and last segment, where
                         // they go on in other chunks
  int64_t bytes = 0;
};
ScatterWorkspace ScatterWorkspaceOf(const KernelIr& ir);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_KERNEL_SCATTER_WORKSPACE_H_
