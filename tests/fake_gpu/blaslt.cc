// cuBLASLt and hipBLASLt: columns first, through the host's matmul.
#include <cstring>
#include <vector>

#include "runtime/ops/matmul/host_matmul.h"
#include "tests/fake_gpu/state.h"

namespace retrograd::fake {
namespace {

// As either library numbers them.
#if defined(RETROGRAD_FAKE_HIP_LIBRARY)
constexpr int kNotSupported = 7, kInvalid = 3, kExecutionFailed = 5;
constexpr int kTransposeA = 0, kTransposeB = 1, kBatchCount = 0, kBatchStride = 1;
constexpr int kAsIs = 111, kTransposed = 112, kComputeFp64 = 7;
struct Algorithm {
  uint64_t data[3];
};
#else
constexpr int kNotSupported = 15, kInvalid = 7, kExecutionFailed = 13;
constexpr int kTransposeA = 3, kTransposeB = 4, kBatchCount = 5, kBatchStride = 6;
constexpr int kAsIs = 0, kTransposed = 1, kComputeFp64 = 70;
struct Algorithm {
  uint64_t data[8];
};
#endif
struct Heuristic {
  Algorithm algo;
  size_t workspaceSize;
  int state;
  float waves;
  int reserved[4];
};

constexpr uint64_t kAlgorithms = 3;
// The best of the heuristics, which stands first, wants the most.
uint64_t WorkspaceOf(uint64_t algorithm) { return (kAlgorithms - algorithm) * 1024; }
constexpr uint64_t kAlgorithmMark = 0x616c676f;

struct FakeLayout {
  int type;
  int64_t rows, cols, distance, stride = 0;
  int32_t count = 1;
};
struct FakeDesc {
  int compute;
  int32_t a = kAsIs, b = kAsIs;
};

DType Of(int type) {
  switch (type) {
    case 2: return DType::kFp16;
    case 14: return DType::kBf16;
    case 1: return DType::kFp64;
    default: return DType::kFp32;
  }
}

// What a matmul's kernel is given; masked, its addresses are so that nobody knows them again.
struct MatMulAddresses {
  const void* a;
  const void* b;
  void* d;
  int* count;
  uint64_t mask;

  MatMulAddresses Masked() const {
    const auto masked = [this](const void* address) {
      return reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(address) ^ mask);
    };
    return {masked(a), masked(b), masked(d), static_cast<int*>(masked(count)), mask};
  }
};

template <typename T>
T& As(void* handle) {
  return *static_cast<T*>(handle);
}

MatrixOperand Operand(const FakeLayout& l, bool transposed) {
  MatrixOperand o{.row_stride = 1, .col_stride = l.distance};
  if (transposed) std::swap(o.row_stride, o.col_stride);
  if (l.count > 1) o.batch_strides = {l.stride};
  return o;
}

MatMulCall CallOf(const FakeDesc& desc, const FakeLayout& a, const FakeLayout& b,
                  const FakeLayout& d, bool accumulate) {
  MatMulCall call{.m = d.rows,
                  .n = d.cols,
                  .k = desc.a == kAsIs ? a.cols : a.rows,
                  .in_dtype = Of(a.type),
                  .out_dtype = Of(d.type),
                  .a = Operand(a, desc.a == kTransposed),
                  .b = Operand(b, desc.b == kTransposed),
                  .d = Operand(d, false),
                  .accumulate = accumulate};
  if (d.count > 1) call.batch = {d.count};
  return call;
}

bool Fits(const FakeDesc& desc, const FakeLayout& a, const FakeLayout& b, const FakeLayout& d) {
  const bool at = desc.a == kTransposed, bt = desc.b == kTransposed;
  const int64_t m = at ? a.cols : a.rows, k = at ? a.rows : a.cols;
  const int64_t k2 = bt ? b.cols : b.rows, n = bt ? b.rows : b.cols;
  return m == d.rows && n == d.cols && k == k2 && a.distance >= a.rows && b.distance >= b.rows &&
         d.distance >= d.rows && a.count == d.count && b.count == d.count;
}

}  // namespace
}  // namespace retrograd::fake

