// What a call of a compiled function leaves for its backward, and PyTorch's own way to run that.
#pragma once

#include <torch/csrc/autograd/python_function.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/utils/pybind.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ahead.h"
#include "direct_plan.h"

namespace retrograd {

using torch::autograd::edge_list;
using torch::autograd::Node;
using torch::autograd::SavedVariable;
using torch::autograd::variable_list;

// The attribute of a compiled function's context that holds the tensors saved beside autograd's.
inline constexpr const char* kSavedBeside = "_tensors_no_vc_check";
// And the one that holds the sizes saved, where the graph is dynamic.
inline constexpr const char* kSavedSizes = "symints";

// A Python object that C++ threads own; null for None.
inline std::shared_ptr<PyObject> Shared(py::object object) {
  if (object.is_none()) return nullptr;
  return {object.release().ptr(), [](PyObject* owned) {
            if (!Py_IsInitialized()) return;
            const py::gil_scoped_acquire gil;
            Py_DECREF(owned);
          }};
}

class SavedState {
 public:
  virtual ~SavedState() = default;

  // The saved tensors, in the order in which the compiled backward takes them. node: the one that
  // they are saved for. Throws PyTorch's error for a tensor that was written since.
  Tensors Unpack(const std::shared_ptr<Node>& node) {
    AskFor(beside_);
    auto& checked = Checked();
    Tensors saved;
    saved.reserve(checked.size() + beside_.size());
    for (const auto& variable : checked) saved.push_back(variable.unpack(Owner(node)));
    saved.insert(saved.end(), beside_.begin(), beside_.end());
    return saved;
  }

  // The integers that were saved: sizes of a dynamic graph.
  virtual const std::vector<int64_t>& sizes() const = 0;

  // Lets go of one of them, by its number there. Needs Python's lock, as what follows does.
  void LetGo(size_t number) {
    auto& checked = Checked();
    if (number < checked.size()) {
      checked[number].reset_data();
    } else {
      beside_[number - checked.size()].reset();
    }
  }

  // Lets go of all.
  virtual void Release() = 0;

  // The compiled function's own way, which raises PyTorch's errors. One gradient for each edge.
  virtual variable_list ByPython(const std::shared_ptr<Node>& node, variable_list&& tangents) = 0;

  // How often an edge's node is held by this graph.
  virtual long references() const = 0;

  // The edges that the node has left.
  virtual void KeepEdges(const edge_list&) {}

 protected:
  explicit SavedState(Tensors beside) : beside_(std::move(beside)) {}

  // The tensors whose versions autograd checks: the first of the saved ones.
  virtual std::vector<SavedVariable>& Checked() = 0;
  virtual const std::shared_ptr<Node>& Owner(const std::shared_ptr<Node>& node) const = 0;

  Tensors beside_;  // the others
};

// In PyTorch's node of the compiled function, whose place another one takes.
class FunctionState : public SavedState {
 public:
  // context: the node's Python object, which it owns.
  FunctionState(std::shared_ptr<Node> function, PyObject* context, Tensors beside,
                std::vector<int64_t> sizes)
      : SavedState(std::move(beside)),
        function_(std::move(function)),
        context_(context),
        sizes_(std::move(sizes)) {}

  const std::vector<int64_t>& sizes() const override { return sizes_; }

  void Release() override {
    function_->release_variables();
    beside_.clear();
    released_ = true;
  }

  variable_list ByPython(const std::shared_ptr<Node>&, variable_list&& tangents) override {
    if (!released_) py::handle(context_).attr(kSavedBeside) = py::cast(beside_);
    return (*function_)(std::move(tangents));
  }

  long references() const override { return 2; }  // of both nodes
  void KeepEdges(const edge_list& edges) override { function_->next_edges() = edges; }

 private:
  std::vector<SavedVariable>& Checked() override {
    return reinterpret_cast<THPFunction*>(context_)->saved_variables;
  }
  const std::shared_ptr<Node>& Owner(const std::shared_ptr<Node>&) const override {
    return function_;
  }

  std::shared_ptr<Node> function_;
  PyObject* context_;
  std::vector<int64_t> sizes_;
  bool released_ = false;
};

// In itself: the forward ran without PyTorch's function.
class OwnState : public SavedState {
 public:
  // backward: a Python function of (checked tensors, the others, tangents) that gives the
  // gradients.
  OwnState(std::vector<SavedVariable> checked, Tensors beside, std::shared_ptr<PyObject> backward)
      : SavedState(std::move(beside)),
        checked_(std::move(checked)),
        backward_(std::move(backward)) {}

  void Release() override {
    for (SavedVariable& variable : checked_) variable.reset_data();
    beside_.clear();
    released_ = true;
  }

  variable_list ByPython(const std::shared_ptr<Node>& node, variable_list&& tangents) override {
    if (released_) throw std::runtime_error(torch::autograd::ERR_BACKWARD_TWICE);
    Tensors checked;
    for (const SavedVariable& variable : checked_) checked.push_back(variable.unpack(node));
    const py::object gradients =
        py::handle(backward_.get())(checked, beside_, Tangents(*node, tangents));
    variable_list of_edges;
    for (const auto& gradient : gradients.cast<std::vector<std::optional<at::Tensor>>>()) {
      of_edges.push_back(gradient.value_or(at::Tensor()));
    }
    return of_edges;
  }

  long references() const override { return 1; }
  const std::vector<int64_t>& sizes() const override {
    static const std::vector<int64_t> none;  // such forwards save none
    return none;
  }

 private:
  std::vector<SavedVariable>& Checked() override { return checked_; }
  const std::shared_ptr<Node>& Owner(const std::shared_ptr<Node>& node) const override {
    return node;
  }

  // As PyTorch hands them to a function: zeros for a differentiable result's that nobody computed,
  // None for that of another result.
  static std::vector<std::optional<at::Tensor>> Tangents(const Node& node,
                                                         const variable_list& given) {
    std::vector<std::optional<at::Tensor>> tangents(given.size());
    for (size_t i = 0; i < given.size(); ++i) {
      const auto& metadata = node.input_metadata(i);
      if (given[i].defined()) {
        tangents[i] = given[i];
      } else if (!metadata.was_default_constructed()) {
        tangents[i] = metadata.zeros_like();
      }
    }
    return tangents;
  }

  std::vector<SavedVariable> checked_;
  std::shared_ptr<PyObject> backward_;
  bool released_ = false;
};

}  // namespace retrograd
