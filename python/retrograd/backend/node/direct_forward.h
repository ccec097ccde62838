// A compiled function's forward without PyTorch's autograd.Function around it.
//
// That one wraps, looks at and saves each argument, result and saved tensor in Python, which takes
// longer than the forward itself where a model has hundreds of parameters and little work.
#pragma once

#include <torch/csrc/autograd/anomaly_mode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include <ATen/SavedTensorHooks.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>

#include <atomic>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "direct_node.h"
#include "saved_state.h"

namespace retrograd {

// Forwards that ran so, in this process.
inline std::atomic<int64_t> direct_forwards = 0;

// Numbers from the first to the one before the last.
struct Range {
  size_t begin = 0, end = 0;
  size_t size() const { return end - begin; }
};

// How a compiled function's forward is called: the same in all its calls.
struct ForwardPlan {
  // Takes the list of all arguments, which it may empty, and returns the results and behind them
  // what the backward needs.
  std::shared_ptr<PyObject> forward;
  std::shared_ptr<PyObject> backward;  // as OwnState takes it
  std::vector<bool> requires_grad;     // by argument
  std::vector<bool> has_gradient;      // by argument: the backward makes one
  std::vector<size_t> written;         // arguments that the forward writes
  std::vector<bool> differentiable;    // by result
  size_t num_outputs = 0;              // of the forward
  Range checked, beside;               // of its outputs: those saved with and without a check
};

// Whether nothing but autograd and a device stands behind the tensor: no subclass, no transform.
inline bool IsOrdinary(const at::Tensor& tensor) {
  constexpr c10::DispatchKeySet kTransforms({c10::DispatchKey::Functionalize,
                                             c10::DispatchKey::FuncTorchBatched,
                                             c10::DispatchKey::FuncTorchGradWrapper});
  const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  return !impl->is_python_dispatch() && !tensor.is_nested() && tensor.layout() == at::kStrided &&
         !impl->key_set().has_any(kTransforms);
}

inline bool IsView(const at::Tensor& tensor) {
  return torch::autograd::impl::get_view_autograd_meta(tensor) != nullptr;
}

// Whether nothing is on that wants to see PyTorch's function.
inline bool Unwatched() {
  return at::GradMode::is_enabled() && !c10::InferenceMode::is_enabled() &&
         !torch::autograd::AnomalyMode::is_enabled() &&
         !c10::impl::TorchDispatchModeTLS::any_modes_set() &&
         !at::SavedTensorDefaultHooks::get_hooks().has_value();
}

// The arguments, if they are those that the plan was made for: nothing else.
inline std::optional<Tensors> ArgumentsOf(const ForwardPlan& plan, const py::tuple& given) {
  if (given.size() != plan.requires_grad.size()) return std::nullopt;
  Tensors arguments;
  arguments.reserve(given.size());
  for (size_t i = 0; i < given.size(); ++i) {
    PyObject* const object = PyTuple_GET_ITEM(given.ptr(), static_cast<Py_ssize_t>(i));
    if (!THPVariable_CheckExact(object)) return std::nullopt;
    const at::Tensor& tensor = THPVariable_Unpack(object);
    if (!IsOrdinary(tensor) || tensor.is_inference()) return std::nullopt;
    if (tensor.requires_grad() != plan.requires_grad[i]) return std::nullopt;
    const auto* meta = torch::autograd::impl::get_autograd_meta(tensor);
    if (meta != nullptr && meta->fw_grad_ != nullptr) return std::nullopt;
    arguments.push_back(tensor);
  }
  return arguments;
}

inline edge_list EdgesOf(const ForwardPlan& plan, const Tensors& arguments) {
  edge_list edges(arguments.size());
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (plan.has_gradient[i]) edges[i] = torch::autograd::impl::gradient_edge(arguments[i]);
  }
  return edges;
}

// What the plan's forward returns for the arguments.
inline py::list Outputs(const ForwardPlan& plan, const py::tuple& given) {
  const at::AutoGradMode no_grad(false);
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  py::list arguments(given);
  py::object returned = py::handle(plan.forward.get())(std::move(arguments));
  py::list outputs(std::move(returned));
  if (outputs.size() != plan.num_outputs) {
    throw std::runtime_error("retrograd: a compiled forward returned " +
                             std::to_string(outputs.size()) + " tensors in place of " +
                             std::to_string(plan.num_outputs));
  }
  return outputs;
}

// A tensor of that memory that autograd knows no base of.
inline at::Tensor Alone(const py::handle& object) {
  if (!THPVariable_Check(object.ptr())) {
    throw std::runtime_error("retrograd: a compiled forward returned what is no tensor");
  }
  const at::Tensor& tensor = THPVariable_Unpack(object.ptr());
  return IsView(tensor) ? tensor.detach() : tensor;
}

inline std::unique_ptr<SavedState> StateOf(const ForwardPlan& plan, const py::list& outputs,
                                           const std::shared_ptr<DirectNode>& node) {
  std::vector<SavedVariable> checked;
  checked.reserve(plan.checked.size());
  for (size_t i = plan.checked.begin; i < plan.checked.end; ++i) {
    const at::Tensor tensor = Alone(outputs[i]);
    checked.emplace_back(tensor, /*is_output=*/tensor.grad_fn() == node);
  }
  Tensors beside;
  beside.reserve(plan.beside.size());
  for (size_t i = plan.beside.begin; i < plan.beside.end; ++i) {
    at::Tensor tensor = Alone(outputs[i]);
    // A result would hold the node that holds it.
    beside.push_back(tensor.grad_fn() == node ? tensor.detach() : std::move(tensor));
  }
  return std::make_unique<OwnState>(std::move(checked), std::move(beside), plan.backward);
}

// The results, which lead to the node.
inline py::list Results(const ForwardPlan& plan, const py::list& outputs,
                        const std::shared_ptr<DirectNode>& node) {
  py::list results(plan.differentiable.size());
  for (size_t i = 0; i < plan.differentiable.size(); ++i) {
    at::Tensor result = Alone(outputs[i]);
    if (plan.differentiable[i]) {
      const uint32_t number = node->add_input_metadata(result);
      torch::autograd::impl::set_gradient_edge(result, Edge(node, number));
    } else {
      // A CUDA graph's forward returns the same tensors each time, with what was made of them
      // since.
      if (result.requires_grad()) result.detach_();
      node->add_input_metadata(Node::undefined_input());
    }
    results[i] = py::reinterpret_steal<py::object>(THPVariable_Wrap(std::move(result)));
  }
  return results;
}

// Calls the function. None where PyTorch's way is to be taken: nothing has run then.
inline py::object CallForward(const std::shared_ptr<Binding>& binding, const ForwardPlan& plan,
                              const py::tuple& given) {
  if (!Unwatched()) return py::none();
  AskForArguments(given.ptr());
  const std::optional<Tensors> arguments = ArgumentsOf(plan, given);
  if (!arguments) return py::none();
  for (const size_t i : plan.written) {
    torch::autograd::impl::bump_version((*arguments)[i]);
  }
  const py::list outputs = Outputs(plan, given);
  const std::shared_ptr<DirectNode> node(new DirectNode(EdgesOf(plan, *arguments), binding),
                                         torch::autograd::deleteNode);
  py::list results = Results(plan, outputs, node);
  node->Keep(StateOf(plan, outputs, node));
  ++direct_forwards;
  return results;
}

}  // namespace retrograd
