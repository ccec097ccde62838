// Memory that is asked for before it is needed.
//
// Between two backwards of a training step a host's caches are filled with other things, and what a
// backward reads of each tensor and node lies in lines of memory that nothing foretells. Those that
// are asked for one behind the other come together; those that are read one behind the other are
// each waited for.
#pragma once

#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/autograd/variable.h>

#include <cstddef>
#include <mutex>
#include <typeinfo>
#include <vector>

namespace retrograd {

inline constexpr size_t kCacheLine = 64;

// Asks for the object. A null pointer, and an object of a smaller type, do no harm.
template <typename T>
void Ask(const T* object, size_t behind = 0) {
  const char* const begin = reinterpret_cast<const char*>(object);
  for (size_t at = 0; at < sizeof(T) + behind; at += kCacheLine) __builtin_prefetch(begin + at);
}

// For what a run reads of the parameters whose gradients go to the edges.
inline void AskForParameters(const torch::autograd::edge_list& edges) {
  using torch::autograd::AccumulateGrad;
  // What counts a node's references mostly lies right behind it.
  for (const auto& edge : edges) {
    Ask(static_cast<const AccumulateGrad*>(edge.function.get()), kCacheLine);
  }
  std::vector<const c10::TensorImpl*> parameters;
  parameters.reserve(edges.size());
  for (const auto& edge : edges) {
    const torch::autograd::Node* node = edge.function.get();
    if (node == nullptr || typeid(*node) != typeid(AccumulateGrad)) continue;
    parameters.push_back(static_cast<const AccumulateGrad*>(node)->variable.unsafeGetTensorImpl());
    Ask(parameters.back());
  }
  for (const c10::TensorImpl* parameter : parameters) {
    Ask(static_cast<const torch::autograd::AutogradMeta*>(parameter->autograd_meta()));
    Ask(parameter->unsafe_storage().unsafeGetStorageImpl());
  }
}

// For what a run reads of the tensors.
inline void AskFor(const std::vector<at::Tensor>& tensors) {
  for (const at::Tensor& tensor : tensors) Ask(tensor.unsafeGetTensorImpl());
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.defined()) continue;
    Ask(tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl());
  }
}

// For what a call of a forward reads of its arguments: a tuple of Python's objects.
inline void AskForArguments(PyObject* arguments) {
  const Py_ssize_t size = PyTuple_GET_SIZE(arguments);
  for (Py_ssize_t i = 0; i < size; ++i) {
    Ask(reinterpret_cast<const THPVariable*>(PyTuple_GET_ITEM(arguments, i)));
  }
  std::vector<const c10::TensorImpl*> tensors;
  tensors.reserve(static_cast<size_t>(size));
  for (Py_ssize_t i = 0; i < size; ++i) {
    PyObject* const object = PyTuple_GET_ITEM(arguments, i);
    if (!THPVariable_CheckExact(object)) continue;
    tensors.push_back(THPVariable_Unpack(object).unsafeGetTensorImpl());
    Ask(tensors.back());
  }
  std::vector<torch::autograd::AutogradMeta*> metas;
  metas.reserve(tensors.size());
  for (const c10::TensorImpl* tensor : tensors) {
    __builtin_prefetch(&tensor->version_counter());
    metas.push_back(static_cast<torch::autograd::AutogradMeta*>(tensor->autograd_meta()));
    if (metas.back() != nullptr) Ask(metas.back());
  }
  for (auto* meta : metas) {
    if (meta == nullptr) continue;
    const std::lock_guard<std::mutex> lock(meta->mutex_);
    Ask(meta->grad_accumulator_.lock().get(), kCacheLine);
  }
}

}  // namespace retrograd
