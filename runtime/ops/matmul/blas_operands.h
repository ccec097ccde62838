// A matmul as BLAS libraries want to be told of it. They think in columns: a matrix is stored
// column after column, or is the transpose of one that is. A product stored row after row is its
// transpose stored column after column, so d = a·b becomes dᵀ = bᵀ·aᵀ there.
#ifndef RETROGRAD_RUNTIME_OPS_MATMUL_BLAS_OPERANDS_H_
#define RETROGRAD_RUNTIME_OPS_MATMUL_BLAS_OPERANDS_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/ops/matmul/matmul_facts.h"

namespace retrograd {

// Stored by columns, or the transpose of what is.
struct ColumnMatrix {
  bool transposed = false;
  int64_t rows = 0, cols = 0;  // as stored
  int64_t distance = 0;        // of columns, in elements
  int64_t stride = 0;          // of the batch's matrices, in elements
};

struct ColumnMatMul {
  bool swapped = false;              // left is b
  ColumnMatrix left, right, result;  // the result is never transposed
  int64_t batch = 1;
  // The rest of the batch, which is no walk of one stride: offsets of a, b and d, in elements.
  std::vector<std::array<int64_t, 3>> parts;
};

// Unimplemented, saying why, for what is no such call.
absl::StatusOr<ColumnMatMul> InColumns(const MatMulCall& call);

// All that a library's choice for a call depends on, as text; two calls of one key differ in their
// operands' offsets alone.
std::string MatMulKey(const MatMulCall& call, const MatMulFacts& facts);

// "matmul 4x3x5, batch 6, bf16 to fp32".
std::string Describe(const MatMulCall& call);

// By operand, 0 to 2 for a, b and d: what divides the addresses of all its matrices where
// `alignment` divides the stored value's, at most 256; and elements from its first to past its end.
uint32_t OperandAlignment(const MatMulCall& call, int operand, int64_t alignment);
int64_t OperandSpan(const MatMulCall& call, int operand);

}  // namespace retrograd

#endif  // RETROGRAD_RUNTIME_OPS_MATMUL_BLAS_OPERANDS_H_
