#include "runtime/gpu/cuda/cudnn_plans.h"

#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "graph/base/status.h"
#include "runtime/gpu/cuda/cudnn_frontend_calls.h"

namespace retrograd {

int64_t CudnnPlans::workspace_bytes() const { return plans_[chosen_].workspace_bytes; }

int64_t CudnnPlans::most_workspace_bytes() const {
  int64_t most = 0;
  for (const CudnnPlan& plan : plans_) most = std::max(most, plan.workspace_bytes);
  return most;
}

std::string CudnnPlans::Describe() const {
  std::string text = absl::StrFormat("cuDNN, plan %d of %d", chosen_ + 1, plans_.size());
  for (const CudnnPlan& plan : plans_) {
    absl::StrAppendFormat(&text, "\n  %s: %.1f us, workspace %d bytes", plan.name,
                          plan.microseconds, plan.workspace_bytes);
  }
  return text;
}

}  // namespace retrograd

#ifdef RETROGRAD_HAVE_CUDNN

namespace retrograd {
namespace fe = cudnn_frontend;

struct CudnnPlans::Graph {
  fe::graph::Graph graph;
  std::vector<int64_t> index;  // of each of our plans, in the graph's list
};

namespace {

constexpr size_t kMostPointers = 16;

// Engines of cuDNN's fallback list stand last. Of 245 gradients of convolutions, all plans timed on
// an H200, 18 went to a plan behind the first eight, and 12 of these to one of the last two.
constexpr int64_t kLastPlans = 2;

void Apply(const CudnnPlanFilter& filter, fe::graph::Graph& graph) {
  using Note = fe::NumericalNote_t;
  std::vector<Note> unwanted;
  if (filter.deterministic) unwanted.push_back(Note::NONDETERMINISTIC);
  if (filter.full_precision) {
    unwanted.push_back(Note::REDUCED_PRECISION_REDUCTION);
    unwanted.push_back(Note::DOWN_CONVERT_INPUTS);
  }
  if (!filter.tensor_cores) unwanted.push_back(Note::TENSOR_CORE);
  if (!unwanted.empty()) graph.deselect_numeric_notes(unwanted);
  if (filter.most_workspace_bytes >= 0) {
    graph.deselect_workspace_greater_than(filter.most_workspace_bytes);
  }
}

}  // namespace

CudnnPlans::CudnnPlans(const CudnnRequest& request, CudnnHandle& handle)
    : handle_(handle), shape_(request.shape), graph_(std::make_unique<Graph>()) {
  for (const CudnnStored& stored : request.operands) operand_offsets_.push_back(stored.offset);
  for (const CudnnStored& stored : request.results) result_offsets_.push_back(stored.offset);
}
CudnnPlans::~CudnnPlans() = default;

absl::Status CudnnPlans::Build(int64_t most_plans, absl::string_view only) {
  fe::graph::Graph& graph = graph_->graph;
  std::string refusal = only.empty() ? "" : absl::StrCat("none is called ", only);
  const int64_t count = graph.get_execution_plan_count();
  for (int64_t i = 0; i < count; ++i) {
    const int64_t first = most_plans - kLastPlans, built = static_cast<int64_t>(plans_.size());
    const bool last = i >= count - kLastPlans;
    if (only.empty() && most_plans > 0 &&
        built >= (last ? most_plans : std::max<int64_t>(first, 1)))
      continue;
    CudnnPlan plan;
    RG_RETURN_IF_ERROR(CudnnFrontendStatus(graph.get_plan_name_at_index(i, plan.name), "naming"));
    if (!only.empty() && plan.name != only) continue;
    fe::error_t error = graph.build_plan_at_index(i);
    if (error.is_bad()) {
      refusal = CudnnFirstLine(error.get_message());
      continue;
    }
    RG_RETURN_IF_ERROR(CudnnFrontendStatus(
        graph.get_workspace_size_plan_at_index(i, plan.workspace_bytes), "sizing"));
    plans_.push_back(std::move(plan));
    graph_->index.push_back(i);
  }
  if (!plans_.empty()) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat("cuDNN has no plan that builds: ", refusal));
}

absl::StatusOr<std::unique_ptr<CudnnPlans>> CudnnPlans::Prepare(const CudnnRequest& request,
                                                                CudnnHandle& handle,
                                                                absl::string_view only) {
  RG_CHECK(request.operands.size() + request.results.size() <= kMostPointers);
  std::unique_ptr<CudnnPlans> made(new CudnnPlans(request, handle));
  fe::graph::Graph& graph = made->graph_->graph;
  const auto native = static_cast<cudnnHandle_t>(handle.native());
  std::vector<fe::HeurMode_t> modes = {fe::HeurMode_t::A};
  if (request.filter.fallback_engines) modes.push_back(fe::HeurMode_t::FALLBACK);
  const absl::Status built = CudnnGuarded("preparing", [&]() -> absl::Status {
    graph.set_sm_version(handle.sm());
    request.describe(graph);
    RG_RETURN_IF_ERROR(CudnnFrontendStatus(graph.validate(), "validating"));
    RG_RETURN_IF_ERROR(
        CudnnFrontendStatus(graph.build_operation_graph(native), "building the graph"));
    RG_RETURN_IF_ERROR(
        CudnnFrontendStatus(graph.create_execution_plans(modes), "asking for plans"));
    Apply(request.filter, graph);
    RG_RETURN_IF_ERROR(made->Build(request.filter.most_plans, only));
    return made->Take(0);
  });
  if (!built.ok()) {
    return absl::Status(built.code(), absl::StrCat(request.shape, ": ", built.message()));
  }
  return made;
}

