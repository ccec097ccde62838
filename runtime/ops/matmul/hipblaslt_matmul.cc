// hipBLASLt's headers are not needed: what follows is its C interface as releases 0.8 (ROCm 6.2)
// to 1.x (ROCm 7) document it; older ones number their types otherwise and are not used. It has no
// preference that keeps sums in one order, so whether two runs give the same bits is the library's
// matter.
#include "runtime/ops/matmul/hipblaslt_matmul.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "graph/base/status.h"
#include "runtime/ops/matmul/blas_operands.h"

namespace retrograd {
namespace {

constexpr int kOldest = 800;  // 0.8.0, as 100000 * major + 100 * minor + patch
constexpr uint64_t kMostWorkspaceBytes = uint64_t{32} << 20;

enum DataType : int { kFp32Data = 0, kFp64Data = 1, kFp16Data = 2, kBf16Data = 14 };  // hipDataType
enum ComputeType : int { kComputeFp32 = 2, kComputeTf32 = 6, kComputeFp64 = 7 };
enum Operation : int32_t { kAsIs = 111, kTransposed = 112 };
enum DescAttribute : int { kTransposeA = 0, kTransposeB = 1 };
enum LayoutAttribute : int { kBatchCount = 0, kBatchStride = 1 };
enum PreferenceAttribute : int { kMaxWorkspace = 1 };
enum BlasStatus : int { kAllocFailed = 2, kInvalidValue = 3, kNotSupported = 7, kArchMismatch = 8 };

struct Algorithm {
  uint8_t data[16];
  size_t max_workspace_bytes;
};
struct Heuristic {
  Algorithm algorithm;
  size_t workspace_bytes;
  int state;
  float waves;
  int reserved[4];
};
static_assert(sizeof(Algorithm) == 24 && sizeof(Heuristic) == 56);

}  // namespace

// Handles are pointers; statuses and enums are ints.
#define RG_HIPBLASLT_ENTRY_POINTS(X)                                                           \
  X(GetVersion, void*, int*)                                                                   \
  X(Create, void**)                                                                            \
  X(Destroy, void*)                                                                            \
  X(MatmulDescCreate, void**, int, int)                                                        \
  X(MatmulDescDestroy, void*)                                                                  \
  X(MatmulDescSetAttribute, void*, int, const void*, size_t)                                   \
  X(MatrixLayoutCreate, void**, int, uint64_t, uint64_t, int64_t)                              \
  X(MatrixLayoutDestroy, void*)                                                                \
  X(MatrixLayoutSetAttribute, void*, int, const void*, size_t)                                 \
  X(MatmulPreferenceCreate, void**)                                                            \
  X(MatmulPreferenceDestroy, void*)                                                            \
  X(MatmulPreferenceSetAttribute, void*, int, const void*, size_t)                             \
  X(MatmulAlgoGetHeuristic, void*, void*, void*, void*, void*, void*, void*, int, void*, int*) \
  X(Matmul, void*, void*, const void*, const void*, void*, const void*, void*, const void*,    \
    const void*, void*, void*, void*, const void*, void*, size_t, GpuStream)

struct HipblasltEntries {
#define RG_HIPBLASLT_FIELD(field, ...) int (*field)(__VA_ARGS__) = nullptr;
  RG_HIPBLASLT_ENTRY_POINTS(RG_HIPBLASLT_FIELD)
#undef RG_HIPBLASLT_FIELD
};

namespace {

absl::StatusOr<const HipblasltEntries*> Load(const std::string& path) {
  std::vector<const char*> candidates = {"libhipblaslt.so.1", "libhipblaslt.so.0",
                                         "libhipblaslt.so", "/opt/rocm/lib/libhipblaslt.so"};
  if (!path.empty()) candidates = {path.c_str()};
  void* const library = FirstLibrary(candidates);
  if (library == nullptr) {
    return absl::UnavailableError(
        absl::StrCat("no hipBLASLt found (", absl::StrJoin(candidates, ", "), ")"));
  }
  auto entries = std::make_unique<HipblasltEntries>();
  bool complete = true;
#define RG_HIPBLASLT_FIND(field, ...)                                                              \
  complete = FindSymbol(library, "hipblasLt" #field, reinterpret_cast<void**>(&entries->field)) && \
             complete;
  RG_HIPBLASLT_ENTRY_POINTS(RG_HIPBLASLT_FIND)
#undef RG_HIPBLASLT_FIND
  if (!complete) return absl::UnavailableError("this hipBLASLt lacks functions of release 0.8");
  return entries.release();  // like the library, for the rest of the process
}

// Loaded once for each path.
absl::StatusOr<const HipblasltEntries*> LoadOnce(const std::string& path) {
  static std::mutex& mutex = *new std::mutex;
  static auto& loaded = *new std::map<std::string, const HipblasltEntries*>;
  std::lock_guard<std::mutex> lock(mutex);
  if (const auto found = loaded.find(path); found != loaded.end()) return found->second;
  RG_ASSIGN_OR_RETURN(const HipblasltEntries* const entries, Load(path));
  return loaded[path] = entries;
}

absl::Status StatusOf(int result, absl::string_view call) {
  if (result == 0) return absl::OkStatus();
  const std::string message = absl::StrCat(call, ": hipBLASLt's status ", result);
  switch (result) {
    case kAllocFailed: return absl::ResourceExhaustedError(message);
    case kNotSupported:
    case kArchMismatch: return absl::UnimplementedError(message);
    case kInvalidValue: return absl::InvalidArgumentError(message);
    default: return absl::InternalError(message);
  }
}

#define RG_HIPBLASLT(entry, ...)                                         \
  do {                                                                   \
    if (const int rg_result = lib_.entry(__VA_ARGS__); rg_result != 0) { \
      return StatusOf(rg_result, "hipblasLt" #entry);                    \
    }                                                                    \
  } while (false)

std::optional<DataType> DataTypeOf(DType dtype) {
  switch (dtype) {
    case DType::kFp16: return kFp16Data;
    case DType::kBf16: return kBf16Data;
    case DType::kFp32: return kFp32Data;
    case DType::kFp64: return kFp64Data;
    default: return std::nullopt;
  }
}

class HipblasltMatMul : public LibraryMatMul {
 public:
  HipblasltMatMul(const HipblasltEntries& lib, void* handle) : lib_(lib), handle_(handle) {}
  ~HipblasltMatMul() override {
    if (desc_ != nullptr) lib_.MatmulDescDestroy(desc_);
    for (void* layout : {left_, right_, result_}) {
      if (layout != nullptr) lib_.MatrixLayoutDestroy(layout);
    }
  }

  absl::Status Describe(const MatMulCall& call, const MatMulFacts& facts);
  absl::Status AskForCandidates(const MatMulCall& call);

  int algorithms() const override { return static_cast<int>(candidates_.size()); }
  int64_t most_workspace_bytes() const override {
    return static_cast<int64_t>(kMostWorkspaceBytes);
  }
  absl::Status Choose(int algorithm) override {
    chosen_ = static_cast<size_t>(algorithm);
    return absl::OkStatus();
  }
  // The library does not tell what an algorithm is: its bytes do.
  std::string Name(int algorithm) const override;
  int64_t workspace_bytes() const override {
    return static_cast<int64_t>(candidates_[chosen_].workspace_bytes);
  }
  absl::Status Run(GpuStream stream, const MatMulPointers& pointers, const int64_t offsets[3],
                   void* workspace) const override;

 private:
  absl::Status DescribeMatrix(const ColumnMatrix& matrix, int type, int64_t batch, void** layout);

  const HipblasltEntries& lib_;
  void* handle_;
  void* desc_ = nullptr;
  void *left_ = nullptr, *right_ = nullptr, *result_ = nullptr;
  bool swapped_ = false, fp64_ = false, accumulate_ = false;
  int64_t sizes_[3] = {};  // bytes of an element of a, b and d
  std::vector<std::array<int64_t, 3>> parts_;
  std::vector<Heuristic> candidates_;
  size_t chosen_ = 0;
};

absl::Status HipblasltMatMul::DescribeMatrix(const ColumnMatrix& matrix, int type, int64_t batch,
                                             void** layout) {
  RG_HIPBLASLT(MatrixLayoutCreate, layout, type, static_cast<uint64_t>(matrix.rows),
               static_cast<uint64_t>(matrix.cols), matrix.distance);
  if (batch == 1) return absl::OkStatus();
  const int32_t count = static_cast<int32_t>(batch);
  RG_HIPBLASLT(MatrixLayoutSetAttribute, *layout, kBatchCount, &count, sizeof count);
  RG_HIPBLASLT(MatrixLayoutSetAttribute, *layout, kBatchStride, &matrix.stride,
               sizeof matrix.stride);
  return absl::OkStatus();
}

absl::Status HipblasltMatMul::Describe(const MatMulCall& call, const MatMulFacts& facts) {
  const auto in = DataTypeOf(call.in_dtype), out = DataTypeOf(call.out_dtype);
  if (!in || !out || (*in == kFp64Data) != (*out == kFp64Data)) {
    return absl::UnimplementedError(
        absl::StrCat(retrograd::Describe(call), ": hipBLASLt multiplies no such types"));
  }
  RG_ASSIGN_OR_RETURN(const ColumnMatMul columns, InColumns(call));
  swapped_ = columns.swapped;
  parts_ = columns.parts;
  fp64_ = *in == kFp64Data;
  accumulate_ = call.accumulate;
  sizes_[0] = sizes_[1] = SizeBytes(call.in_dtype);
  sizes_[2] = SizeBytes(call.out_dtype);
  const bool tf32 = *in == kFp32Data && facts.allow_tf32;
  RG_HIPBLASLT(MatmulDescCreate, &desc_,
               fp64_  ? kComputeFp64
               : tf32 ? kComputeTf32
                      : kComputeFp32,
               fp64_ ? kFp64Data : kFp32Data);
  const Operation left = columns.left.transposed ? kTransposed : kAsIs;
  const Operation right = columns.right.transposed ? kTransposed : kAsIs;
  RG_HIPBLASLT(MatmulDescSetAttribute, desc_, kTransposeA, &left, sizeof left);
  RG_HIPBLASLT(MatmulDescSetAttribute, desc_, kTransposeB, &right, sizeof right);
  RG_RETURN_IF_ERROR(DescribeMatrix(columns.left, *in, columns.batch, &left_));
  RG_RETURN_IF_ERROR(DescribeMatrix(columns.right, *in, columns.batch, &right_));
  return DescribeMatrix(columns.result, *out, columns.batch, &result_);
}

absl::Status HipblasltMatMul::AskForCandidates(const MatMulCall& call) {
  void* preference = nullptr;
  RG_HIPBLASLT(MatmulPreferenceCreate, &preference);
  const auto destroy = [this](void* p) { lib_.MatmulPreferenceDestroy(p); };
  const std::unique_ptr<void, decltype(destroy)> owner(preference, destroy);
  RG_HIPBLASLT(MatmulPreferenceSetAttribute, preference, kMaxWorkspace, &kMostWorkspaceBytes,
               sizeof kMostWorkspaceBytes);
  Heuristic found[kMostCandidates] = {};
  int count = 0;
  const int status = lib_.MatmulAlgoGetHeuristic(handle_, desc_, left_, right_, result_, result_,
                                                 preference, kMostCandidates, found, &count);
  for (int i = 0; status == 0 && i < count; ++i) {
    if (found[i].state == 0 && found[i].workspace_bytes <= kMostWorkspaceBytes) {
      candidates_.push_back(found[i]);
    }
  }
  if (!candidates_.empty()) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat(
      retrograd::Describe(call), ": hipBLASLt has no algorithm for it (status ", status, ")"));
}

std::string HipblasltMatMul::Name(int algorithm) const {
  const Algorithm& a = candidates_[static_cast<size_t>(algorithm)].algorithm;
  const std::string bytes(reinterpret_cast<const char*>(a.data), sizeof a.data);
  return absl::StrCat("algorithm ", Digest(bytes).substr(0, 8));
}

absl::Status HipblasltMatMul::Run(GpuStream stream, const MatMulPointers& pointers,
                                  const int64_t offsets[3], void* workspace) const {
  const float alpha = 1, beta = accumulate_ ? 1 : 0;
  const double alpha64 = 1, beta64 = beta;
  const void* const one = fp64_ ? static_cast<const void*>(&alpha64) : &alpha;
  const void* const times = fp64_ ? static_cast<const void*>(&beta64) : &beta;
  const Heuristic& chosen = candidates_[chosen_];
  for (const std::array<int64_t, 3>& part : parts_) {
    const auto at = [&](const void* base, int which) {
      return static_cast<const char*>(base) + (offsets[which] + part[which]) * sizes_[which];
    };
    const void* const a = at(pointers.a, 0);
    const void* const b = at(pointers.b, 1);
    void* const d = const_cast<char*>(at(pointers.d, 2));
    RG_HIPBLASLT(Matmul, handle_, desc_, one, swapped_ ? b : a, left_, swapped_ ? a : b, right_,
                 times, d, result_, d, result_, &chosen.algorithm, workspace,
                 chosen.workspace_bytes, stream);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<HipblasltHandle>> HipblasltHandle::Create(
    const std::string& library) {
  RG_ASSIGN_OR_RETURN(const HipblasltEntries* const entries, LoadOnce(library));
  void* handle = nullptr;
  RG_RETURN_IF_ERROR(StatusOf(entries->Create(&handle), "hipblasLtCreate"));
  std::unique_ptr<HipblasltHandle> made(new HipblasltHandle(*entries, handle, 0));
  RG_RETURN_IF_ERROR(StatusOf(entries->GetVersion(handle, &made->version_), "hipblasLtGetVersion"));
  if (made->version_ < kOldest) {
    return absl::UnavailableError(
        absl::StrCat("hipBLASLt ", made->version_, " is older than 0.8 (ROCm 6.2)"));
  }
  return made;
}

HipblasltHandle::~HipblasltHandle() { entries_.Destroy(handle_); }

absl::StatusOr<std::unique_ptr<LibraryMatMul>> HipblasltHandle::MakeMatMul(
    const MatMulCall& call, const MatMulFacts& facts) {
  auto made = std::make_unique<HipblasltMatMul>(entries_, handle_);
  RG_RETURN_IF_ERROR(made->Describe(call, facts));
  RG_RETURN_IF_ERROR(made->AskForCandidates(call));
  return made;
}

}  // namespace retrograd