using namespace retrograd;        // NOLINT: the vendor's functions are global
using namespace retrograd::fake;  // NOLINT

extern "C" {

#if defined(RETROGRAD_FAKE_HIP_LIBRARY)
int hipblasLtGetVersion(void*, int* version) {
  FAKE_ENTER();
  *version = 1000;
  return kSuccess;
}
#else
size_t cublasLtGetVersion() { return 130000; }
const char* cublasLtGetStatusString(int status) {
  return status == kNotSupported ? "not supported" : "a failure that was ordered";
}
#endif
int FAKE_NAME(cublasLtCreate, hipblasLtCreate)(void** handle) {
  FAKE_ENTER();
  static int the_handle;
  *handle = &the_handle;
  return kSuccess;
}
int FAKE_NAME(cublasLtDestroy, hipblasLtDestroy)(void*) { return kSuccess; }

int FAKE_NAME(cublasLtMatmulDescCreate, hipblasLtMatmulDescCreate)(void** desc, int compute, int) {
  FAKE_ENTER();
  *desc = new FakeDesc{compute};
  return kSuccess;
}
int FAKE_NAME(cublasLtMatmulDescDestroy, hipblasLtMatmulDescDestroy)(void* desc) {
  delete static_cast<FakeDesc*>(desc);
  return kSuccess;
}
int FAKE_NAME(cublasLtMatmulDescSetAttribute,
              hipblasLtMatmulDescSetAttribute)(void* desc, int attribute, const void* value,
                                               size_t bytes) {
  FAKE_ENTER();
  auto& d = As<FakeDesc>(desc);
  void* to = attribute == kTransposeA   ? static_cast<void*>(&d.a)
             : attribute == kTransposeB ? static_cast<void*>(&d.b)
                                        : nullptr;
  if (to == nullptr || bytes != sizeof(int32_t)) return kInvalid;
  std::memcpy(to, value, bytes);
  return kSuccess;
}
int FAKE_NAME(cublasLtMatrixLayoutCreate, hipblasLtMatrixLayoutCreate)(void** layout, int type,
                                                                       uint64_t rows, uint64_t cols,
                                                                       int64_t distance) {
  FAKE_ENTER();
  *layout =
      (new FakeLayout{type, static_cast<int64_t>(rows), static_cast<int64_t>(cols), distance});
  return kSuccess;
}
int FAKE_NAME(cublasLtMatrixLayoutDestroy, hipblasLtMatrixLayoutDestroy)(void* layout) {
  delete static_cast<FakeLayout*>(layout);
  return kSuccess;
}
int FAKE_NAME(cublasLtMatrixLayoutSetAttribute,
              hipblasLtMatrixLayoutSetAttribute)(void* layout, int attribute, const void* value,
                                                 size_t bytes) {
  FAKE_ENTER();
  auto& l = As<FakeLayout>(layout);
  if (attribute == kBatchCount && bytes == sizeof l.count) {
    std::memcpy(&l.count, value, bytes);
  } else if (attribute == kBatchStride && bytes == sizeof l.stride) {
    std::memcpy(&l.stride, value, bytes);
  } else {
    return kInvalid;
  }
  return kSuccess;
}
int FAKE_NAME(cublasLtMatmulPreferenceCreate, hipblasLtMatmulPreferenceCreate)(void** preference) {
  FAKE_ENTER();
  *preference = new int(0);
  return kSuccess;
}
int FAKE_NAME(cublasLtMatmulPreferenceDestroy, hipblasLtMatmulPreferenceDestroy)(void* preference) {
  delete static_cast<int*>(preference);
  return kSuccess;
}
int FAKE_NAME(cublasLtMatmulPreferenceSetAttribute,
              hipblasLtMatmulPreferenceSetAttribute)(void*, int, const void*, size_t) {
  FAKE_ENTER();
  return kSuccess;
}

int FAKE_NAME(cublasLtMatmulAlgoGetHeuristic,
              hipblasLtMatmulAlgoGetHeuristic)(void*, void* desc, void* a, void* b, void*, void* d,
                                               void*, int wanted, Heuristic results[], int* count) {
  FAKE_ENTER();
  *count = 0;
  if (!Fits(As<FakeDesc>(desc), As<FakeLayout>(a), As<FakeLayout>(b), As<FakeLayout>(d))) {
    return kInvalid;
  }
  const DType in = Of(As<FakeLayout>(a).type), out = Of(As<FakeLayout>(d).type);
  if (in != out && out != DType::kFp32) return kNotSupported;
  for (uint64_t i = 0; i < kAlgorithms && *count < wanted; ++i) {
    Heuristic& r = results[(*count)++];
    std::memset(&r, 0, sizeof r);
    r.algo.data[0] = kAlgorithmMark + i;
    r.workspaceSize = WorkspaceOf(i);
    r.state = kSuccess;
  }
  return kSuccess;
}

#if !defined(RETROGRAD_FAKE_HIP_LIBRARY)
int cublasLtMatmulAlgoCheck(void*, void*, void*, void*, void*, void*, const Algorithm* algorithm,
                            Heuristic* result) {
  FAKE_ENTER();
  const uint64_t i = algorithm->data[0] - kAlgorithmMark;
  if (i >= kAlgorithms) return kInvalid;
  result->workspaceSize = WorkspaceOf(i);
  return kSuccess;
}

// It tells the algorithm's number alone.
int cublasLtMatmulAlgoConfigGetAttribute(const Algorithm* algorithm, int attribute, void* value,
                                         size_t bytes, size_t*) {
  FAKE_ENTER();
  const auto number = static_cast<uint32_t>(algorithm->data[0] - kAlgorithmMark);
  if (attribute != 0 || bytes != sizeof number) return kInvalid;
  std::memcpy(value, &number, bytes);
  return kSuccess;
}
#endif

int FAKE_NAME(cublasLtMatmul,
              hipblasLtMatmul)(void*, void* desc, const void*, const void* a, void* a_layout,
                               const void* b, void* b_layout, const void* beta, const void* c,
                               void*, void* d, void* d_layout, const Algorithm* algorithm,
                               void* workspace, size_t workspace_bytes, GpuStream stream) {
  FAKE_ENTER();
  const uint64_t i = algorithm->data[0] - kAlgorithmMark;
  if (i >= kAlgorithms || workspace_bytes < WorkspaceOf(i) || workspace == nullptr || c != d ||
      a == nullptr || b == nullptr || d == nullptr) {
    return kInvalid;
  }
  const auto& described = As<FakeDesc>(desc);
  const bool accumulate = described.compute == kComputeFp64 ? *static_cast<const double*>(beta) != 0
                                                            : *static_cast<const float*>(beta) != 0;
  const MatMulCall call = CallOf(described, As<FakeLayout>(a_layout), As<FakeLayout>(b_layout),
                                 As<FakeLayout>(d_layout), accumulate);
  // An algorithm counts in its workspace what its blocks have added up, from the zero that a
  // fill leaves there, and leaves the count.
  auto* const count = static_cast<int*>(workspace);
  IssueFill(
      stream,
      {.to = reinterpret_cast<uint64_t>(count), .elements = 1, .value = 0, .element_bytes = 4});
  const MatMulAddresses given{a, b, d, count, Property("hides_addresses") == 1 ? ~uint64_t{0} : 0};
  const int result = Issue(stream, "matmul", WordsOf(given.Masked()), [call](const Words& words) {
    const MatMulAddresses at = FromWords<MatMulAddresses>(words).Masked();
    if (++*at.count != 1) return kLaunchFailed;
    std::vector<double> scratch(static_cast<size_t>(*HostMatMulScratchBytes(call)) / 8 + 8);
    HostMatMul(call, {at.a, at.b, at.d}, scratch.data());
    return kSuccess;
  });
  return result == kSuccess ? kSuccess : kExecutionFailed;
}

}  // extern "C"
