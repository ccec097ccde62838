// The library thinks in columns: a matrix is stored column after column, or is the transpose of one
// that is. A product stored row after row is its transpose stored column after column, so
// d = a·b becomes dᵀ = bᵀ·aᵀ there.
#if defined(RETROGRAD_HAVE_CUDA)

#include "runtime/cublas_matmul.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <mutex>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "graph/status.h"

namespace retrograd {
namespace {

constexpr int kMostCandidates = 16;
constexpr uint64_t kMostWorkspaceBytes = uint64_t{32} << 20;  // what frameworks grant on Hopper
// Beyond so many separate matrices a kernel that takes any strides is better.
constexpr int64_t kMostParts = 64;

template <typename Function>
bool FindEntry(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
  return *function != nullptr;
}

absl::StatusOr<const CublasLibrary*> Load(const std::string& path) {
  std::vector<const char*> candidates = {"libcublasLt.so.13", "libcublasLt.so.12",
                                         "/usr/local/cuda/lib64/libcublasLt.so.13",
                                         "/usr/local/cuda/lib64/libcublasLt.so.12"};
  if (!path.empty()) candidates = {path.c_str()};
  for (const char* candidate : candidates) {
    void* handle = dlopen(candidate, RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) continue;
    auto library = std::make_unique<CublasLibrary>();
    bool complete = true;
#define RG_CUBLAS_FIND(field, function) \
  complete = FindEntry(handle, #function, &library->field) && complete;
    RG_CUBLAS_ENTRY_POINTS(RG_CUBLAS_FIND)
#undef RG_CUBLAS_FIND
    if (complete) return library.release();  // like the library, for the rest of the process
  }
  return absl::UnavailableError(absl::StrCat(
      "no cuBLASLt found (", absl::StrJoin(candidates, ", "),
      "): install the CUDA toolkit's cuBLAS (libcublasLt.so.13) or put it on LD_LIBRARY_PATH"));
}

std::optional<cudaDataType_t> CudaType(DType dtype) {
  switch (dtype) {
    case DType::kFp16: return CUDA_R_16F;
    case DType::kBf16: return CUDA_R_16BF;
    case DType::kFp32: return CUDA_R_32F;
    case DType::kFp64: return CUDA_R_64F;
    default: return std::nullopt;
  }
}

// A matrix as the library takes it: stored by columns, or the transpose of one that is.
struct ColumnMatrix {
  bool transposed = false;
  int64_t rows = 0, cols = 0;  // as stored
  int64_t distance = 0;        // of columns, in elements
};

// Without a value: neither rows nor columns are consecutive.
std::optional<ColumnMatrix> AsColumns(int64_t rows, int64_t cols, int64_t row_stride,
                                      int64_t col_stride) {
  if ((rows <= 1 || row_stride == 1) && (cols <= 1 || col_stride >= std::max<int64_t>(rows, 1))) {
    return ColumnMatrix{false, rows, cols, cols <= 1 ? rows : col_stride};
  }
  if ((cols <= 1 || col_stride == 1) && (rows <= 1 || row_stride >= std::max<int64_t>(cols, 1))) {
    return ColumnMatrix{true, cols, rows, rows <= 1 ? cols : row_stride};
  }
  return std::nullopt;
}

// The batch as one strided axis of the library's, repeated at some places.
struct Batch {
  int64_t count = 1;
  int64_t strides[3] = {};                    // of a, b and d, in elements
  std::vector<std::array<int64_t, 3>> parts;  // offsets of a, b and d
};

Batch SplitBatch(const MatMulCall& call) {
  struct Axis {
    int64_t extent;
    std::array<int64_t, 3> strides;
  };
  std::vector<Axis> axes;  // outermost first, those that are one walk joined
  for (size_t i = 0; i < call.batch.size(); ++i) {
    if (call.batch[i] == 1) continue;
    const Axis axis = {call.batch[i],
                       {call.a.batch_strides[i], call.b.batch_strides[i], call.d.batch_strides[i]}};
    bool joined = !axes.empty();
    for (int o = 0; joined && o < 3; ++o) {
      joined = axes.back().strides[o] == axis.strides[o] * axis.extent;
    }
    if (joined) {
      axes.back() = {axes.back().extent * axis.extent, axis.strides};
    } else {
      axes.push_back(axis);
    }
  }
  Batch batch;
  batch.parts = {{0, 0, 0}};
  if (axes.empty()) return batch;
  // The longest axis is the library's.
  const auto longest = std::max_element(axes.begin(), axes.end(), [](const Axis& a, const Axis& b) {
    return a.extent < b.extent;
  });
  batch.count = longest->extent;
  std::copy(longest->strides.begin(), longest->strides.end(), batch.strides);
  axes.erase(longest);
  for (const Axis& axis : axes) {
    std::vector<std::array<int64_t, 3>> all;
    for (const auto& part : batch.parts) {
      for (int64_t i = 0; i < axis.extent && static_cast<int64_t>(all.size()) <= kMostParts; ++i) {
        all.push_back({part[0] + i * axis.strides[0], part[1] + i * axis.strides[1],
                       part[2] + i * axis.strides[2]});
      }
    }
    batch.parts = std::move(all);
  }
  return batch;
}

std::string Describe(const MatMulCall& call) {
  return absl::StrFormat("matmul %dx%dx%d%s, %s to %s", call.m, call.n, call.k,
                         call.batch.empty()
                             ? ""
                             : absl::StrCat(", batch ", absl::StrJoin(call.batch, "x")),
                         Name(call.in_dtype), Name(call.out_dtype));
}

int64_t Span(const MatrixOperand& operand, const std::vector<int64_t>& batch, int64_t rows,
             int64_t cols) {
  int64_t span = 1 + (rows - 1) * operand.row_stride + (cols - 1) * operand.col_stride;
  for (size_t i = 0; i < batch.size(); ++i) span += (batch[i] - 1) * operand.batch_strides[i];
  return std::max<int64_t>(span, 1);
}

// What divides the addresses of all of an operand's matrices.
uint32_t AlignmentOf(const MatrixOperand& operand, int64_t alignment, DType dtype,
                     const Batch& batch, int which) {
  int64_t known = std::gcd(alignment, operand.offset * SizeBytes(dtype));
  for (const auto& part : batch.parts) known = std::gcd(known, part[which] * SizeBytes(dtype));
  return static_cast<uint32_t>(std::clamp<int64_t>(known & -known, 1, 256));
}

}  // namespace

absl::StatusOr<const CublasLibrary*> LoadCublas(const std::string& library) {
  static std::mutex& mutex = *new std::mutex;
  static auto& loaded = *new std::map<std::string, const CublasLibrary*>;
  std::lock_guard<std::mutex> lock(mutex);
  const auto found = loaded.find(library);
  if (found != loaded.end()) return found->second;
  RG_ASSIGN_OR_RETURN(const CublasLibrary* entries, Load(library));
  loaded[library] = entries;
  return entries;
}

absl::Status CublasStatus(const CublasLibrary& library, cublasStatus_t result,
                          absl::string_view call) {
  if (result == CUBLAS_STATUS_SUCCESS) return absl::OkStatus();
  const std::string message = absl::StrCat(call, ": ", library.GetStatusString(result), " (",
                                           static_cast<int>(result), ")");
  switch (result) {
    case CUBLAS_STATUS_ALLOC_FAILED: return absl::ResourceExhaustedError(message);
    case CUBLAS_STATUS_NOT_SUPPORTED:
    case CUBLAS_STATUS_ARCH_MISMATCH: return absl::UnimplementedError(message);
    case CUBLAS_STATUS_INVALID_VALUE: return absl::InvalidArgumentError(message);
    default: return absl::InternalError(message);
  }
}

std::string MatMulKey(const MatMulCall& call, const MatMulFacts& facts) {
  const Batch batch = SplitBatch(call);
  std::string key = absl::StrCat(Describe(call), call.accumulate ? " +=" : "",
                                 facts.allow_tf32 ? " tf32" : "");
  const MatrixOperand* operands[] = {&call.a, &call.b, &call.d};
  const int64_t alignments[] = {facts.a_alignment, facts.b_alignment, facts.d_alignment};
  for (int i = 0; i < 3; ++i) {
    const MatrixOperand& o = *operands[i];
    const DType dtype = i == 2 ? call.out_dtype : call.in_dtype;
    absl::StrAppend(&key, " [", o.row_stride, " ", o.col_stride, " ",
                    absl::StrJoin(o.batch_strides, " "), " /",
                    AlignmentOf(o, alignments[i], dtype, batch, i), "]");
  }
  return key;
}

struct CublasMatMul::State {
  const CublasLibrary& lib;
  cublasLtHandle_t handle;
  cublasLtMatmulDesc_t desc = nullptr;
  cublasLtMatrixLayout_t first = nullptr, second = nullptr, result = nullptr;
  bool swapped = false;  // the library's first operand is b
  bool fp64 = false;     // alpha and beta are double
  bool accumulate = false;
  int64_t sizes[3] = {};  // bytes of an element of a, b and d
  std::vector<std::array<int64_t, 3>> parts;
  std::vector<Choice> candidates;
  Choice choice;

