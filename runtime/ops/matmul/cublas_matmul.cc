#if defined(RETROGRAD_HAVE_CUDA)

#include "runtime/ops/matmul/cublas_matmul.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <map>
#include <mutex>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "graph/base/status.h"

namespace retrograd {
namespace {

constexpr uint64_t kMostWorkspaceBytes = uint64_t{32} << 20;  // what frameworks grant on Hopper

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
    case DType::kFp8E4M3: return CUDA_R_8F_E4M3;
    case DType::kFp8E5M2: return CUDA_R_8F_E5M2;
    case DType::kFp16: return CUDA_R_16F;
    case DType::kBf16: return CUDA_R_16BF;
    case DType::kFp32: return CUDA_R_32F;
    case DType::kFp64: return CUDA_R_64F;
    default: return std::nullopt;
  }
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
  // An algorithm, and the workspace that it wants.
  struct Choice {
    cublasLtMatmulAlgo_t algorithm;
    uint64_t workspace_bytes = 0;
  };
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
  absl::Status DescribeMatrix(const ColumnMatrix& matrix, cudaDataType_t type, int64_t batch,
                              cublasLtMatrixLayout_t* layout);
  absl::Status AskForCandidates(const MatMulCall& call, const MatMulFacts& facts);
  absl::Status Take(const Choice& wanted);
};

#define RG_CUBLAS(entry, ...)                                 \
  do {                                                        \
    const cublasStatus_t rg_result = lib.entry(__VA_ARGS__);  \
    if (rg_result != CUBLAS_STATUS_SUCCESS) {                 \
      return CublasStatus(lib, rg_result, "cublasLt" #entry); \
    }                                                         \
  } while (false)

absl::Status CublasMatMul::State::DescribeMatrix(const ColumnMatrix& matrix, cudaDataType_t type,
                                                 int64_t batch, cublasLtMatrixLayout_t* layout) {
  RG_CUBLAS(MatrixLayoutCreate, layout, type, static_cast<uint64_t>(matrix.rows),
            static_cast<uint64_t>(matrix.cols), matrix.distance);
  if (batch == 1) return absl::OkStatus();
  const int32_t count = static_cast<int32_t>(batch);
  RG_CUBLAS(MatrixLayoutSetAttribute, *layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count,
            sizeof count);
  RG_CUBLAS(MatrixLayoutSetAttribute, *layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
            &matrix.stride, sizeof matrix.stride);
  return absl::OkStatus();
}

absl::Status CublasMatMul::State::MakeDescriptors(const MatMulCall& call,
                                                  const MatMulFacts& facts) {
  const auto refused = [&call](absl::string_view why) {
    return absl::UnimplementedError(absl::StrCat(Describe(call), ": ", why));
  };
  const auto in_type = CudaType(call.in_dtype), out_type = CudaType(call.out_dtype);
  if (!in_type || !out_type) return refused("cuBLASLt multiplies floating matrices only");
  fp64 = call.in_dtype == DType::kFp64;
  if (fp64 != (call.out_dtype == DType::kFp64)) return refused("fp64 does not mix with others");
  RG_ASSIGN_OR_RETURN(const ColumnMatMul columns, InColumns(call));
  swapped = columns.swapped;
  parts = columns.parts;

  cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
  if (fp64) compute = CUBLAS_COMPUTE_64F;
  if (call.in_dtype == DType::kFp32 && facts.allow_tf32) compute = CUBLAS_COMPUTE_32F_FAST_TF32;
  RG_CUBLAS(MatmulDescCreate, &desc, compute, fp64 ? CUDA_R_64F : CUDA_R_32F);
  const cublasOperation_t left_op = columns.left.transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
  const cublasOperation_t right_op = columns.right.transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
  RG_CUBLAS(MatmulDescSetAttribute, desc, CUBLASLT_MATMUL_DESC_TRANSA, &left_op, sizeof left_op);
  RG_CUBLAS(MatmulDescSetAttribute, desc, CUBLASLT_MATMUL_DESC_TRANSB, &right_op, sizeof right_op);
  RG_RETURN_IF_ERROR(DescribeMatrix(columns.left, *in_type, columns.batch, &first));
  RG_RETURN_IF_ERROR(DescribeMatrix(columns.right, *in_type, columns.batch, &second));
  RG_RETURN_IF_ERROR(DescribeMatrix(columns.result, *out_type, columns.batch, &result));
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
  const uint32_t a = OperandAlignment(call, 0, facts.a_alignment);
  const uint32_t b = OperandAlignment(call, 1, facts.b_alignment);
  const uint32_t d = OperandAlignment(call, 2, facts.d_alignment);
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
    return absl::UnimplementedError(absl::StrCat(
        Describe(call), ": cuBLASLt has no algorithm for it: ", lib.GetStatusString(status)));
  }
  choice = candidates.front();
  return absl::OkStatus();
}