absl::StatusOr<std::unique_ptr<CudnnPlans>> CudnnPlans::Restore(const CudnnRequest& request,
                                                                absl::string_view serialized,
                                                                CudnnHandle& handle) {
  std::unique_ptr<CudnnPlans> made(new CudnnPlans(request, handle));
  fe::graph::Graph& graph = made->graph_->graph;
  const absl::Status restored = CudnnGuarded("restoring a plan", [&]() -> absl::Status {
    const std::vector<uint8_t> bytes(serialized.begin(), serialized.end());
    RG_RETURN_IF_ERROR(
        CudnnFrontendStatus(graph.deserialize(static_cast<cudnnHandle_t>(handle.native()), bytes,
                                              /*enforce_precompiled=*/true, /*run_warmup=*/false),
                            "restoring a plan"));
    CudnnPlan plan{.name = "restored"};
    RG_RETURN_IF_ERROR(CudnnFrontendStatus(
        graph.get_workspace_size_plan_at_index(0, plan.workspace_bytes), "sizing"));
    made->plans_.push_back(std::move(plan));
    made->graph_->index.push_back(0);
    return absl::OkStatus();
  });
  if (!restored.ok()) {
    return absl::Status(restored.code(), absl::StrCat(request.shape, ": ", restored.message()));
  }
  return made;
}

absl::Status CudnnPlans::Run(void* stream, const CallPointers& pointers, void* workspace) {
  RG_CHECK(pointers.operands.size() == operand_offsets_.size());
  RG_CHECK(pointers.results.size() == result_offsets_.size());
  std::array<void*, kMostPointers> data;  // in the order of the tensors' ids
  size_t count = 0;
  for (size_t i = 0; i < operand_offsets_.size(); ++i) {
    data[count++] =
        const_cast<char*>(static_cast<const char*>(pointers.operands[i])) + operand_offsets_[i];
  }
  for (size_t i = 0; i < result_offsets_.size(); ++i) {
    data[count++] = static_cast<char*>(pointers.results[i]) + result_offsets_[i];
  }
  return CudnnGuarded("running", [&]() -> absl::Status {
    RG_RETURN_IF_ERROR(handle_.UseStream(stream));
    return CudnnFrontendStatus(graph_->graph.execute_plan_at_index(
                                   static_cast<cudnnHandle_t>(handle_.native()), data.data(),
                                   static_cast<int>(count), workspace, graph_->index[chosen_]),
                               "running");
  });
}

absl::Status CudnnPlans::Take(size_t plan) {
  // Building a plan that is built makes it the one that is serialized.
  return CudnnGuarded("taking a plan", [&]() -> absl::Status {
    RG_RETURN_IF_ERROR(CudnnFrontendStatus(graph_->graph.build_plan_at_index(graph_->index[plan]),
                                           "taking a plan"));
    chosen_ = plan;
    return absl::OkStatus();
  });
}

absl::StatusOr<std::string> CudnnPlans::Serialize() const {
  std::vector<uint8_t> bytes;
  RG_RETURN_IF_ERROR(CudnnGuarded("serializing", [&] {
    return CudnnFrontendStatus(graph_->graph.serialize(bytes, /*serialize_structure=*/false),
                               "serializing");
  }));
  return std::string(bytes.begin(), bytes.end());
}

}  // namespace retrograd

#else  // !RETROGRAD_HAVE_CUDNN

namespace retrograd {
namespace {

absl::Status NoCudnn() { return absl::UnavailableError("this build has no cuDNN"); }

}  // namespace

// Nobody has a handle to call these with.
struct CudnnPlans::Graph {};

CudnnPlans::CudnnPlans(const CudnnRequest&, CudnnHandle& handle) : handle_(handle) {}
CudnnPlans::~CudnnPlans() = default;
absl::StatusOr<std::unique_ptr<CudnnPlans>> CudnnPlans::Prepare(const CudnnRequest&, CudnnHandle&,
                                                                absl::string_view) {
  return NoCudnn();
}
absl::StatusOr<std::unique_ptr<CudnnPlans>> CudnnPlans::Restore(const CudnnRequest&,
                                                                absl::string_view, CudnnHandle&) {
  return NoCudnn();
}
absl::Status CudnnPlans::Run(void*, const CallPointers&, void*) { return NoCudnn(); }
absl::Status CudnnPlans::Take(size_t) { return NoCudnn(); }
absl::StatusOr<std::string> CudnnPlans::Serialize() const { return NoCudnn(); }

}  // namespace retrograd

#endif  // RETROGRAD_HAVE_CUDNN
