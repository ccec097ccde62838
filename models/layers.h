// The backward of one layer each (linear, normalisation, activation), for the builders to chain.
#ifndef RETROGRAD_MODELS_LAYERS_H_
#define RETROGRAD_MODELS_LAYERS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "graph/ir/backward_graph.h"

namespace retrograd {

// The dtypes of a model trained as PyTorch's autocast does it: activations and the matmuls'
// operands in `activation`; norms, losses and every parameter's gradient in `compute`.
struct Precision {
  DType activation = DType::kBf16;
  DType compute = DType::kFp32;  // ComputeType(activation)
};

// Chains layers' backwards into one graph. Activations are [rows, features]; dy is the gradient of
// a layer's result, and what each method returns is the gradient of its argument x. Parameters'
// gradients become outputs named after the parameter.
class LayerBackward {
 public:
  LayerBackward(std::string graph_name, Precision precision);

  GraphBuilder& graph() { return graph_; }
  const Precision& precision() const { return precision_; }

  // Graph inputs: what the forward pass saved, what it was trained on, what comes in. Their memory
  // is 16-byte aligned.
  ValueId Saved(std::string name, DType dtype, Shape shape, std::vector<int64_t> strides = {});
  ValueId Parameter(std::string name, DType dtype, Shape shape);
  ValueId Tangent(std::string name, DType dtype, Shape shape);

  // y = x Wᵀ + bias, W: [out, in].
  ValueId Linear(const std::string& name, ValueId dy, ValueId x, int64_t out, bool bias);
  // The same without dx, for a first layer.
  void LinearParameters(const std::string& name, ValueId dy, ValueId x, bool bias);
  // y = rms_norm(x) w ("rms") or layer_norm(x) w + b ("layer"); saved statistics [rows, 1].
  ValueId Norm(const std::string& name, absl::string_view kind, ValueId dy, ValueId x);
  // y = gelu(x), gelu_tanh(x), silu(x); for relu x is the result, which is what is saved.
  ValueId Activation(const std::string& name, absl::string_view kind, ValueId dy, ValueId x);

  // y = (silu(a) u) Wdᵀ with a = x Wgᵀ, u = x Wuᵀ: [rows, ff], as Llama's MLP has it.
  ValueId Swiglu(const std::string& name, ValueId dy, ValueId x, int64_t ff, bool bias);

  // The gradient of something that two consumers of `module`'s result read.
  ValueId Accumulate(const std::string& module, ValueId a, ValueId b);
  // Marks the nodes added from here on as one call of the module's backward.
  void From(absl::string_view op, std::string module);
  ValueId Mul(ValueId a, ValueId b) { return graph_.Add(Op::mul, {a, b}); }

 private:
  ValueId Input(std::string name, DType dtype, Shape shape, std::vector<int64_t> strides,
                InputKind kind);
  void ParameterGradients(const std::string& name, ValueId dy, ValueId x, bool bias);

  GraphBuilder graph_;
  Precision precision_;
  Origin origin_;
};

// The choices of the parameter "dtype" and what each means.
std::vector<absl::string_view> PrecisionChoices();
Precision PrecisionByName(absl::string_view choice);

}  // namespace retrograd

#endif  // RETROGRAD_MODELS_LAYERS_H_
