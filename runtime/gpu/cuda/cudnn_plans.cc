#include "runtime/gpu/cuda/cudnn_plans.h"

#include <algorithm>
#include <array>
#include <future>
#include <iterator>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "graph/base/status.h"
#include "runtime/gpu/cuda/cudnn_frontend_calls.h"

namespace retrograd {

namespace {

// Engines of cuDNN's fallback list stand last. Of 245 gradients of convolutions, all plans timed on
// an H200, 18 went to a plan behind the first eight, and 12 of these to one of the last two.
constexpr size_t kLastPlans = 2;

}  // namespace

std::vector<size_t> PlansToBuild(size_t most, const std::vector<bool>& failed) {
  const size_t first = most > kLastPlans ? most - kLastPlans : 1;
  std::vector<size_t> plans;
  for (size_t i = 0; i < failed.size(); ++i) {
    const bool is_last = i + kLastPlans >= failed.size();
    if (failed[i] || (most > 0 && plans.size() >= (is_last ? most : first))) continue;
    plans.push_back(i);
  }
  return plans;
}

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
constexpr size_t kBuildersAtOnce = 8;  // threads

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

// Empty where the plan was built, else why not. Any thread's.
std::string BuildOne(fe::graph::Graph& graph, size_t plan, const CudnnContext& context) {
  const CurrentContext current(context.driver, context.context);
  if (!current.status().ok()) return std::string(current.status().message());
  const absl::Status built = CudnnGuarded("building a plan", [&]() -> absl::Status {
    fe::error_t error = graph.build_plan_at_index(static_cast<int64_t>(plan));
    if (error.is_good()) return absl::OkStatus();
    return absl::UnimplementedError(CudnnFirstLine(error.get_message()));
  });
  return std::string(built.message());
}

// Most of cuDNN's time to build a plan goes to compiling kernels or loading them from its files,
// which it does for several plans of a graph at once if several threads ask for it.
std::vector<std::string> BuildAtOnce(fe::graph::Graph& graph, const std::vector<size_t>& plans,
                                     const CudnnContext& context) {
  std::vector<std::string> refusals;
  for (size_t begin = 0; begin < plans.size(); begin += kBuildersAtOnce) {
    std::vector<std::future<std::string>> building;
    for (size_t i = begin; i < std::min(begin + kBuildersAtOnce, plans.size()); ++i) {
      building.push_back(
          std::async(std::launch::async, [&, i] { return BuildOne(graph, plans[i], context); }));
    }
    for (std::future<std::string>& one : building) refusals.push_back(one.get());
  }
  return refusals;
}

}  // namespace

CudnnPlans::CudnnPlans(const CudnnRequest& request, CudnnHandle& handle)
    : handle_(handle), shape_(request.shape), graph_(std::make_unique<Graph>()) {
  for (const CudnnStored& stored : request.operands) operand_offsets_.push_back(stored.offset);
  for (const CudnnStored& stored : request.results) result_offsets_.push_back(stored.offset);
}
CudnnPlans::~CudnnPlans() = default;

absl::Status CudnnPlans::Build(int64_t most_plans, absl::string_view only,
                               const CudnnContext& context) {
  fe::graph::Graph& graph = graph_->graph;
  const auto count = static_cast<size_t>(graph.get_execution_plan_count());
  std::vector<std::string> names(count);
  std::vector<bool> failed(count), built(count);
  std::string refusal = only.empty() ? "" : absl::StrCat("none is called ", only);
  for (size_t i = 0; i < count; ++i) {
    RG_RETURN_IF_ERROR(CudnnFrontendStatus(
        graph.get_plan_name_at_index(static_cast<int64_t>(i), names[i]), "naming"));
    failed[i] = !only.empty() && names[i] != only;
  }
  std::vector<size_t> wanted;
  while (true) {
    wanted = PlansToBuild(only.empty() ? static_cast<size_t>(most_plans) : 0, failed);
    std::vector<size_t> missing;
    absl::c_copy_if(wanted, std::back_inserter(missing), [&](size_t i) { return !built[i]; });
    if (missing.empty()) break;
    const std::vector<std::string> refusals = BuildAtOnce(graph, missing, context);
    for (size_t k = 0; k < missing.size(); ++k) {
      (refusals[k].empty() ? built : failed)[missing[k]] = true;
      if (!refusals[k].empty()) refusal = refusals[k];
    }
  }
  for (const size_t i : wanted) {
    CudnnPlan plan{.name = names[i]};
    const auto index = static_cast<int64_t>(i);
    RG_RETURN_IF_ERROR(CudnnFrontendStatus(
        graph.get_workspace_size_plan_at_index(index, plan.workspace_bytes), "sizing"));
    plans_.push_back(std::move(plan));
    graph_->index.push_back(index);
  }
  if (!plans_.empty()) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat("cuDNN has no plan that builds: ", refusal));
}

absl::StatusOr<std::unique_ptr<CudnnPlans>> CudnnPlans::Prepare(const CudnnRequest& request,
                                                                const CudnnContext& context,
                                                                CudnnHandle& handle,
                                                                absl::string_view only) {
  RG_CHECK(request.operands.size() + request.results.size() <= kMostPointers);
  std::unique_ptr<CudnnPlans> made(new CudnnPlans(request, handle));
  fe::graph::Graph& graph = made->graph_->graph;
  const auto native = static_cast<cudnnHandle_t>(handle.native());
  const auto lock = handle.Lock();
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
    RG_RETURN_IF_ERROR(made->Build(request.filter.most_plans, only, context));
    return made->TakeAlone(0);
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
  const auto lock = handle.Lock();
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
  const auto lock = handle_.Lock();
  return CudnnGuarded("running", [&]() -> absl::Status {
    RG_RETURN_IF_ERROR(handle_.UseStream(stream));
    return CudnnFrontendStatus(graph_->graph.execute_plan_at_index(
                                   static_cast<cudnnHandle_t>(handle_.native()), data.data(),
                                   static_cast<int>(count), workspace, graph_->index[chosen_]),
                               "running");
  });
}

absl::Status CudnnPlans::Take(size_t plan) {
  const auto lock = handle_.Lock();
  return TakeAlone(plan);
}

absl::Status CudnnPlans::TakeAlone(size_t plan) {
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
absl::StatusOr<std::unique_ptr<CudnnPlans>> CudnnPlans::Prepare(const CudnnRequest&,
                                                                const CudnnContext&, CudnnHandle&,
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
