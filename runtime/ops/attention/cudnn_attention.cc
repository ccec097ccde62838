// cuDNN's graph of attention's backward pass, through cudnn-frontend: headers that build the graph
// out of small operations and hand it to the library's C interface. They throw where a library or a
// function of one is missing, so every use of them is guarded.
#include "runtime/ops/attention/cudnn_attention.h"

#include <algorithm>
#include <array>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "graph/base/status.h"

namespace retrograd {
namespace {

enum { kDO, kQ, kK, kV, kO, kLse, kBias };  // operands; with dropout seed and offset are last

constexpr int64_t kAlignment = 16;  // bytes, of every row of an operand

// The place of the seed among the operands, before the offset's; their number without dropout.
size_t FirstOfDropout(const AttentionCall& call, const AttentionFacts& facts) {
  return call.operands.size() - (facts.dropout_p > 0 ? 2 : 0);
}

bool HasBias(const AttentionCall& call, const AttentionFacts& facts) {
  return FirstOfDropout(call, facts) > kBias;
}

// "attention_backward %13, bf16 Q[48,8,2048,64] K[48,4,2048,64], causal"
std::string ShapeOf(const AttentionCall& call, const AttentionFacts& facts) {
  return absl::StrCat("attention_backward %", Index(call.node), ", ", Name(call.dtype), " Q[",
                      absl::StrJoin(call.operands[kQ].shape, ","), "] K[",
                      absl::StrJoin(call.operands[kK].shape, ","), "]",
                      call.causal ? ", causal" : "",
                      facts.dropout_p > 0 ? absl::StrCat(", dropout ", facts.dropout_p) : "");
}

}  // namespace

absl::Status CudnnRefusal(const AttentionCall& call, const AttentionFacts& facts) {
  const auto refuse = [&](absl::string_view why) {
    return absl::UnimplementedError(absl::StrCat(ShapeOf(call, facts), ": cuDNN ", why));
  };
  if (call.dtype != DType::kBf16 && call.dtype != DType::kFp16) {
    return refuse("takes bf16 and fp16 only");
  }
  const int64_t dim = call.operands[kQ].shape[3], v_dim = call.operands[kV].shape[3];
  if (dim % 8 != 0 || v_dim % 8 != 0) {
    return refuse(absl::StrFormat("takes head sizes that 8 divides, not %d and %d", dim, v_dim));
  }
  if (dim > 256 || v_dim > 256) {
    return refuse(absl::StrFormat("takes head sizes up to 256, not %d and %d", dim, v_dim));
  }
  if (facts.operand_dtypes[kLse] != DType::kFp32) return refuse("takes an fp32 log-sum-exp only");
  const auto unaligned = [](const AttentionOperand& t) {
    const int64_t step = kAlignment / 2;  // in elements of 2 bytes
    if (t.offset % step != 0 || (t.shape[3] != 1 && t.strides[3] != 1)) return true;
    for (int axis = 0; axis < 3; ++axis) {
      if (t.shape[axis] != 1 && (t.strides[axis] % step != 0 || t.strides[axis] == 0)) return true;
    }
    return false;
  };
  constexpr absl::string_view kNames[] = {"dO", "Q", "K", "V", "O", "dQ", "dK", "dV"};
  for (int i = 0; i < 8; ++i) {
    const AttentionOperand& t = i < kLse ? call.operands[i] : call.results[i - kLse];
    if (unaligned(t)) {
      return refuse(absl::StrCat("needs rows of packed elements at multiples of 16 bytes; ",
                                 kNames[i], " has the strides ", absl::StrJoin(t.strides, ","),
                                 " and the offset ", t.offset));
    }
  }
  if (HasBias(call, facts)) {
    const AttentionOperand& bias = call.operands[kBias];
    if (bias.shape.empty() || (bias.shape.back() != 1 && bias.strides.back() != 1)) {
      return refuse("needs a bias whose last stride is 1");
    }
    if (facts.operand_dtypes[kBias] == DType::kFp64 || !IsFloat(facts.operand_dtypes[kBias])) {
      return refuse(absl::StrCat("takes no bias in ", Name(facts.operand_dtypes[kBias])));
    }
  }
  for (size_t i = FirstOfDropout(call, facts); i < call.operands.size(); ++i) {
    const bool one = absl::c_all_of(call.operands[i].shape, [](int64_t n) { return n == 1; });
    if (!one ||
        (facts.operand_dtypes[i] != DType::kInt64 && facts.operand_dtypes[i] != DType::kInt32)) {
      return refuse(absl::StrCat("needs one integer of 32 or 64 bits as seed and as offset, not ",
                                 Name(facts.operand_dtypes[i]), "[",
                                 absl::StrJoin(call.operands[i].shape, ","), "]"));
    }
  }
  return absl::OkStatus();
}

}  // namespace retrograd

