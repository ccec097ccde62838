// Gradients that go into their parameters' `.grad` without a visit of autograd's node.
#pragma once

#include <torch/csrc/autograd/functions/accumulate_grad.h>

#include <mutex>
#include <optional>
#include <typeinfo>
#include <vector>

#include "layout.h"

namespace retrograd {

using torch::autograd::AccumulateGrad;
using torch::autograd::Edge;
using torch::autograd::Node;

// Of a node's members, the one that only nodes may name.
struct NodeMutex : Node {
  static std::mutex& Of(Node& node) { return node.*(&NodeMutex::mutex_); }
};

inline bool HasHooks(Node& leaf) {
  return !leaf.tensor_pre_hooks().empty() || !leaf.pre_hooks().empty() ||
         !leaf.post_hooks().empty() || !leaf.retains_grad_hooks().empty() ||
         leaf.tensor_post_acc_grad_hooks() != nullptr;
}

// The node that would accumulate the gradient, if doing so here makes no difference: nobody watches
// it, it works on the same stream, and it would keep a gradient of this layout as it is.
// `references`: to the node from this graph; one more is another path to the same parameter.
inline AccumulateGrad* DirectLeaf(const Edge& edge, const Layout& layout, long references,
                                  const std::optional<c10::Stream>& stream) {
  Node* node = edge.function.get();
  if (node == nullptr || typeid(*node) != typeid(AccumulateGrad)) return nullptr;
  if (edge.function.use_count() != references || HasHooks(*node)) return nullptr;
  auto* leaf = static_cast<AccumulateGrad*>(node);
  const at::Tensor& variable = leaf->variable;
  if (!variable.requires_grad() || !HasShape(variable, layout, variable.device())) return nullptr;
  if (leaf->input_metadata(0).grad_dtype() != layout.dtype) return nullptr;
  if (stream.has_value() && leaf->stream() != stream) return nullptr;
  if (!variable.is_non_overlapping_and_dense() ||
      !SameStrides(layout.sizes, variable.strides(), layout.strides)) {
    return nullptr;
  }
  const at::Tensor& there = variable.grad();
  if (there.defined() && (there.requires_grad() || !HasShape(there, layout, variable.device()))) {
    return nullptr;
  }
  return leaf;
}

// Gradients to be added to what parameters hold, in one launch where the device has one.
class Sums {
 public:
  // Puts the gradient into the parameter's `.grad`, or keeps it for Add.
  void Put(AccumulateGrad& leaf, at::Tensor gradient) {
    const std::lock_guard<std::mutex> lock(NodeMutex::Of(leaf));
    at::Tensor& there = leaf.variable.mutable_grad();
    if (!there.defined()) {
      there = std::move(gradient);
    } else if (there.is_cpu()) {
      there.add_(gradient);  // the lock orders the threads; on a GPU the stream does
    } else {
      sums_.push_back(there);
      terms_.push_back(std::move(gradient));
    }
  }

  void Add() {
    if (!sums_.empty()) at::_foreach_add_(sums_, terms_);
  }

 private:
  std::vector<at::Tensor> sums_, terms_;
};

}  // namespace retrograd
