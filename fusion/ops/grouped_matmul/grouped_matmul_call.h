// A call of grouped_matmul, with its matrices.
#ifndef RETROGRAD_FUSION_OPS_GROUPED_MATMUL_GROUPED_MATMUL_CALL_H_
#define RETROGRAD_FUSION_OPS_GROUPED_MATMUL_GROUPED_MATMUL_CALL_H_

#include <cstdint>

#include "fusion/ops/matmul/matmul_call.h"

namespace retrograd {

// A matrix, or one for each group.
struct GroupedMatrix {
  int64_t offset = 0;                      // elements, of the first element
  int64_t group_stride = 0;                // elements; 0: all groups have one
  int64_t row_stride = 0, col_stride = 0;  // elements; one of them is 1
};

// Scales of a result's rows or columns: one list, or one for each group; or of blocks of an
// operand, a list for each block of terms.
struct GroupedScales {
  int64_t offset = 0;        // elements, of the first
  int64_t group_stride = 0;  // elements
  int64_t stride = 0;        // elements
  int64_t block_stride = 0;  // elements, from a block of terms to the next
  int64_t lines = 1;  // rows or columns that have one scale, counted from the operand's first
};

// d = a.b for each group, a of m x k, b of k x n. Either the m rows of a and d are those of all
// groups, one group after the other, or the k terms of the sum are. With scales each element of d
// is (sum * its row's) * its column's; with scales of blocks it is the sum of that over the blocks
// of terms, which are counted from the operands' first term, whatever a group has of a block.
struct GroupedMatMulCall {
  bool sums_in_groups = false;  // else the rows are
  int64_t groups = 0;
  int64_t m = 0, n = 0, k = 0;
  DType in_dtype = DType::kFp32, out_dtype = DType::kFp32;
  GroupedMatrix a, b, d;
  int64_t ends_offset = 0;  // elements, of the first group's end
  bool adds = false;        // the result to what is there
  bool scaled = false;
  int64_t scale_block = 0;  // terms of a block that has scales of its own; 0: all terms have one
  GroupedScales row_scales, column_scales;  // if scaled; in the type of the sums
  bool columns_scale_first = false;         // of a turned product: its columns were rows

  // Places that the groups share out among them.
  int64_t grouped() const { return sums_in_groups ? k : m; }
};

GroupedMatMulCall GroupedMatMulOf(const Call& call);

// The matmuls of the groups if these were of one size, rounded up: only the device knows the sizes.
MatMulCall AsEvenMatMuls(const GroupedMatMulCall& call);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_OPS_GROUPED_MATMUL_GROUPED_MATMUL_CALL_H_
