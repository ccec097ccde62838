#include "models/layers.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "graph/base/status.h"

namespace retrograd {
namespace {

constexpr int64_t kInputAlignment = 16;  // bytes; allocators of tensors give at least this

Op ActivationBackward(absl::string_view kind) {
  if (kind == "gelu") return Op::gelu_backward;
  if (kind == "gelu_tanh") return Op::gelu_tanh_backward;
  if (kind == "silu") return Op::silu_backward;
  RG_CHECK(kind == "relu");
  return Op::relu_backward;
}

}  // namespace

LayerBackward::LayerBackward(std::string graph_name, Precision precision)
    : graph_(std::move(graph_name)), precision_(precision) {}

ValueId LayerBackward::Input(std::string name, DType dtype, Shape shape,
                             std::vector<int64_t> strides, InputKind kind) {
  InputInfo info;
  info.name = std::move(name);
  info.kind = kind;
  info.strides = std::move(strides);
  info.alignment = kInputAlignment;
  graph_.SetOrigin(std::nullopt);  // a graph input was computed nowhere
  const ValueId input = graph_.Input({dtype, std::move(shape)}, std::move(info));
  graph_.SetOrigin(origin_);
  return input;
}

ValueId LayerBackward::Saved(std::string name, DType dtype, Shape shape,
                             std::vector<int64_t> strides) {
  return Input(std::move(name), dtype, std::move(shape), std::move(strides), InputKind::kSaved);
}

ValueId LayerBackward::Parameter(std::string name, DType dtype, Shape shape) {
  return Input(std::move(name), dtype, std::move(shape), {}, InputKind::kParameter);
}

ValueId LayerBackward::Tangent(std::string name, DType dtype, Shape shape) {
  return Input(std::move(name), dtype, std::move(shape), {}, InputKind::kTangent);
}

// y = x Wᵀ + b  ⇒  dx = dy W,  dW = dyᵀ x,  db = Σ_rows dy.
ValueId LayerBackward::Linear(const std::string& name, ValueId dy, ValueId x, int64_t out,
                              bool bias) {
  const int64_t in = graph_.type(x).shape[1];
  const ValueId w = Parameter(name + ".weight", precision_.activation, {out, in});
  From("linear_backward", name);
  const ValueId dx = graph_.MatMul(dy, w);  // [rows, in]
  ParameterGradients(name, dy, x, bias);
  return dx;
}

void LayerBackward::LinearParameters(const std::string& name, ValueId dy, ValueId x, bool bias) {
  From("linear_backward", name);
  ParameterGradients(name, dy, x, bias);
}

void LayerBackward::ParameterGradients(const std::string& name, ValueId dy, ValueId x, bool bias) {
  const ValueId dw = graph_.MatMul(graph_.Permute(dy, {1, 0}), x);  // [out, in]
  graph_.Output(graph_.Cast(dw, precision_.compute), name + ".weight");
  if (!bias) return;
  graph_.Output(graph_.Sum(graph_.Cast(dy, precision_.compute), {0}), name + ".bias");
}

// The formulas are those of rms_norm_backward and layer_norm_backward in graph/ir/ops.def.
ValueId LayerBackward::Norm(const std::string& name, absl::string_view kind, ValueId dy,
                            ValueId x) {
  const DType compute = precision_.compute;
  const int64_t rows = graph_.type(x).shape[0], features = graph_.type(x).shape[1];
  const bool layer_norm = kind == "layer";
  RG_CHECK(layer_norm || kind == "rms");
  std::vector<ValueId> operands;
  if (layer_norm) operands.push_back(Saved(name + ".mean", compute, {rows, 1}));
  operands.push_back(Saved(name + ".rstd", compute, {rows, 1}));
  operands.push_back(Parameter(name + ".weight", compute, {features}));
  From(layer_norm ? "layer_norm_backward" : "rms_norm_backward", name);
  operands.insert(operands.begin(), {graph_.Cast(dy, compute), graph_.Cast(x, compute)});
  const ValueId dx =
      graph_.Add(layer_norm ? Op::layer_norm_backward : Op::rms_norm_backward, operands);
  graph_.Output({dx.node, 1}, name + ".weight");
  if (layer_norm) graph_.Output({dx.node, 2}, name + ".bias");
  return graph_.Cast(dx, precision_.activation);
}

ValueId LayerBackward::Activation(const std::string& name, absl::string_view kind, ValueId dy,
                                  ValueId x) {
  From(absl::StrCat(kind, "_backward"), name);
  return graph_.Add(ActivationBackward(kind), {dy, x});
}

// a = x Wgᵀ,  u = x Wuᵀ,  g = silu(a) u,  y = g Wdᵀ
//   ⇒  dg = dy Wd,  du = dg silu(a),  da = silu'(a) (dg u),  dx = da Wg + du Wu
ValueId LayerBackward::Swiglu(const std::string& name, ValueId dy, ValueId x, int64_t ff,
                              bool bias) {
  const DType dtype = precision_.activation;
  const int64_t rows = graph_.type(x).shape[0], width = graph_.type(dy).shape[1];
  const ValueId a = Saved(name + ".a", dtype, {rows, ff});
  const ValueId u = Saved(name + ".u", dtype, {rows, ff});
  From("silu", name + ".act");
  const ValueId silu = Mul(a, graph_.Add(Op::sigmoid, {a}));
  const ValueId g = Mul(silu, u);  // cheaper to compute again than to keep
  const ValueId dg = Linear(name + ".down", dy, g, width, bias);
  From("mul_backward", name + ".act");
  const ValueId du = Mul(dg, silu);
  const ValueId dsilu = Mul(dg, u);
  const ValueId da = Activation(name + ".act", "silu", dsilu, a);
  const ValueId from_gate = Linear(name + ".gate", da, x, ff, bias);
  const ValueId from_up = Linear(name + ".up", du, x, ff, bias);
  return Accumulate(name, from_gate, from_up);
}

ValueId LayerBackward::Accumulate(const std::string& module, ValueId a, ValueId b) {
  From("accumulate", module);
  return graph_.Add(Op::add, {a, b});
}

void LayerBackward::From(absl::string_view op, std::string module) {
  origin_.op = std::string(op);
  ++origin_.instance;
  origin_.module_path = std::move(module);
  graph_.SetOrigin(origin_);
}

std::vector<absl::string_view> PrecisionChoices() { return {"bf16", "fp16", "fp32", "fp64"}; }

Precision PrecisionByName(absl::string_view choice) {
  DType activation = DType::kFp64;
  if (choice == "bf16") activation = DType::kBf16;
  if (choice == "fp16") activation = DType::kFp16;
  if (choice == "fp32") activation = DType::kFp32;
  return {activation, ComputeType(activation)};
}

}  // namespace retrograd
