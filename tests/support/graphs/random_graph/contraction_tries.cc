#include "tests/support/graphs/random_graph/contraction_tries.h"

#include <optional>
#include <string>
#include <utility>

#include "tests/support/graphs/random_convolution.h"

namespace retrograd {

bool TryMatMul(GrowingGraph& g) {
  RandomDraws& draws = g.draws();
  GraphBuilder& builder = g.builder();
  const KnownValue a = g.Pick();
  const TensorType type = builder.type(a.id);
  if (type.rank() < 2) return false;
  Shape other = type.shape;
  other[type.rank() - 2] = type.shape[type.rank() - 1];
  other[type.rank() - 1] = draws.Int(1, g.options().max_extent);
  const double bound = a.bound * 2 * static_cast<double>(type.shape.back());
  Shape result = type.shape;
  result.back() = other.back();
  if (bound > kTame || g.TooLarge(other) || g.TooLarge(result)) {
    return false;
  }
  const ValueId weight = g.AddInput(type.dtype, other);
  Attrs attrs;
  if (type.dtype == DType::kBf16 && draws.Chance(0.3)) attrs.Set("dtype", std::string("f32"));
  return g.Emit(builder.Add(Op::matmul, {a.id, weight}, std::move(attrs)), bound);
}

bool TryConvolution(GrowingGraph& g) {
  RandomDraws& draws = g.draws();
  GraphBuilder& builder = g.builder();
  const KnownValue k = g.Pick();
  const TensorType type = builder.type(k.id);
  if (type.rank() < 3 || type.rank() > 5) return false;
  std::optional<RandomConvolution> drawn =
      DrawConvolution(type.shape, [&](int64_t low, int64_t high) { return draws.Int(low, high); });
  if (!drawn.has_value()) return false;
  const double bound = k.bound * 2 * static_cast<double>(drawn->folded);
  if (bound > kTame) return false;
  for (const Shape& shape : {drawn->operands[0], drawn->operands[1], drawn->result}) {
    if (g.TooLarge(shape)) return false;
  }
  const ValueId other = g.AddInput(type.dtype, drawn->operands[1 - drawn->given]);
  if (type.dtype == DType::kBf16 && draws.Chance(0.3))
    drawn->attrs.Set("dtype", std::string("f32"));
  const bool first = drawn->given == 0;
  return g.Emit(
      builder.Add(drawn->op, {first ? k.id : other, first ? other : k.id}, std::move(drawn->attrs)),
      bound);
}

}  // namespace retrograd
