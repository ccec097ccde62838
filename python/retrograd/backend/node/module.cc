// The Python module of the node: where it is put into autograd's graph.
#include <torch/csrc/autograd/anomaly_mode.h>
#include <torch/csrc/autograd/python_variable.h>

#include <map>

#include "direct_forward.h"

namespace retrograd {
namespace {

// The node of a function of PyTorch's compiler that a result leads to, and its Python object.
struct Compiled {
  std::shared_ptr<Node> node;
  py::object context;
};

Compiled CompiledOf(const py::handle& result) {
  const at::Tensor& tensor = THPVariable_Unpack(result.ptr());
  const torch::autograd::AutogradMeta* meta = torch::autograd::impl::get_autograd_meta(tensor);
  if (meta == nullptr || meta->grad_fn_ == nullptr) return {};
  // A function of Python is its own object there; the attribute is that of compiled ones.
  py::object context = result.attr("grad_fn");
  if (!py::hasattr(context, kSavedBeside)) return {};
  return {meta->grad_fn_, std::move(context)};
}

// The sizes that the compiled function saved; nothing where one is no integer.
std::optional<std::vector<int64_t>> SizesOf(const py::object& context) {
  std::vector<int64_t> sizes;
  for (const py::handle size : py::getattr(context, kSavedSizes, py::tuple())) {
    if (!PyLong_CheckExact(size.ptr())) return std::nullopt;
    sizes.push_back(size.cast<int64_t>());
  }
  return sizes;
}

// The results of the compiled function by their numbers there; undefined where one is missing.
Tensors ResultsOf(const Node& node, const Tensors& given) {
  Tensors results(node.num_inputs());
  for (const at::Tensor& tensor : given) {
    const auto* meta = torch::autograd::impl::get_autograd_meta(tensor);
    if (meta != nullptr && meta->grad_fn_.get() == &node && meta->output_nr_ < results.size()) {
      results[meta->output_nr_] = tensor;
    }
  }
  return results;
}

// Why the results keep the compiled function's node; "" if they need not. given: all that the
// function returned.
std::string Unsuited(Node& node, const Tensors& given, const Tensors& results) {
  if (HasHooks(node)) return "the compiled function has a hook";
  for (const at::Tensor& tensor : given) {
    const auto* meta = torch::autograd::impl::get_autograd_meta(tensor);
    if (meta == nullptr || !IsView(tensor) || !tensor.requires_grad()) continue;
    return "a result is a view";
  }
  for (size_t i = 0; i < results.size(); ++i) {
    const bool used = !node.input_metadata(i).was_default_constructed();
    if (results[i].defined() ? !IsOrdinary(results[i]) : used) {
      return "a result is a tensor subclass, or an input was written";
    }
  }
  return "";
}

// Lets the results of a compiled function lead to a DirectNode. Returns why not, or "".
std::string Attach(const std::shared_ptr<Binding>& binding, const py::sequence& returned) {
  if (torch::autograd::AnomalyMode::is_enabled()) return "anomaly mode is on";
  Tensors tensors;
  Compiled compiled;
  for (const py::handle item : returned) {
    if (!THPVariable_Check(item.ptr())) continue;
    tensors.push_back(THPVariable_Unpack(item.ptr()));
    if (compiled.node == nullptr) compiled = CompiledOf(item);
  }
  if (compiled.node == nullptr) return "no result leads to the compiled function";
  const Tensors results = ResultsOf(*compiled.node, tensors);
  std::string reason = Unsuited(*compiled.node, tensors, results);
  if (!reason.empty()) return reason;

  std::optional<std::vector<int64_t>> sizes = SizesOf(compiled.context);
  if (!sizes) return "a size that was saved is no integer";

  auto beside = compiled.context.attr(kSavedBeside).cast<Tensors>();
  compiled.context.attr(kSavedBeside) = py::list();
  std::shared_ptr<DirectNode> ours(
      new DirectNode(compiled.node->sequence_nr(), edge_list(compiled.node->next_edges()),
                     std::make_unique<FunctionState>(compiled.node, compiled.context.ptr(),
                                                     std::move(beside), *std::move(sizes)),
                     binding),
      torch::autograd::deleteNode);
  for (size_t i = 0; i < results.size(); ++i) {
    if (!results[i].defined()) {
      ours->add_input_metadata(Node::undefined_input());
      continue;
    }
    ours->add_input_metadata(results[i]);
    torch::autograd::impl::set_gradient_edge(results[i], Edge(ours, i));
  }
  return "";
}

using LayoutTuple = std::tuple<at::ScalarType, std::vector<int64_t>, std::vector<int64_t>>;

Layout MakeLayout(const LayoutTuple& parts) {
  return {std::get<0>(parts), std::get<1>(parts), std::get<2>(parts)};
}

// By phase: the saved tensors that no later phase reads. input_last: by operand.
std::vector<std::vector<size_t>> LastOfPhase(const DirectPlan& plan,
                                             const std::vector<uint32_t>& input_last) {
  std::map<size_t, uint32_t> last;
  for (size_t i = 0; i < plan.operands.size(); ++i) {
    if (plan.operands[i].from != From::kSaved) continue;
    uint32_t& phase = last[plan.operands[i].index];
    phase = std::max(phase, input_last[i]);
  }
  std::vector<std::vector<size_t>> by_phase(plan.num_phases);
  for (const auto& [number, phase] : last) by_phase[phase].push_back(number);
  return by_phase;
}

std::shared_ptr<ForwardPlan> MakeForwardPlan(py::object forward, py::object backward,
                                             std::vector<bool> requires_grad,
                                             std::vector<bool> has_gradient,
                                             std::vector<size_t> written,
                                             std::vector<bool> differentiable, size_t num_outputs,
                                             const std::pair<size_t, size_t>& checked,
                                             const std::pair<size_t, size_t>& beside) {
  auto plan = std::make_shared<ForwardPlan>();
  plan->forward = Shared(std::move(forward));
  plan->backward = Shared(std::move(backward));
  plan->requires_grad = std::move(requires_grad);
  plan->has_gradient = std::move(has_gradient);
  plan->written = std::move(written);
  plan->differentiable = std::move(differentiable);
  plan->num_outputs = num_outputs;
  plan->checked = {checked.first, checked.second};
  plan->beside = {beside.first, beside.second};
  return plan;
}

std::shared_ptr<DirectPlan> MakePlan(
    std::string what, size_t held_bytes, uintptr_t run, uintptr_t last_error, uintptr_t executable,
    const std::vector<std::tuple<size_t, uint32_t, uint32_t>>& blocks, size_t block_alignment,
    uint32_t num_phases, const std::vector<uint32_t>& input_last,
    std::vector<uint32_t> result_first, at::Device device,
    const std::vector<std::tuple<bool, size_t, LayoutTuple, uintptr_t, bool>>& operands,
    std::vector<size_t> absent, Tensors constants,
    const std::vector<std::optional<LayoutTuple>>& results, std::vector<int> result_of_edge,
    py::object before, py::object keep) {
  auto plan = std::make_shared<DirectPlan>(device);
  plan->what = std::move(what);
  plan->held_bytes = held_bytes;
  plan->run = reinterpret_cast<decltype(plan->run)>(run);
  plan->last_error = reinterpret_cast<decltype(plan->last_error)>(last_error);
  plan->executable = reinterpret_cast<void*>(executable);
  for (const auto& [bytes, first, last] : blocks) plan->blocks.push_back({bytes, first, last});
  plan->block_alignment = block_alignment;
  plan->num_phases = num_phases;
  plan->result_first = std::move(result_first);
  for (const auto& [saved, index, layout, alignment, read] : operands) {
    plan->operands.push_back(
        {saved ? From::kSaved : From::kTangent, index, MakeLayout(layout), alignment, read});
  }
  plan->last_of_phase = LastOfPhase(*plan, input_last);
  plan->absent = std::move(absent);
  plan->constants = std::move(constants);
  for (const auto& result : results) {
    plan->results.push_back(result ? std::optional(MakeLayout(*result)) : std::nullopt);
  }
  plan->result_of_edge = std::move(result_of_edge);
  plan->before = Shared(std::move(before));
  plan->keep = Shared(std::move(keep));
  return plan;
}

}  // namespace
}  // namespace retrograd

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  using namespace retrograd;
  py::class_<DirectPlan, std::shared_ptr<DirectPlan>>(module, "DirectPlan")
      .def(py::init(&MakePlan), py::kw_only(), py::arg("what"), py::arg("held_bytes"),
           py::arg("run"), py::arg("last_error"), py::arg("executable"), py::arg("blocks"),
           py::arg("block_alignment"), py::arg("num_phases"), py::arg("input_last"),
           py::arg("result_first"), py::arg("device"), py::arg("operands"), py::arg("absent"),
           py::arg("constants"), py::arg("results"), py::arg("result_of_edge"), py::arg("before"),
           py::arg("keep"));
  py::class_<Binding, std::shared_ptr<Binding>>(module, "Binding")
      .def(py::init<py::object, size_t, size_t>(), py::arg("learner"), py::arg("most"),
           py::arg("most_bytes"))
      .def_property_readonly("hopeful", &Binding::hopeful)
      .def_property_readonly("plans", &Binding::plans);
  py::class_<ForwardPlan, std::shared_ptr<ForwardPlan>>(module, "ForwardPlan")
      .def(py::init(&MakeForwardPlan), py::kw_only(), py::arg("forward"), py::arg("backward"),
           py::arg("requires_grad"), py::arg("has_gradient"), py::arg("written"),
           py::arg("differentiable"), py::arg("num_outputs"), py::arg("checked"),
           py::arg("beside"));
  module.def("call_forward", &CallForward, py::arg("binding"), py::arg("plan"),
             py::arg("arguments"));
  module.def("forwards", [] { return direct_forwards.load(); });
  module.def("attach", &Attach, py::arg("binding"), py::arg("results"));
  module.def(
      "watch", [](bool on) { watched = on; }, py::arg("on"));
  module.def("host_ns", [] {
    constexpr const char* kNames[kHostParts] = {"look_up", "prepare", "memory", "issue",
                                                "gradients"};
    std::map<std::string, int64_t> parts;
    for (size_t i = 0; i < kHostParts; ++i) parts[kNames[i]] = host_ns[i].load();
    return parts;
  });
  module.def("last_run_ns", [] { return std::tuple(last_begin_ns.load(), last_end_ns.load()); });
  module.def("counts",
             [] { return std::tuple(direct_runs.load(), direct_gradients.load(), let_go.load()); });
}