  State(const CublasLibrary& lib, cublasLtHandle_t handle) : lib(lib), handle(handle) {}
  ~State() {
    if (desc != nullptr) lib.MatmulDescDestroy(desc);
    for (cublasLtMatrixLayout_t layout : {first, second, result}) {
      if (layout != nullptr) lib.MatrixLayoutDestroy(layout);
    }
  }

  absl::Status MakeDescriptors(const MatMulCall& call, const MatMulFacts& facts);
  absl::Status DescribeMatrix(const ColumnMatrix& matrix, cudaDataType_t type, const Batch& batch,
                              int64_t stride, cublasLtMatrixLayout_t* layout);
  absl::Status AskForCandidates(const MatMulCall& call, const MatMulFacts& facts);
};

#define RG_CUBLAS(entry, ...)                                                          \
  do {                                                                                 \
    const cublasStatus_t rg_result = lib.entry(__VA_ARGS__);                           \
    if (rg_result != CUBLAS_STATUS_SUCCESS) {                                          \
      return CublasStatus(lib, rg_result, "cublasLt" #entry);                          \
    }                                                                                  \
  } while (false)

absl::Status CublasMatMul::State::DescribeMatrix(const ColumnMatrix& matrix, cudaDataType_t type,
                                                 const Batch& batch, int64_t stride,
                                                 cublasLtMatrixLayout_t* layout) {
  RG_CUBLAS(MatrixLayoutCreate, layout, type, static_cast<uint64_t>(matrix.rows),
            static_cast<uint64_t>(matrix.cols), matrix.distance);
  if (batch.count == 1) return absl::OkStatus();
  const int32_t count = static_cast<int32_t>(batch.count);
  RG_CUBLAS(MatrixLayoutSetAttribute, *layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count,
            sizeof count);
  RG_CUBLAS(MatrixLayoutSetAttribute, *layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
            &stride, sizeof stride);
  return absl::OkStatus();
}

absl::Status CublasMatMul::State::MakeDescriptors(const MatMulCall& call, const MatMulFacts& facts) {
  const auto refused = [&call](absl::string_view why) {
    return absl::UnimplementedError(absl::StrCat(Describe(call), ": ", why));
  };
  const auto in_type = CudaType(call.in_dtype), out_type = CudaType(call.out_dtype);
  if (!in_type || !out_type) return refused("cuBLASLt multiplies floating matrices only");
  fp64 = call.in_dtype == DType::kFp64;
  if (fp64 != (call.out_dtype == DType::kFp64)) return refused("fp64 does not mix with others");
  const Batch batch = SplitBatch(call);
  if (static_cast<int64_t>(batch.parts.size()) > kMostParts ||
      batch.count > std::numeric_limits<int32_t>::max()) {
    return refused("the batch is no single walk through memory");
  }
  parts = batch.parts;

  const std::optional<ColumnMatrix> d_columns =
      AsColumns(call.m, call.n, call.d.row_stride, call.d.col_stride);
  if (!d_columns) return refused("the result has neither rows nor columns together");
  swapped = d_columns->transposed;
  const std::optional<ColumnMatrix> left =
      swapped ? AsColumns(call.n, call.k, call.b.col_stride, call.b.row_stride)
              : AsColumns(call.m, call.k, call.a.row_stride, call.a.col_stride);
  const std::optional<ColumnMatrix> right =
      swapped ? AsColumns(call.k, call.m, call.a.col_stride, call.a.row_stride)
              : AsColumns(call.k, call.n, call.b.row_stride, call.b.col_stride);
  if (!left || !right) return refused("an operand has neither rows nor columns together");

  cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
  if (fp64) compute = CUBLAS_COMPUTE_64F;
  if (call.in_dtype == DType::kFp32 && facts.allow_tf32) compute = CUBLAS_COMPUTE_32F_FAST_TF32;
  RG_CUBLAS(MatmulDescCreate, &desc, compute, fp64 ? CUDA_R_64F : CUDA_R_32F);
  const cublasOperation_t left_op = left->transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
  const cublasOperation_t right_op = right->transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
  RG_CUBLAS(MatmulDescSetAttribute, desc, CUBLASLT_MATMUL_DESC_TRANSA, &left_op, sizeof left_op);
  RG_CUBLAS(MatmulDescSetAttribute, desc, CUBLASLT_MATMUL_DESC_TRANSB, &right_op, sizeof right_op);
  RG_RETURN_IF_ERROR(DescribeMatrix(*left, *in_type, batch, batch.strides[swapped ? 1 : 0], &first));
  RG_RETURN_IF_ERROR(
      DescribeMatrix(*right, *in_type, batch, batch.strides[swapped ? 0 : 1], &second));
  ColumnMatrix d = *d_columns;
  d.transposed = false;
  RG_RETURN_IF_ERROR(DescribeMatrix(d, *out_type, batch, batch.strides[2], &result));
  accumulate = call.accumulate;
  sizes[0] = sizes[1] = SizeBytes(call.in_dtype);
  sizes[2] = SizeBytes(call.out_dtype);
  return absl::OkStatus();
}

absl::Status CublasMatMul::State::AskForCandidates(const MatMulCall& call,
                                                   const MatMulFacts& facts) {
  cublasLtMatmulPreference_t preference = nullptr;
  RG_CUBLAS(MatmulPreferenceCreate, &preference);
  const auto destroy = [this](cublasLtMatmulPreference_t p) { lib.MatmulPreferenceDestroy(p); };
  const std::unique_ptr<std::remove_pointer_t<cublasLtMatmulPreference_t>, decltype(destroy)> owner(
      preference, destroy);
  const Batch batch = SplitBatch(call);
  const uint32_t a = AlignmentOf(call.a, facts.a_alignment, call.in_dtype, batch, 0);
  const uint32_t b = AlignmentOf(call.b, facts.b_alignment, call.in_dtype, batch, 1);
  const uint32_t d = AlignmentOf(call.d, facts.d_alignment, call.out_dtype, batch, 2);
  // Partial sums of a split K are added up in their own type and in a fixed order, so that two runs
  // give the same bits.
  const uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  const std::pair<cublasLtMatmulPreferenceAttributes_t, uint32_t> wishes[] = {
      {CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, reductions},
      {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, swapped ? b : a},
      {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, swapped ? a : b},
      {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, d},
      {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, d}};
  for (const auto& [attribute, value] : wishes) {
    RG_CUBLAS(MatmulPreferenceSetAttribute, preference, attribute, &value, sizeof value);
  }
  RG_CUBLAS(MatmulPreferenceSetAttribute, preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
            &kMostWorkspaceBytes, sizeof kMostWorkspaceBytes);

  cublasLtMatmulHeuristicResult_t found[kMostCandidates];
  int count = 0;
  const cublasStatus_t status = lib.MatmulAlgoGetHeuristic(
      handle, desc, first, second, result, result, preference, kMostCandidates, found, &count);
  for (int i = 0; status == CUBLAS_STATUS_SUCCESS && i < count; ++i) {
    if (found[i].state != CUBLAS_STATUS_SUCCESS) continue;
    candidates.push_back({found[i].algo, found[i].workspaceSize});
  }
  if (candidates.empty()) {
    return absl::UnimplementedError(
        absl::StrCat(Describe(call), ": cuBLASLt has no algorithm for it: ",
                     lib.GetStatusString(status)));
  }
  choice = candidates.front();
  return absl::OkStatus();
}

CublasMatMul::CublasMatMul(std::unique_ptr<State> state) : state_(std::move(state)) {}
CublasMatMul::~CublasMatMul() = default;

absl::StatusOr<std::unique_ptr<CublasMatMul>> CublasMatMul::Make(const CublasLibrary& library,
                                                                 cublasLtHandle_t handle,
                                                                 const MatMulCall& call,
                                                                 const MatMulFacts& facts) {
  auto state = std::make_unique<State>(library, handle);
  RG_RETURN_IF_ERROR(state->MakeDescriptors(call, facts));
  RG_RETURN_IF_ERROR(state->AskForCandidates(call, facts));
  return std::unique_ptr<CublasMatMul>(new CublasMatMul(std::move(state)));
}

const std::vector<CublasMatMul::Choice>& CublasMatMul::candidates() const {
  return state_->candidates;
}
const CublasMatMul::Choice& CublasMatMul::choice() const { return state_->choice; }

bool CublasMatMul::Choose(const Choice& choice) {
  State& s = *state_;
  cublasLtMatmulHeuristicResult_t checked;
  if (choice.workspace_bytes > kMostWorkspaceBytes ||
      s.lib.MatmulAlgoCheck(s.handle, s.desc, s.first, s.second, s.result, s.result,
                            &choice.algorithm, &checked) != CUBLAS_STATUS_SUCCESS ||
      checked.workspaceSize > kMostWorkspaceBytes) {
    return false;
  }
  s.choice = {choice.algorithm, std::max<uint64_t>(choice.workspace_bytes, checked.workspaceSize)};
  return true;
}

int64_t CublasMatMul::workspace_bytes() const {
  return static_cast<int64_t>(state_->choice.workspace_bytes);
}

absl::Status CublasMatMul::Run(GpuStream stream, const MatMulPointers& pointers,
                               const int64_t offsets[3], void* workspace) const {
  const State& s = *state_;
  const CublasLibrary& lib = s.lib;
  const float alpha = 1, beta = s.accumulate ? 1 : 0;
  const double alpha64 = 1, beta64 = beta;
  for (const std::array<int64_t, 3>& part : s.parts) {
    const auto at = [&](const void* base, int which) {
      return static_cast<const char*>(base) + (offsets[which] + part[which]) * s.sizes[which];
    };
    const void* a = at(pointers.a, 0);
    const void* b = at(pointers.b, 1);
    void* d = const_cast<char*>(at(pointers.d, 2));
    RG_CUBLAS(Matmul, s.handle, s.desc,
              s.fp64 ? static_cast<const void*>(&alpha64) : static_cast<const void*>(&alpha),
              s.swapped ? b : a, s.first, s.swapped ? a : b, s.second,
              s.fp64 ? static_cast<const void*>(&beta64) : static_cast<const void*>(&beta), d,
              s.result, d, s.result, &s.choice.algorithm, workspace, s.choice.workspace_bytes,
              reinterpret_cast<cudaStream_t>(stream));
  }
  return absl::OkStatus();
}

namespace {

// Device memory and events for the time of a measurement.
class Bench {
 public:
  Bench(const GpuDriver& driver, GpuStream stream) : driver_(driver), stream_(stream) {}
  ~Bench() {
    for (void* p : memory_) driver_.MemFree(p);
    for (GpuEvent e : events_) {
      if (e != nullptr) driver_.EventDestroy(e);
    }
  }

  // Filled with small numbers, whatever the type.
  absl::StatusOr<void*> Allocate(int64_t bytes) {
    void* p = nullptr;
    RG_GPU(driver_, MemAlloc, &p, static_cast<size_t>(std::max<int64_t>(bytes, 1)));
    memory_.push_back(p);
    RG_GPU(driver_, MemsetD8Async, p, 0x2c, static_cast<size_t>(bytes), stream_);
    return p;
  }

  absl::Status MakeEvents() {
    for (GpuEvent& e : events_) RG_GPU(driver_, EventCreate, &e, kGpuTimedEvent);
    return absl::OkStatus();
  }

  // Of one run, in milliseconds, after one that does not count.
  absl::StatusOr<float> Time(absl::FunctionRef<absl::Status()> run, int repetitions) {
    RG_RETURN_IF_ERROR(run());
    RG_GPU(driver_, EventRecord, events_[0], stream_);
    for (int i = 0; i < repetitions; ++i) RG_RETURN_IF_ERROR(run());
    RG_GPU(driver_, EventRecord, events_[1], stream_);
    RG_GPU(driver_, EventSynchronize, events_[1]);
    float ms = 0;
    RG_GPU(driver_, EventElapsedTime, &ms, events_[0], events_[1]);
    return ms / static_cast<float>(repetitions);
  }

 private:
  const GpuDriver& driver_;
  GpuStream stream_;
  std::vector<void*> memory_;
  GpuEvent events_[2] = {};
};

}  // namespace

absl::Status ChooseByTiming(const GpuDriver& driver, GpuStream stream, const MatMulCall& call,
                            CublasMatMul* matmul) {
  const std::vector<CublasMatMul::Choice> candidates = matmul->candidates();
  if (candidates.size() < 2) return absl::OkStatus();
  Bench bench(driver, stream);
  MatMulPointers pointers;
  RG_ASSIGN_OR_RETURN(pointers.a, bench.Allocate(Span(call.a, call.batch, call.m, call.k) *
                                                 SizeBytes(call.in_dtype)));
  RG_ASSIGN_OR_RETURN(pointers.b, bench.Allocate(Span(call.b, call.batch, call.k, call.n) *
                                                 SizeBytes(call.in_dtype)));
  RG_ASSIGN_OR_RETURN(pointers.d, bench.Allocate(Span(call.d, call.batch, call.m, call.n) *
                                                 SizeBytes(call.out_dtype)));
  RG_ASSIGN_OR_RETURN(void* const workspace,
                      bench.Allocate(static_cast<int64_t>(kMostWorkspaceBytes)));
  RG_RETURN_IF_ERROR(bench.MakeEvents());
  constexpr int64_t kNoOffsets[3] = {};
  std::optional<CublasMatMul::Choice> best;
  float least = 0;
  for (const CublasMatMul::Choice& candidate : candidates) {
    if (!matmul->Choose(candidate)) continue;
    const absl::StatusOr<float> ms = bench.Time(
        [&] { return matmul->Run(stream, pointers, kNoOffsets, workspace); }, 3);
    if (!ms.ok()) continue;  // an algorithm that fails here is not the one
    if (!best || *ms < least) {
      best = matmul->choice();
      least = *ms;
    }
  }
  if (!best || !matmul->Choose(*best)) {
    return absl::InternalError(
        absl::StrCat(Describe(call), ": none of cuBLASLt's algorithms for it runs"));
  }
  return absl::OkStatus();
}

}  // namespace retrograd

#endif  // RETROGRAD_HAVE_CUDA
