#include "tests/support/graphs/random_graph/growing_graph.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace retrograd {

GrowingGraph::GrowingGraph(uint32_t seed, const RandomGraphOptions& options)
    : options_(options), draws_(seed), builder_(absl::StrCat("random_", seed)) {}

DType GrowingGraph::FloatDType() {
  switch (options_.dtypes) {
    case RandomGraphOptions::kFp32: return DType::kFp32;
    case RandomGraphOptions::kBf16: return DType::kBf16;
    case RandomGraphOptions::kFp64: return DType::kFp64;
    case RandomGraphOptions::kMixed: break;
  }
  return draws_.Chance(0.5) ? DType::kFp32 : DType::kBf16;
}

Shape GrowingGraph::RandomShape() {
  while (true) {
    Shape shape(draws_.Int(1, 4));
    for (int64_t& extent : shape) {
      extent = draws_.Chance(0.1) ? 1 : draws_.Int(2, options_.max_extent);
    }
    if (!TooLarge(shape)) return shape;
  }
}

void GrowingGraph::AddInputs() {
  base_ = RandomShape();
  const int count = static_cast<int>(draws_.Int(2, 5));
  for (int i = 0; i < count; ++i) {
    Shape shape = base_;
    if (i > 0 && draws_.Chance(0.4)) {  // broadcasts against the base: a bias, a statistic
      const int64_t dropped = draws_.Int(0, static_cast<int64_t>(shape.size()) - 1);
      shape.erase(shape.begin(), shape.begin() + dropped);
      for (int64_t& extent : shape) extent = draws_.Chance(0.3) ? 1 : extent;
    } else if (i > 0 && draws_.Chance(0.2)) {
      shape = RandomShape();
    }
    AddInput(FloatDType(), std::move(shape));
  }
}

ValueId GrowingGraph::AddInput(DType dtype, Shape shape) {
  InputInfo info;
  info.name = absl::StrCat("input_", builder_.num_nodes());
  info.kind = static_cast<InputKind>(draws_.Int(1, 3));
  info.alignment = draws_.Chance(0.5) ? 16 : 0;
  if (options_.strides && draws_.Chance(0.3)) info.strides = RandomStrides(shape, IsFloat(dtype));
  const ValueId v = builder_.Input({dtype, std::move(shape)}, std::move(info));
  if (IsFloat(dtype)) known_.push_back({v});
  return v;
}

ValueId GrowingGraph::AddIndexInput(Shape shape) {
  const DType dtype = draws_.Chance(0.5) ? DType::kInt32 : DType::kInt64;
  return AddInput(dtype, std::move(shape));
}

// Of a permuted tensor, with a gap now and then, or (inputs) with one expanded dim.
std::vector<int64_t> GrowingGraph::RandomStrides(const Shape& shape, bool may_repeat) {
  std::vector<int64_t> order(shape.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int64_t>(i);
  draws_.Shuffle(order);
  std::vector<int64_t> strides(shape.size());
  int64_t stride = draws_.Chance(0.2) ? 2 : 1;
  for (int64_t axis : order) {
    strides[axis] = stride;
    stride *= shape[axis] + (draws_.Chance(0.2) ? 1 : 0);
  }
  if (may_repeat && draws_.Chance(0.2)) strides[order[0]] = 0;
  return strides;
}

void GrowingGraph::NextOrigin() {
  if (draws_.Chance(0.3)) return builder_.SetOrigin(std::nullopt);
  Origin origin;
  origin.op = draws_.Chance(0.5) ? "aten.mul" : "aten.native_layer_norm_backward";
  origin.instance = draws_.Int(0, 9);
  origin.module_path = absl::StrCat("blocks.", draws_.Int(0, 3));
  origin.recomputed = draws_.Chance(0.1);
  builder_.SetOrigin(std::move(origin));
}

KnownValue GrowingGraph::Pick() {
  size_t at = draws_.Int(0, static_cast<int64_t>(known_.size()) - 1);
  for (int attempt = 0; attempt < 3 && known_[at].uses > 0; ++attempt) {
    at = draws_.Int(0, static_cast<int64_t>(known_.size()) - 1);
  }
  ++known_[at].uses;
  return known_[at];
}

std::optional<KnownValue> GrowingGraph::PickMate(const TensorType& with) {
  for (int attempt = 0; attempt < 12; ++attempt) {
    const size_t at = draws_.Int(0, static_cast<int64_t>(known_.size()) - 1);
    const std::optional<Shape> both = BroadcastShapes(with.shape, Type(known_[at]).shape);
    if (!both.has_value() || TooLarge(*both)) continue;
    ++known_[at].uses;
    KnownValue mate = known_[at];
    mate.id = builder_.Cast(mate.id, with.dtype);
    return mate;
  }
  return std::nullopt;
}

bool GrowingGraph::Emit(ValueId v, double bound) {
  known_.push_back({v, bound});
  return true;
}

void GrowingGraph::AddOutputs() {
  int count = 0;
  for (const KnownValue& k : known_) {
    const bool late = Index(k.id.node) + 3 >= builder_.num_nodes();
    if (k.uses > 0 && !late && !draws_.Chance(0.1)) continue;
    if (draws_.Chance(0.1) && !late) continue;
    std::vector<int64_t> strides;
    if (options_.strides && draws_.Chance(0.2)) strides = RandomStrides(Type(k).shape, false);
    builder_.Output(k.id, absl::StrCat("gradient_", count++), std::move(strides));
    if (draws_.Chance(0.05)) builder_.Output(k.id, "again");
  }
  if (count == 0) builder_.Output(known_.back().id, "gradient");
  if (draws_.Chance(0.3)) builder_.AbsentOutput("none");
}

}  // namespace retrograd
