// Matmuls through cuBLASLt, which is loaded when first asked for. Only for the files that make up
// the cuda device: it shows the vendor's types.
#ifndef RETROGRAD_RUNTIME_OPS_MATMUL_CUBLAS_MATMUL_H_
#define RETROGRAD_RUNTIME_OPS_MATMUL_CUBLAS_MATMUL_H_

#include <cublasLt.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/ops/matmul/blas_operands.h"
#include "runtime/ops/matmul/gpu_matmul.h"

namespace retrograd {

#define RG_CUBLAS_ENTRY_POINTS(X)                                       \
  X(GetVersion, cublasLtGetVersion)                                     \
  X(GetStatusString, cublasLtGetStatusString)                           \
  X(Create, cublasLtCreate)                                             \
  X(Destroy, cublasLtDestroy)                                           \
  X(Matmul, cublasLtMatmul)                                             \
  X(MatmulDescCreate, cublasLtMatmulDescCreate)                         \
  X(MatmulDescDestroy, cublasLtMatmulDescDestroy)                       \
  X(MatmulDescSetAttribute, cublasLtMatmulDescSetAttribute)             \
  X(MatrixLayoutCreate, cublasLtMatrixLayoutCreate)                     \
  X(MatrixLayoutDestroy, cublasLtMatrixLayoutDestroy)                   \
  X(MatrixLayoutSetAttribute, cublasLtMatrixLayoutSetAttribute)         \
  X(MatmulPreferenceCreate, cublasLtMatmulPreferenceCreate)             \
  X(MatmulPreferenceDestroy, cublasLtMatmulPreferenceDestroy)           \
  X(MatmulPreferenceSetAttribute, cublasLtMatmulPreferenceSetAttribute) \
  X(MatmulAlgoGetHeuristic, cublasLtMatmulAlgoGetHeuristic)             \
  X(MatmulAlgoCheck, cublasLtMatmulAlgoCheck)                           \
  X(MatmulAlgoConfigGetAttribute, cublasLtMatmulAlgoConfigGetAttribute)

struct CublasLibrary {
#define RG_CUBLAS_FIELD(field, function) decltype(&function) field = nullptr;
  RG_CUBLAS_ENTRY_POINTS(RG_CUBLAS_FIELD)
#undef RG_CUBLAS_FIELD
};

// Loaded once for each path; empty: where it is usually found. Unavailable where there is none.
absl::StatusOr<const CublasLibrary*> LoadCublas(const std::string& library);

// What the library says about a failed call. OK for success.
absl::Status CublasStatus(const CublasLibrary& library, cublasStatus_t result,
                          absl::string_view call);

// A matmul as the library was told of it, with the algorithm that it runs by.
class CublasMatMul : public LibraryMatMul {
 public:
  // Unimplemented, naming the shape, where the library has no algorithm for the call. ask: else the
  // library is not asked, and there is none until ChooseByState.
  static absl::StatusOr<std::unique_ptr<CublasMatMul>> Make(const CublasLibrary& library,
                                                            cublasLtHandle_t handle,
                                                            const MatMulCall& call,
                                                            const MatMulFacts& facts, bool ask);
  ~CublasMatMul() override;
  CublasMatMul(const CublasMatMul&) = delete;
  CublasMatMul& operator=(const CublasMatMul&) = delete;

  int algorithms() const override;
  int64_t most_workspace_bytes() const override;
  // "algorithm 66 tile 20 stages 36 cluster 4": the numbers of its configuration that are not 0.
  std::string Name(int algorithm) const override;
  absl::Status Choose(int algorithm) override;
  std::string ChosenState() const override;  // of this version of the library
  absl::Status ChooseByState(absl::string_view state) override;
  int64_t workspace_bytes() const override;
  absl::Status Run(GpuStream stream, const MatMulPointers& pointers, const int64_t offsets[3],
                   void* workspace) const override;

 private:
  struct State;
  explicit CublasMatMul(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace retrograd

#endif  // RETROGRAD_RUNTIME_OPS_MATMUL_CUBLAS_MATMUL_H_
