#include "runtime/ops/matmul/host_matmul.h"

#include <cblas.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_format.h"
#include "graph/base/status.h"
#include "runtime/host/host_numbers.h"

namespace retrograd {
namespace {

// A matrix as BLAS takes it.
struct Matrix {
  int64_t rows = 0, cols = 0;
  int64_t row_stride = 0, col_stride = 0;  // elements

  // Consecutive in a row, rows apart by at least their length; or the same of columns.
  bool row_major() const {
    return (cols <= 1 || col_stride == 1) &&
           (rows <= 1 || row_stride >= std::max<int64_t>(1, cols));
  }
  bool col_major() const {
    return (rows <= 1 || row_stride == 1) &&
           (cols <= 1 || col_stride >= std::max<int64_t>(1, rows));
  }
  // Distance of rows (or columns); of a single one any legal distance.
  int row_distance() const {
    return static_cast<int>(rows <= 1 ? std::max<int64_t>(1, cols) : row_stride);
  }
  int col_distance() const {
    return static_cast<int>(cols <= 1 ? std::max<int64_t>(1, rows) : col_stride);
  }
  int64_t elements() const { return rows * cols; }
};

Matrix Of(const MatrixOperand& operand, int64_t rows, int64_t cols) {
  return {rows, cols, operand.row_stride, operand.col_stride};
}

Matrix Dense(const Matrix& m) { return {m.rows, m.cols, m.cols, 1}; }

bool Direct(const Matrix& m, DType dtype, DType compute) {
  return dtype == compute && (m.row_major() || m.col_major());
}

DType ComputeIn(const MatMulCall& call) {
  const bool wide = call.in_dtype == DType::kFp64 || call.out_dtype == DType::kFp64;
  return wide ? DType::kFp64 : DType::kFp32;
}

// Where each operand's dense copy lies in the scratch, in elements of the compute type.
struct ScratchLayout {
  int64_t a = 0, b = 0, d = 0, elements = 0;
};
ScratchLayout LayOut(const MatMulCall& call) {
  const DType compute = ComputeIn(call);
  ScratchLayout layout;
  const auto place = [&](const MatrixOperand& operand, int64_t rows, int64_t cols, DType dtype) {
    const Matrix m = Of(operand, rows, cols);
    const int64_t at = layout.elements;
    if (!Direct(m, dtype, compute)) layout.elements += (m.elements() + 15) / 16 * 16;
    return at;
  };
  layout.a = place(call.a, call.m, call.k, call.in_dtype);
  layout.b = place(call.b, call.k, call.n, call.in_dtype);
  layout.d = place(call.d, call.m, call.n, call.out_dtype);
  return layout;
}

template <typename C>
void Gather(const void* from, int64_t offset, DType dtype, const Matrix& m, C* to) {
  WithFloatType(dtype, [&](auto* type) {
    const auto* p = static_cast<decltype(type)>(const_cast<void*>(from)) + offset;
    for (int64_t r = 0; r < m.rows; ++r) {
      for (int64_t c = 0; c < m.cols; ++c) {
        to[r * m.cols + c] = LoadAs<C>(p, r * m.row_stride + c * m.col_stride);
      }
    }
  });
}

// Rounds once: an old value is added before.
template <typename C>
void Scatter(const C* from, const Matrix& m, bool add, void* to, int64_t offset, DType dtype) {
  WithFloatType(dtype, [&](auto* type) {
    auto* p = static_cast<decltype(type)>(to) + offset;
    for (int64_t r = 0; r < m.rows; ++r) {
      for (int64_t c = 0; c < m.cols; ++c) {
        const int64_t i = r * m.row_stride + c * m.col_stride;
        const C v = from[r * m.cols + c];
        StoreAs(p, i, add ? LoadAs<C>(p, i) + v : v);
      }
    }
  });
}

void Gemm(CBLAS_ORDER order, CBLAS_TRANSPOSE ta, CBLAS_TRANSPOSE tb, const MatMulCall& c,
          const float* a, int lda, const float* b, int ldb, float beta, float* d, int ldd) {
  cblas_sgemm(order, ta, tb, static_cast<int>(c.m), static_cast<int>(c.n), static_cast<int>(c.k),
              1.0f, a, lda, b, ldb, beta, d, ldd);
}
void Gemm(CBLAS_ORDER order, CBLAS_TRANSPOSE ta, CBLAS_TRANSPOSE tb, const MatMulCall& c,
          const double* a, int lda, const double* b, int ldb, double beta, double* d, int ldd) {
  cblas_dgemm(order, ta, tb, static_cast<int>(c.m), static_cast<int>(c.n), static_cast<int>(c.k),
              1.0, a, lda, b, ldb, beta, d, ldd);
}

template <typename C>
struct Operand {
  C* data;
  Matrix matrix;
};

// One matrix of the batch, all three in the compute type and readable by BLAS.
template <typename C>
void MultiplyDirect(const MatMulCall& call, const Operand<C>& a, const Operand<C>& b, bool add,
                    const Operand<C>& d) {
  const bool rows = d.matrix.row_major();
  // BLAS is told the order of d; an operand in the other order is "transposed".
  const auto transposed = [rows](const Matrix& m) {
    return (rows ? m.row_major() : m.col_major()) ? CblasNoTrans : CblasTrans;
  };
  const auto distance = [rows](const Matrix& m) {
    return (rows ? m.row_major() : !m.col_major()) ? m.row_distance() : m.col_distance();
  };
  Gemm(rows ? CblasRowMajor : CblasColMajor, transposed(a.matrix), transposed(b.matrix), call,
       a.data, distance(a.matrix), b.data, distance(b.matrix), add ? C{1} : C{0}, d.data,
       rows ? d.matrix.row_distance() : d.matrix.col_distance());
}

template <typename C>
Operand<C> Prepare(const void* data, int64_t offset, DType dtype, DType compute, const Matrix& m,
                   C* scratch) {
  if (Direct(m, dtype, compute)) {
    return {const_cast<C*>(static_cast<const C*>(data)) + offset, m};
  }
  Gather(data, offset, dtype, m, scratch);
  return {scratch, Dense(m)};
}

template <typename C>
void Multiply(const MatMulCall& call, const MatMulPointers& pointers, C* scratch) {
  const DType compute = ComputeIn(call);
  const ScratchLayout layout = LayOut(call);
  const Matrix a = Of(call.a, call.m, call.k), b = Of(call.b, call.k, call.n),
               d = Of(call.d, call.m, call.n);
  const bool direct_d = Direct(d, call.out_dtype, compute);
  int64_t index[kMaxRank] = {};  // in the batch
  const size_t rank = call.batch.size();
  const int64_t batches = Elements(call.batch);
  for (int64_t i = 0; i < batches; ++i) {
    int64_t oa = call.a.offset, ob = call.b.offset, od = call.d.offset;
    for (size_t axis = 0; axis < rank; ++axis) {
      oa += index[axis] * call.a.batch_strides[axis];
      ob += index[axis] * call.b.batch_strides[axis];
      od += index[axis] * call.d.batch_strides[axis];
    }
    const Operand<C> pa = Prepare(pointers.a, oa, call.in_dtype, compute, a, scratch + layout.a);
    const Operand<C> pb = Prepare(pointers.b, ob, call.in_dtype, compute, b, scratch + layout.b);
    if (direct_d) {
      MultiplyDirect(call, pa, pb, call.accumulate,
                     Operand<C>{static_cast<C*>(pointers.d) + od, d});
    } else {
      const Operand<C> product{scratch + layout.d, Dense(d)};
      MultiplyDirect(call, pa, pb, false, product);
      Scatter(product.data, d, call.accumulate, pointers.d, od, call.out_dtype);
    }
    for (size_t axis = rank; axis-- > 0;) {
      if (++index[axis] < call.batch[axis]) break;
      index[axis] = 0;
    }
  }
}

}  // namespace

absl::StatusOr<int64_t> HostMatMulScratchBytes(const MatMulCall& call) {
  if (!IsFloat(call.in_dtype) || !IsFloat(call.out_dtype)) {
    return absl::UnimplementedError(
        absl::StrFormat("matmul of %s into %s: the host multiplies floating matrices only",
                        Name(call.in_dtype), Name(call.out_dtype)));
  }
  constexpr int64_t kMost = std::numeric_limits<int>::max();
  for (int64_t extent :
       {call.m, call.n, call.k, call.a.row_stride, call.a.col_stride, call.b.row_stride,
        call.b.col_stride, call.d.row_stride, call.d.col_stride}) {
    if (extent < 0 || extent > kMost) {
      return absl::UnimplementedError(absl::StrFormat(
          "matmul %dx%dx%d: an extent or stride of %d is beyond what BLAS takes (%d)", call.m,
          call.n, call.k, extent, kMost));
    }
  }
  for (const MatrixOperand* operand : {&call.a, &call.b, &call.d}) {
    RG_CHECK(operand->batch_strides.size() == call.batch.size());
  }
  return LayOut(call).elements * SizeBytes(ComputeIn(call));
}

void HostMatMul(const MatMulCall& call, const MatMulPointers& pointers, void* scratch) {
  if (call.m == 0 || call.n == 0 || Elements(call.batch) == 0) return;
  if (ComputeIn(call) == DType::kFp64) {
    Multiply(call, pointers, static_cast<double*>(scratch));
  } else {
    Multiply(call, pointers, static_cast<float*>(scratch));
  }
}

namespace {

class HostMatMulCall : public LoadedCall {
 public:
  HostMatMulCall(MatMulCall call, int64_t scratch_bytes)
      : LoadedCall(scratch_bytes), call_(std::move(call)) {}
  absl::Status Run(int, const CallPointers& pointers, void* scratch) override {
    HostMatMul(call_, MatMulPointersOf(pointers), scratch);
    return absl::OkStatus();
  }
  std::string Describe() const override { return "OpenBLAS"; }

 private:
  const MatMulCall call_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<LoadedCall>> LoadHostMatMul(const Call& call) {
  MatMulCall matmul = MatMulOf(call);
  RG_ASSIGN_OR_RETURN(const int64_t scratch_bytes, HostMatMulScratchBytes(matmul));
  return std::make_unique<HostMatMulCall>(std::move(matmul), scratch_bytes);
}

}  // namespace retrograd
