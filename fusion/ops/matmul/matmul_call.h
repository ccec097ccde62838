// A matmul's call as BLAS thinks of it.
#ifndef RETROGRAD_FUSION_OPS_MATMUL_MATMUL_CALL_H_
#define RETROGRAD_FUSION_OPS_MATMUL_MATMUL_CALL_H_

#include <cstdint>
#include <vector>

#include "fusion/plan/call.h"

namespace retrograd {

// A matrix (or a batch of them) inside a stored value.
struct MatrixOperand {
  ValueId value;           // the stored value, behind any views
  int64_t offset = 0;      // elements, of the first element
  int64_t row_stride = 0;  // elements; one of row_stride and col_stride is 1
  int64_t col_stride = 0;
  std::vector<int64_t> batch_strides;  // one per batch axis
  friend bool operator==(const MatrixOperand&, const MatrixOperand&) = default;
};

// d = a.b + beta.d, with beta 1 where `accumulate` is set.
struct MatMulCall {
  int64_t m = 0, n = 0, k = 0;
  std::vector<int64_t> batch;  // extents of the batch axes
  DType in_dtype = DType::kFp32;
  DType out_dtype = DType::kFp32;
  MatrixOperand a, b, d;
  bool accumulate = false;
  bool tf32 = false;  // as of a Call
  friend bool operator==(const MatMulCall&, const MatMulCall&) = default;
};

// The call of a matmul, without its epilogue if it has one.
MatMulCall MatMulOf(const Call& call);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_OPS_MATMUL_MATMUL_CALL_H_
