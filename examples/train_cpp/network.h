// The network of the example as graphs: 64 pixels, 64 hidden units with ReLU, 10 classes.
#ifndef RETROGRAD_EXAMPLES_TRAIN_CPP_NETWORK_H_
#define RETROGRAD_EXAMPLES_TRAIN_CPP_NETWORK_H_

#include <array>
#include <string>
#include <vector>

#include "retrograd/layers.hpp"

namespace network {

using retrograd::Builder;
using retrograd::DType;
using retrograd::Graph;
using retrograd::InputKind;
using retrograd::Result;
using retrograd::Value;
namespace layers = retrograd::layers;

inline constexpr int64_t kPixels = 64, kHidden = 64, kClasses = 10;

struct Parameter {
  const char* name;
  std::vector<int64_t> shape;
  int64_t elements() const {
    int64_t n = 1;
    for (int64_t extent : shape) n *= extent;
    return n;
  }
};
inline const std::array<Parameter, 4> kParameters = {{{"hidden.weight", {kHidden, kPixels}},
                                                      {"hidden.bias", {kHidden}},
                                                      {"classes.weight", {kClasses, kHidden}},
                                                      {"classes.bias", {kClasses}}}};

// One value for each parameter.
using PerParameter = std::array<Value, 4>;

inline Value Input(Builder& b, const std::string& name, std::vector<int64_t> shape,
                   InputKind kind = InputKind::kSaved, DType dtype = DType::kFp32) {
  return b.Input(
      {.name = name, .dtype = dtype, .shape = std::move(shape), .kind = kind, .alignment = 16});
}

inline PerParameter Inputs(Builder& b, const std::string& suffix = "") {
  PerParameter values;
  for (size_t i = 0; i < 4; ++i) {
    values[i] = Input(b, kParameters[i].name + suffix, kParameters[i].shape, InputKind::kParameter);
  }
  return values;
}

struct Activations {
  Value hidden;             // [rows, kHidden], after the ReLU
  Value log_probabilities;  // [rows, kClasses]
  Value loss;               // rank 0
};

inline Activations Forward(Builder& b, Value images, Value labels, const PerParameter& p) {
  const Value hidden = layers::Relu(b, layers::Linear(b, images, p[0], p[1]));
  const auto [loss, log_probabilities] =
      layers::SoftmaxCrossEntropy(b, layers::Linear(b, hidden, p[2], p[3]), labels);
  return {hidden, log_probabilities, loss};
}

// The parameters' gradients; the images have none.
inline PerParameter Backward(Builder& b, Value images, Value labels, Value hidden,
                             Value log_probabilities, Value classes_weight) {
  const Value dlogits = layers::SoftmaxCrossEntropyBackward(b, log_probabilities, labels);
  const layers::LinearGradients classes =
      layers::LinearBackward(b, dlogits, hidden, classes_weight);
  const Value dhidden = layers::ReluBackward(b, classes.dx, hidden);
  const Value dw = b.Add("matmul", {layers::detail::Transposed(b, dhidden), images});
  return {dw, layers::detail::SumRows(b, dhidden), classes.dw, classes.dbias};
}

// Adam for each parameter; outputs NAME, NAME.m, NAME.v, then the next step.
inline void Update(Builder& b, const PerParameter& p, const PerParameter& gradients) {
  const PerParameter m = Inputs(b, ".m"), v = Inputs(b, ".v");
  const Value step = Input(b, "step", {});
  for (size_t i = 0; i < 4; ++i) {
    const layers::AdamResult next =
        layers::Adam(b, p[i], gradients[i], m[i], v[i], step, {.rate = 3e-3});
    const std::string name = kParameters[i].name;
    b.Output(next.p, name);
    b.Output(next.m, name + ".m");
    b.Output(next.v, name + ".v");
  }
  b.Output(b.Add("add", {step, b.Scalar(1, DType::kFp32)}), "step");
}

// images, labels, the parameters -> loss, log_probabilities, hidden
inline Result<Graph> ForwardGraph(int64_t rows) {
  Builder b("digits.forward");
  const Value images = Input(b, "images", {rows, kPixels});
  const Value labels = Input(b, "labels", {rows}, InputKind::kSaved, DType::kInt64);
  const Activations made = Forward(b, images, labels, Inputs(b));
  b.Output(made.loss, "loss");
  b.Output(made.log_probabilities, "log_probabilities");
  b.Output(made.hidden, "hidden");
  return b.Finish();
}

// images, labels, log_probabilities, hidden, classes.weight -> the parameters' gradients
inline Result<Graph> BackwardGraph(int64_t rows) {
  Builder b("digits.backward");
  const Value images = Input(b, "images", {rows, kPixels});
  const Value labels = Input(b, "labels", {rows}, InputKind::kSaved, DType::kInt64);
  const Value log_probabilities = Input(b, "log_probabilities", {rows, kClasses});
  const Value hidden = Input(b, "hidden", {rows, kHidden});
  const Value weight = Input(b, "classes.weight", {kClasses, kHidden}, InputKind::kParameter);
  const PerParameter gradients = Backward(b, images, labels, hidden, log_probabilities, weight);
  for (size_t i = 0; i < 4; ++i) b.Output(gradients[i], kParameters[i].name);
  return b.Finish();
}

// parameters, gradients, m, v, step -> parameters, m, v, step; see Update
inline Result<Graph> UpdateGraph() {
  Builder b("digits.update");
  const PerParameter p = Inputs(b);
  Update(b, p, Inputs(b, ".gradient"));
  return b.Finish();
}

// All of a step: images, labels, parameters, m, v, step -> loss, then as Update
inline Result<Graph> StepGraph(int64_t rows) {
  Builder b("digits.step");
  const Value images = Input(b, "images", {rows, kPixels});
  const Value labels = Input(b, "labels", {rows}, InputKind::kSaved, DType::kInt64);
  const PerParameter p = Inputs(b);
  const Activations made = Forward(b, images, labels, p);
  b.Output(made.loss, "loss");
  Update(b, p, Backward(b, images, labels, made.hidden, made.log_probabilities, p[2]));
  return b.Finish();
}

}  // namespace network

#endif  // RETROGRAD_EXAMPLES_TRAIN_CPP_NETWORK_H_
