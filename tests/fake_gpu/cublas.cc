#if defined(RETROGRAD_FAKE_CUDA_LIBRARY)

// cuBLASLt: columns first, through the host's matmul.
#include <cublasLt.h>

#include <cstring>
#include <vector>

#include "runtime/host_matmul.h"
#include "tests/fake_gpu/state.h"

namespace retrograd::fake {
namespace {

constexpr uint64_t kAlgorithms = 3;
constexpr uint64_t kAlgorithmMark = 0x616c676f;

struct FakeLayout {
  cudaDataType type;
  int64_t rows, cols, distance, stride = 0;
  int32_t count = 1;
};
struct FakeDesc {
  cublasComputeType_t compute;
  cublasOperation_t a = CUBLAS_OP_N, b = CUBLAS_OP_N;
};

DType Of(cudaDataType type) {
  switch (type) {
    case CUDA_R_16F: return DType::kFp16;
    case CUDA_R_16BF: return DType::kBf16;
    case CUDA_R_64F: return DType::kFp64;
    default: return DType::kFp32;
  }
}

template <typename T, typename Handle>
T& As(Handle handle) {
  return *reinterpret_cast<T*>(const_cast<std::remove_const_t<std::remove_pointer_t<Handle>>*>(handle));
}

MatrixOperand Operand(const FakeLayout& l, bool transposed) {
  MatrixOperand o{.row_stride = 1, .col_stride = l.distance};
  if (transposed) std::swap(o.row_stride, o.col_stride);
  if (l.count > 1) o.batch_strides = {l.stride};
  return o;
}

MatMulCall CallOf(const FakeDesc& desc, const FakeLayout& a, const FakeLayout& b, const FakeLayout& d,
                  bool accumulate) {
  MatMulCall call{.m = d.rows,
                  .n = d.cols,
                  .k = desc.a == CUBLAS_OP_N ? a.cols : a.rows,
                  .in_dtype = Of(a.type),
                  .out_dtype = Of(d.type),
                  .a = Operand(a, desc.a == CUBLAS_OP_T),
                  .b = Operand(b, desc.b == CUBLAS_OP_T),
                  .d = Operand(d, false),
                  .accumulate = accumulate};
  if (d.count > 1) call.batch = {d.count};
  return call;
}

bool Fits(const FakeDesc& desc, const FakeLayout& a, const FakeLayout& b, const FakeLayout& d) {
  const bool at = desc.a == CUBLAS_OP_T, bt = desc.b == CUBLAS_OP_T;
  const int64_t m = at ? a.cols : a.rows, k = at ? a.rows : a.cols;
  const int64_t k2 = bt ? b.cols : b.rows, n = bt ? b.rows : b.cols;
  return m == d.rows && n == d.cols && k == k2 && a.distance >= a.rows && b.distance >= b.rows &&
         d.distance >= d.rows && a.count == d.count && b.count == d.count;
}

}  // namespace
}  // namespace retrograd::fake

using namespace retrograd;        // NOLINT: the vendor's functions are global
using namespace retrograd::fake;  // NOLINT