#ifdef RETROGRAD_HAVE_CUDNN

#include <dlfcn.h>

#include <exception>
#include <mutex>

#include "absl/strings/str_split.h"

#define NV_CUDNN_FRONTEND_USE_DYNAMIC_LOADING
#include <cudnn_frontend.h>

namespace cudnn_frontend {
void* cudnn_dlhandle = nullptr;  // where the headers look up cuDNN's functions
}

namespace retrograd {
namespace {

namespace fe = cudnn_frontend;
using TensorRef = std::shared_ptr<fe::graph::Tensor_attributes>;

// Ids of tensors in the graph, in the order in which a run passes the pointers.
constexpr int64_t kFirstOperand = 1, kFirstResult = 16;
constexpr size_t kMostPointers = 12;

// What the library says, without the lines that name its own source files.
std::string FirstLine(absl::string_view text) {
  const std::vector<absl::string_view> lines = absl::StrSplit(text, '\n', absl::SkipWhitespace());
  return lines.empty() ? "no reason given" : std::string(lines[0].substr(0, 300));
}

absl::Status FrontendStatus(fe::error_t error, absl::string_view step) {
  if (error.is_good()) return absl::OkStatus();
  const std::string text = absl::StrCat("cuDNN, ", step, ": ", FirstLine(error.get_message()));
  switch (error.get_code()) {
    case fe::error_code_t::INVALID_VARIANT_PACK: return absl::InvalidArgumentError(text);
    case fe::error_code_t::CUDA_API_FAILED:
    case fe::error_code_t::HANDLE_ERROR:
    case fe::error_code_t::GRAPH_EXECUTION_FAILED: return absl::InternalError(text);
    default: return absl::UnimplementedError(text);
  }
}

// Runs `work`; what it throws becomes a status.
template <typename Work>
absl::Status Guarded(absl::string_view step, Work&& work) {
  try {
    return work();
  } catch (const std::exception& error) {
    return absl::UnavailableError(absl::StrCat("cuDNN, ", step, ": ", FirstLine(error.what())));
  }
}

// The first of the libraries that loads, or null.
void* OpenFirst(absl::Span<const std::string> names) {
  for (const std::string& name : names) {
    if (void* library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
  }
  return nullptr;
}

// Loads cuDNN, and the CUDA runtime that the headers ask for by its bare name.
absl::Status LoadLibraries(const std::string& library) {
  static std::mutex mutex;
  static std::string loaded;  // as it was asked for
  const std::lock_guard<std::mutex> lock(mutex);
  if (fe::cudnn_dlhandle != nullptr) {
    if (library.empty() || library == loaded) return absl::OkStatus();
    return absl::UnavailableError(absl::StrCat(
        "cuDNN cannot be loaded from ", library, ": this process has loaded it from ",
        loaded.empty() ? "where it is usually found" : loaded, ", and there is one for all"));
  }
  std::vector<std::string> names = {"libcudnn.so.9", "/usr/local/cuda/lib64/libcudnn.so.9",
                                    "/usr/local/cuda/lib/libcudnn.so.9"};
  if (!library.empty()) names = {library};
  const std::string versions[] = {"13", "12"};
  void* runtime = nullptr;
  for (const std::string& version : versions) {
    const std::string name = absl::StrCat("libcudart.so.", version);
    if (runtime == nullptr) {
      runtime = OpenFirst({name, absl::StrCat("/usr/local/cuda/lib64/", name)});
    }
  }
  if (runtime == nullptr) {
    return absl::UnavailableError(
        "no CUDA runtime found (libcudart.so.13, .12), which cuDNN needs: install the CUDA toolkit "
        "or put it on LD_LIBRARY_PATH");
  }
  fe::cudnn_dlhandle = OpenFirst(names);
  if (fe::cudnn_dlhandle == nullptr) {
    return absl::UnavailableError(
        absl::StrCat("no cuDNN found (", absl::StrJoin(names, ", "),
                     "): install cuDNN 9 (PyPI: nvidia-cudnn-cu13) or put it on LD_LIBRARY_PATH"));
  }
  loaded = library;
  return absl::OkStatus();
}

fe::DataType_t DataType(DType dtype) {
  switch (dtype) {
    case DType::kBf16: return fe::DataType_t::BFLOAT16;
    case DType::kFp16: return fe::DataType_t::HALF;
    case DType::kFp32: return fe::DataType_t::FLOAT;
    case DType::kInt32: return fe::DataType_t::INT32;
    case DType::kInt64: return fe::DataType_t::INT64;
    default: return fe::DataType_t::NOT_SET;
  }
}

// Dims and strides of rank 4: axes that an operand lacks (leading ones of a bias, the last of the
// log-sum-exp, all of a seed) have extent 1. The stride of such an axis is read by nobody, but
// cuDNN wants it to be that of a packed tensor.
struct Dims {
  std::vector<int64_t> shape, strides;
};
Dims DimsOf(const AttentionOperand& t, bool append) {
  Dims d{t.shape, t.strides};
  while (d.shape.size() < 4) {
    d.shape.insert(append ? d.shape.end() : d.shape.begin(), 1);
    d.strides.insert(append ? d.strides.end() : d.strides.begin(), 1);
  }
  for (int axis = 3; axis >= 0; --axis) {
    if (d.shape[axis] != 1) continue;
    d.strides[axis] = axis == 3 ? 1 : d.shape[axis + 1] * d.strides[axis + 1];
  }
  return d;
}

}  // namespace

struct CudnnAttention::Graph {
  fe::graph::Graph graph;
  std::vector<int64_t> index;  // of each of our plans, in the graph's list
};

namespace {

// The graph's tensors and its one operation.
void Describe(const AttentionCall& call, const AttentionFacts& facts,
              const CudnnAttentionOptions& options, fe::graph::Graph& graph) {
  graph.set_io_data_type(DataType(call.dtype))
      .set_intermediate_data_type(fe::DataType_t::FLOAT)
      .set_compute_data_type(fe::DataType_t::FLOAT);
  std::vector<TensorRef> operands;
  for (size_t i = 0; i < call.operands.size(); ++i) {
    const Dims d = DimsOf(call.operands[i], /*append=*/i == kLse);
    operands.push_back(graph.tensor(fe::graph::Tensor_attributes()
                                        .set_uid(kFirstOperand + static_cast<int64_t>(i))
                                        .set_dim(d.shape)
                                        .set_stride(d.strides)
                                        .set_data_type(DataType(facts.operand_dtypes[i]))));
  }
  auto attributes = fe::graph::SDPA_backward_attributes()
                        .set_name("attention_backward")
                        .set_attn_scale(static_cast<float>(call.scale))
                        .set_deterministic_algorithm(options.deterministic);
  if (call.causal) {
    attributes.set_diagonal_alignment(fe::DiagonalAlignment_t::TOP_LEFT)
        .set_diagonal_band_right_bound(0);
  }
  if (HasBias(call, facts)) attributes.set_bias(operands[kBias]);
  if (facts.dropout_p > 0) {
    const size_t seed = FirstOfDropout(call, facts);
    attributes.set_dropout(static_cast<float>(facts.dropout_p), operands[seed], operands[seed + 1]);
  }
  const std::array<TensorRef, 3> results =
      graph.sdpa_backward(operands[kQ], operands[kK], operands[kV], operands[kO], operands[kDO],
                          operands[kLse], attributes);
  for (size_t i = 0; i < results.size(); ++i) {
    const Dims d = DimsOf(call.results[i], /*append=*/false);
    results[i]
        ->set_output(true)
        .set_uid(kFirstResult + static_cast<int64_t>(i))
        .set_dim(d.shape)
        .set_stride(d.strides)
        .set_data_type(DataType(call.dtype));
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<CudnnHandle>> CudnnHandle::Create(const std::string& library,
                                                                 int sm) {
  RG_RETURN_IF_ERROR(LoadLibraries(library));
  std::unique_ptr<CudnnHandle> made(new CudnnHandle);
  made->sm_ = sm;
  RG_RETURN_IF_ERROR(Guarded("creating a handle", [&]() -> absl::Status {
    const size_t version = fe::detail::get_backend_version();
    made->version_ =
        absl::StrFormat("cuDNN %d.%d.%d", version / 10000, version / 100 % 100, version % 100);
    cudnnHandle_t handle = nullptr;
    const cudnnStatus_t status = fe::detail::create_handle(&handle);
    if (status != CUDNN_STATUS_SUCCESS) {
      return absl::UnavailableError(
          absl::StrCat(made->version_, " does not start: ", fe::detail::get_error_string(status)));
    }
    made->native_ = handle;
    return absl::OkStatus();
  }));
  return made;
}

CudnnHandle::~CudnnHandle() {
  if (native_ == nullptr) return;
  Guarded("destroying the handle", [&] {
    fe::detail::destroy_handle(static_cast<cudnnHandle_t>(native_));
    return absl::OkStatus();
  }).IgnoreError();
}

absl::Status CudnnHandle::UseStream(void* stream) {
  if (stream == stream_) return absl::OkStatus();
  const cudnnStatus_t status = fe::detail::set_stream(static_cast<cudnnHandle_t>(native_),
                                                      static_cast<cudaStream_t>(stream));
  if (status != CUDNN_STATUS_SUCCESS) {
    return absl::InternalError(
        absl::StrCat("cuDNN does not take the stream: ", fe::detail::get_error_string(status)));
  }
  stream_ = stream;
  return absl::OkStatus();
}

CudnnAttention::CudnnAttention(const AttentionCall& call, const AttentionFacts& facts,
                               CudnnHandle& handle)
    : handle_(handle), shape_(ShapeOf(call, facts)), graph_(std::make_unique<Graph>()) {}
CudnnAttention::~CudnnAttention() = default;

absl::StatusOr<std::unique_ptr<CudnnAttention>> CudnnAttention::Prepare(
    const AttentionCall& call, const AttentionFacts& facts, const CudnnAttentionOptions& options,
    CudnnHandle& handle) {
  RG_CHECK(call.operands.size() >= kBias && call.results.size() == 3);
  RG_CHECK(facts.operand_dtypes.size() == call.operands.size());
  RG_RETURN_IF_ERROR(CudnnRefusal(call, facts));
  std::unique_ptr<CudnnAttention> made(new CudnnAttention(call, facts, handle));
  made->KeepOffsets(call, facts);
  fe::graph::Graph& graph = made->graph_->graph;
  const auto native = static_cast<cudnnHandle_t>(handle.native());
  const absl::Status built = Guarded("preparing", [&]() -> absl::Status {
    graph.set_sm_version(handle.sm());
    Describe(call, facts, options, graph);
    RG_RETURN_IF_ERROR(FrontendStatus(graph.validate(), "validating"));
    RG_RETURN_IF_ERROR(FrontendStatus(graph.build_operation_graph(native), "building the graph"));
    RG_RETURN_IF_ERROR(
        FrontendStatus(graph.create_execution_plans({fe::HeurMode_t::A}), "asking for plans"));
    std::string refusals;
    for (int64_t i = 0; i < graph.get_execution_plan_count(); ++i) {
      fe::error_t error = graph.build_plan_at_index(i);
      if (error.is_bad()) {
        refusals = FirstLine(error.get_message());
        continue;
      }
      CudnnPlan plan;
      RG_RETURN_IF_ERROR(FrontendStatus(graph.get_plan_name_at_index(i, plan.name), "naming"));
      RG_RETURN_IF_ERROR(FrontendStatus(
          graph.get_workspace_size_plan_at_index(i, plan.workspace_bytes), "sizing"));
      made->plans_.push_back(std::move(plan));
      made->graph_->index.push_back(i);
    }
    if (made->plans_.empty()) {
      return absl::UnimplementedError(absl::StrCat("cuDNN has no plan that builds: ", refusals));
    }
    return made->Take(0);
  });
  if (!built.ok()) {
    return absl::Status(built.code(), absl::StrCat(made->shape_, ": ", built.message()));
  }
  return made;
}

absl::StatusOr<std::unique_ptr<CudnnAttention>> CudnnAttention::Restore(
    const AttentionCall& call, const AttentionFacts& facts, absl::string_view serialized,
    CudnnHandle& handle) {
  std::unique_ptr<CudnnAttention> made(new CudnnAttention(call, facts, handle));
  made->KeepOffsets(call, facts);
  fe::graph::Graph& graph = made->graph_->graph;
  const absl::Status restored = Guarded("restoring a plan", [&]() -> absl::Status {
    const std::vector<uint8_t> bytes(serialized.begin(), serialized.end());
    RG_RETURN_IF_ERROR(
        FrontendStatus(graph.deserialize(static_cast<cudnnHandle_t>(handle.native()), bytes,
                                         /*enforce_precompiled=*/true, /*run_warmup=*/false),
                       "restoring a plan"));
    CudnnPlan plan{.name = "restored"};
    RG_RETURN_IF_ERROR(
        FrontendStatus(graph.get_workspace_size_plan_at_index(0, plan.workspace_bytes), "sizing"));
    made->plans_.push_back(std::move(plan));
    made->graph_->index.push_back(0);
    return absl::OkStatus();
  });
  if (!restored.ok()) {
    return absl::Status(restored.code(), absl::StrCat(made->shape_, ": ", restored.message()));
  }
  return made;
}

void CudnnAttention::KeepOffsets(const AttentionCall& call, const AttentionFacts& facts) {
  for (size_t i = 0; i < call.operands.size(); ++i) {
    operand_offsets_.push_back(call.operands[i].offset * SizeBytes(facts.operand_dtypes[i]));
  }
  for (const AttentionOperand& result : call.results) {
    result_offsets_.push_back(result.offset * SizeBytes(call.dtype));
  }
}

int64_t CudnnAttention::workspace_bytes() const { return plans_[chosen_].workspace_bytes; }

int64_t CudnnAttention::most_workspace_bytes() const {
  int64_t most = 0;
  for (const CudnnPlan& plan : plans_) most = std::max(most, plan.workspace_bytes);
  return most;
}

absl::Status CudnnAttention::Run(void* stream, const AttentionPointers& pointers, void* workspace) {
  return RunPlan(chosen_, stream, pointers, workspace);
}

absl::Status CudnnAttention::RunPlan(size_t plan, void* stream, const AttentionPointers& pointers,
                                     void* workspace) {
  RG_CHECK(pointers.operands.size() == operand_offsets_.size());
  RG_CHECK(pointers.results.size() == result_offsets_.size());
  std::array<void*, kMostPointers> data;
  size_t count = 0;
  for (size_t i = 0; i < operand_offsets_.size(); ++i) {
    data[count++] =
        const_cast<char*>(static_cast<const char*>(pointers.operands[i])) + operand_offsets_[i];
  }
  for (size_t i = 0; i < result_offsets_.size(); ++i) {
    data[count++] = static_cast<char*>(pointers.results[i]) + result_offsets_[i];
  }
  return Guarded("running", [&]() -> absl::Status {
    RG_RETURN_IF_ERROR(handle_.UseStream(stream));
    return FrontendStatus(graph_->graph.execute_plan_at_index(
                              static_cast<cudnnHandle_t>(handle_.native()), data.data(),
                              static_cast<int>(count), workspace, graph_->index[plan]),
                          "running");
  });
}

absl::Status CudnnAttention::Take(size_t plan) {
  // Building a plan that is built makes it the one that is serialized.
  RG_RETURN_IF_ERROR(
      FrontendStatus(graph_->graph.build_plan_at_index(graph_->index[plan]), "taking a plan"));
  chosen_ = plan;
  return absl::OkStatus();
}

absl::Status CudnnAttention::TakeFastest(Timer time, void* stream,
                                         const AttentionPointers& pointers, void* workspace) {
  absl::Status failure = absl::OkStatus();
  int fastest = -1;
  for (size_t plan = 0; plan < plans_.size(); ++plan) {
    const absl::StatusOr<double> microseconds =
        time([&] { return RunPlan(plan, stream, pointers, workspace); });
    if (!microseconds.ok()) {
      failure = microseconds.status();
      continue;
    }
    plans_[plan].microseconds = *microseconds;
    if (fastest < 0 || *microseconds < plans_[fastest].microseconds) {
      fastest = static_cast<int>(plan);
    }
  }
  if (fastest < 0) {
    return absl::Status(failure.code(),
                        absl::StrCat(shape_, ": no plan runs: ", failure.message()));
  }
  return Guarded("taking a plan", [&] { return Take(fastest); });
}

absl::StatusOr<std::string> CudnnAttention::Serialize() const {
  std::vector<uint8_t> bytes;
  RG_RETURN_IF_ERROR(Guarded("serializing", [&] {
    return FrontendStatus(graph_->graph.serialize(bytes, /*serialize_structure=*/false),
                          "serializing");
  }));
  return std::string(bytes.begin(), bytes.end());
}

}  // namespace retrograd

#else  // !RETROGRAD_HAVE_CUDNN

namespace retrograd {

// Without the headers there is no handle, and whoever has no handle calls nothing else.
struct CudnnAttention::Graph {};

absl::StatusOr<std::unique_ptr<CudnnHandle>> CudnnHandle::Create(const std::string&, int) {
  return absl::UnavailableError(
      "this build has no cuDNN: run scripts/cudnn_headers.sh and build again (it fetches the "
      "headers of PyPI's nvidia-cudnn-frontend and nvidia-cudnn-cu13)");
}
CudnnHandle::~CudnnHandle() = default;
absl::Status CudnnHandle::UseStream(void*) { return absl::OkStatus(); }

CudnnAttention::CudnnAttention(const AttentionCall&, const AttentionFacts&, CudnnHandle& handle)
    : handle_(handle) {}
CudnnAttention::~CudnnAttention() = default;
absl::StatusOr<std::unique_ptr<CudnnAttention>> CudnnAttention::Prepare(
    const AttentionCall&, const AttentionFacts&, const CudnnAttentionOptions&, CudnnHandle&) {
  return absl::UnavailableError("this build has no cuDNN");
}
absl::StatusOr<std::unique_ptr<CudnnAttention>> CudnnAttention::Restore(const AttentionCall&,
                                                                        const AttentionFacts&,
                                                                        absl::string_view,
                                                                        CudnnHandle&) {
  return absl::UnavailableError("this build has no cuDNN");
}
int64_t CudnnAttention::workspace_bytes() const { return 0; }
int64_t CudnnAttention::most_workspace_bytes() const { return 0; }
absl::Status CudnnAttention::Run(void*, const AttentionPointers&, void*) {
  return absl::UnavailableError("this build has no cuDNN");
}
absl::Status CudnnAttention::RunPlan(size_t, void*, const AttentionPointers&, void*) {
  return absl::UnavailableError("this build has no cuDNN");
}
absl::Status CudnnAttention::TakeFastest(Timer, void*, const AttentionPointers&, void*) {
  return absl::UnavailableError("this build has no cuDNN");
}
absl::StatusOr<std::string> CudnnAttention::Serialize() const {
  return absl::UnavailableError("this build has no cuDNN");
}

}  // namespace retrograd

#endif  // RETROGRAD_HAVE_CUDNN