absl::Status CublasMatMul::State::Take(const Choice& wanted) {
  cublasLtMatmulHeuristicResult_t checked;
  RG_CUBLAS(MatmulAlgoCheck, handle, desc, first, second, result, result, &wanted.algorithm,
            &checked);
  if (checked.workspaceSize > kMostWorkspaceBytes) {
    return absl::UnimplementedError(
        "cuBLASLt: the algorithm wants more workspace than it is given");
  }
  choice = {wanted.algorithm, std::max<uint64_t>(wanted.workspace_bytes, checked.workspaceSize)};
  return absl::OkStatus();
}

CublasMatMul::CublasMatMul(std::unique_ptr<State> state) : state_(std::move(state)) {}
CublasMatMul::~CublasMatMul() = default;

absl::StatusOr<std::unique_ptr<CublasMatMul>> CublasMatMul::Make(const CublasLibrary& library,
                                                                 cublasLtHandle_t handle,
                                                                 const MatMulCall& call,
                                                                 const MatMulFacts& facts,
                                                                 bool ask) {
  auto state = std::make_unique<State>(library, handle);
  RG_RETURN_IF_ERROR(state->MakeDescriptors(call, facts));
  if (ask) RG_RETURN_IF_ERROR(state->AskForCandidates(call, facts));
  return std::unique_ptr<CublasMatMul>(new CublasMatMul(std::move(state)));
}

int CublasMatMul::algorithms() const { return static_cast<int>(state_->candidates.size()); }

int64_t CublasMatMul::most_workspace_bytes() const { return kMostWorkspaceBytes; }

absl::Status CublasMatMul::Choose(int algorithm) {
  return state_->Take(state_->candidates[algorithm]);
}

// The algorithm's bytes, which the library lets its callers keep, and those of its workspace's
// size.
std::string CublasMatMul::ChosenState() const {
  const State::Choice& choice = state_->choice;
  std::string bytes(sizeof choice.algorithm + sizeof choice.workspace_bytes, '\0');
  std::memcpy(bytes.data(), &choice.algorithm, sizeof choice.algorithm);
  std::memcpy(bytes.data() + sizeof choice.algorithm, &choice.workspace_bytes,
              sizeof choice.workspace_bytes);
  return bytes;
}

absl::Status CublasMatMul::ChooseByState(absl::string_view state) {
  State::Choice choice;
  if (state.size() != sizeof choice.algorithm + sizeof choice.workspace_bytes) {
    return absl::InvalidArgumentError("cuBLASLt: these are no algorithm's bytes");
  }
  std::memcpy(&choice.algorithm, state.data(), sizeof choice.algorithm);
  std::memcpy(&choice.workspace_bytes, state.data() + sizeof choice.algorithm,
              sizeof choice.workspace_bytes);
  return state_->Take(choice);
}

std::string CublasMatMul::Name(int algorithm) const {
  const cublasLtMatmulAlgo_t& a = state_->candidates[static_cast<size_t>(algorithm)].algorithm;
  constexpr std::pair<cublasLtMatmulAlgoConfigAttributes_t, absl::string_view> kNumbers[] = {
      {CUBLASLT_ALGO_CONFIG_ID, "algorithm"},
      {CUBLASLT_ALGO_CONFIG_TILE_ID, "tile"},
      {CUBLASLT_ALGO_CONFIG_STAGES_ID, "stages"},
      {CUBLASLT_ALGO_CONFIG_SPLITK_NUM, "split"},
      {CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, "reduction"},
      {CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING, "swizzle"},
      {CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, "option"},
      {CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID, "inner"},
      {CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, "cluster"}};
  std::string name;
  for (const auto& [attribute, word] : kNumbers) {
    uint32_t number = 0;
    const bool narrow = attribute == CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID ||
                        attribute == CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID;
    size_t written = 0;
    const cublasStatus_t told = state_->lib.MatmulAlgoConfigGetAttribute(
        &a, attribute, &number, narrow ? sizeof(uint16_t) : sizeof number, &written);
    const bool first = attribute == CUBLASLT_ALGO_CONFIG_ID;
    if (!first && (told != CUBLAS_STATUS_SUCCESS || number == 0)) continue;
    absl::StrAppend(&name, first ? "" : " ", word, " ", number);
  }
  return name;
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

}  // namespace retrograd

#endif  // RETROGRAD_HAVE_CUDA