#define FAKE_CUBLAS_ENTER(entry) \
  if (const int ordered = Enter(#entry)) return static_cast<cublasStatus_t>(ordered)

extern "C" {

size_t cublasLtGetVersion() { return 130000; }
const char* cublasLtGetStatusString(cublasStatus_t status) {
  return status == CUBLAS_STATUS_NOT_SUPPORTED ? "not supported" : "a failure that was ordered";
}
cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  FAKE_CUBLAS_ENTER(cublasLtCreate);
  static int the_handle;
  *handle = reinterpret_cast<cublasLtHandle_t>(&the_handle);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t) { return CUBLAS_STATUS_SUCCESS; }

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* desc, cublasComputeType_t compute,
                                        cudaDataType_t) {
  FAKE_CUBLAS_ENTER(cublasLtMatmulDescCreate);
  *desc = reinterpret_cast<cublasLtMatmulDesc_t>(new FakeDesc{compute});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) {
  delete reinterpret_cast<FakeDesc*>(desc);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, size_t bytes) {
  FAKE_CUBLAS_ENTER(cublasLtMatmulDescSetAttribute);
  auto& d = As<FakeDesc>(desc);
  void* to = attribute == CUBLASLT_MATMUL_DESC_TRANSA   ? static_cast<void*>(&d.a)
             : attribute == CUBLASLT_MATMUL_DESC_TRANSB ? static_cast<void*>(&d.b)
                                                        : nullptr;
  if (to == nullptr || bytes != sizeof(cublasOperation_t)) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(to, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type,
                                          uint64_t rows, uint64_t cols, int64_t distance) {
  FAKE_CUBLAS_ENTER(cublasLtMatrixLayoutCreate);
  *layout = reinterpret_cast<cublasLtMatrixLayout_t>(new FakeLayout{
      type, static_cast<int64_t>(rows), static_cast<int64_t>(cols), distance});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  delete reinterpret_cast<FakeLayout*>(layout);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute,
                                                const void* value, size_t bytes) {
  FAKE_CUBLAS_ENTER(cublasLtMatrixLayoutSetAttribute);
  auto& l = As<FakeLayout>(layout);
  if (attribute == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT && bytes == sizeof l.count) {
    std::memcpy(&l.count, value, bytes);
  } else if (attribute == CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET && bytes == sizeof l.stride) {
    std::memcpy(&l.stride, value, bytes);
  } else {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  FAKE_CUBLAS_ENTER(cublasLtMatmulPreferenceCreate);
  *preference = reinterpret_cast<cublasLtMatmulPreference_t>(new int(0));
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  delete reinterpret_cast<int*>(preference);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t,
                                                    cublasLtMatmulPreferenceAttributes_t,
                                                    const void*, size_t) {
  FAKE_CUBLAS_ENTER(cublasLtMatmulPreferenceSetAttribute);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(
    cublasLtHandle_t, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
    cublasLtMatrixLayout_t, cublasLtMatrixLayout_t d, cublasLtMatmulPreference_t, int wanted,
    cublasLtMatmulHeuristicResult_t results[], int* count) {
  FAKE_CUBLAS_ENTER(cublasLtMatmulAlgoGetHeuristic);
  *count = 0;
  if (!Fits(As<FakeDesc>(desc), As<FakeLayout>(a), As<FakeLayout>(b), As<FakeLayout>(d))) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  const DType in = Of(As<FakeLayout>(a).type), out = Of(As<FakeLayout>(d).type);
  if (in != out && out != DType::kFp32) return CUBLAS_STATUS_NOT_SUPPORTED;
  for (uint64_t i = 0; i < kAlgorithms && *count < wanted; ++i) {
    cublasLtMatmulHeuristicResult_t& r = results[(*count)++];
    std::memset(&r, 0, sizeof r);
    r.algo.data[0] = kAlgorithmMark + i;
    r.workspaceSize = i * 1024;
    r.state = CUBLAS_STATUS_SUCCESS;
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t, cublasLtMatmulDesc_t,
                                       cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                       cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                       const cublasLtMatmulAlgo_t* algorithm,
                                       cublasLtMatmulHeuristicResult_t* result) {
  FAKE_CUBLAS_ENTER(cublasLtMatmulAlgoCheck);
  const uint64_t i = algorithm->data[0] - kAlgorithmMark;
  if (i >= kAlgorithms) return CUBLAS_STATUS_INVALID_VALUE;
  result->workspaceSize = i * 1024;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t desc, const void*,
                              const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                              cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                              cublasLtMatrixLayout_t, void* d, cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t* algorithm, void* workspace,
                              size_t workspace_bytes, cudaStream_t stream) {
  FAKE_CUBLAS_ENTER(cublasLtMatmul);
  const uint64_t i = algorithm->data[0] - kAlgorithmMark;
  if (i >= kAlgorithms || workspace_bytes < i * 1024 || (i > 0 && workspace == nullptr) || c != d ||
      a == nullptr || b == nullptr || d == nullptr) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  const auto& described = As<FakeDesc>(desc);
  const bool accumulate = described.compute == CUBLAS_COMPUTE_64F
                              ? *static_cast<const double*>(beta) != 0
                              : *static_cast<const float*>(beta) != 0;
  const MatMulCall call = CallOf(described, As<FakeLayout>(a_layout), As<FakeLayout>(b_layout),
                                 As<FakeLayout>(d_layout), accumulate);
  // An algorithm with a workspace counts in it what its blocks have added up, from the zero that a fill
  // leaves there, and leaves the count.
  auto* const count = i > 0 ? static_cast<int*>(workspace) : nullptr;
  if (count != nullptr) {
    IssueFill(reinterpret_cast<GpuStream>(stream),
              {.to = reinterpret_cast<uint64_t>(count), .elements = 1, .value = 0, .element_bytes = 4});
  }
  const int result = Issue(reinterpret_cast<GpuStream>(stream), "matmul", [=] {
    if (count != nullptr && ++*count != 1) return kLaunchFailed;
    std::vector<double> scratch(static_cast<size_t>(*HostMatMulScratchBytes(call)) / 8 + 8);
    HostMatMul(call, {a, b, d}, scratch.data());
    return kSuccess;
  });
  return result == kSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

}  // extern "C"

#endif  // RETROGRAD_FAKE_CUDA_LIBRARY
