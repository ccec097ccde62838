#include "tests/support/graphs/random_graph/pointwise_tries.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace retrograd {
namespace {

bool EmitSum(GrowingGraph& g, Op op, const KnownValue& a, const KnownValue& b) {
  GraphBuilder& builder = g.builder();
  if (a.bound + b.bound > kTame) return false;
  return g.Emit(builder.Add(op, {a.id, b.id}), a.bound + b.bound);
}

}  // namespace

bool TryUnary(GrowingGraph& g) {
  RandomDraws& draws = g.draws();
  GraphBuilder& builder = g.builder();
  const KnownValue k = g.Pick();
  struct Unary {
    Op op;
    double largest_input;  // beyond it the op is not used
    std::function<double(double)> bound;
  };
  static const auto& choices = *new std::vector<Unary>{
      {Op::neg, kTame, [](double b) { return b; }},
      {Op::abs, kTame, [](double b) { return b; }},
      {Op::relu, kTame, [](double b) { return b; }},
      {Op::tanh, kTame, [](double) { return 1.0; }},
      {Op::sigmoid, kTame, [](double) { return 1.0; }},
      {Op::erf, kTame, [](double) { return 1.0; }},
      {Op::sin, 64, [](double) { return 1.0; }},
      {Op::cos, 64, [](double) { return 1.0; }},
      {Op::exp, 4, [](double b) { return std::exp(b); }},
  };
  const Unary& unary = draws.Choose(choices);
  if (k.bound > unary.largest_input) return false;
  const double bound = unary.bound(k.bound);
  return g.Emit(builder.Add(unary.op, {k.id}), bound);
}

bool TryBinary(GrowingGraph& g) {
  RandomDraws& draws = g.draws();
  GraphBuilder& builder = g.builder();
  KnownValue a = g.Pick();
  std::optional<KnownValue> b = g.PickMate(builder.type(a.id));
  if (!b.has_value()) return false;
  if (draws.Chance(0.5)) std::swap(a, *b);
  switch (draws.Int(0, 5)) {
    case 0:
    case 1:
      if (a.bound * b->bound > kTame) return false;
      return g.Emit(builder.Add(Op::mul, {a.id, b->id}), a.bound * b->bound);
    case 2: return EmitSum(g, Op::sub, a, *b);
    case 3: {
      const Op op = draws.Chance(0.5) ? Op::maximum : Op::minimum;
      return g.Emit(builder.Add(op, {a.id, b->id}), std::max(a.bound, b->bound));
    }
    case 4: {
      // Divisors stay away from zero: b / (1 + a a).
      if (a.bound > 64) return false;
      const ValueId one = builder.Full(1, builder.type(a.id).dtype);
      const ValueId square = builder.Add(Op::mul, {a.id, a.id});
      const ValueId divisor = builder.Add(Op::add, {square, one});
      return g.Emit(builder.Add(Op::div, {b->id, divisor}), b->bound);
    }
    default: return EmitSum(g, Op::add, a, *b);
  }
}

bool TrySelect(GrowingGraph& g) {
  RandomDraws& draws = g.draws();
  GraphBuilder& builder = g.builder();
  const KnownValue a = g.Pick();
  std::optional<KnownValue> b = g.PickMate(builder.type(a.id));
  if (!b.has_value()) return false;
  static const auto& compares =
      *new std::vector<Op>{Op::lt, Op::le, Op::gt, Op::ge, Op::eq, Op::ne};
  ValueId condition = builder.Add(draws.Choose(compares), {a.id, b->id});
  if (draws.Chance(0.2)) condition = builder.Add(Op::logical_not, {condition});
  if (draws.Chance(0.2)) {
    const ValueId zero = builder.Full(0, builder.type(a.id).dtype);
    const ValueId positive = builder.Add(Op::gt, {a.id, zero});
    condition =
        builder.Add(draws.Chance(0.5) ? Op::logical_and : Op::logical_or, {condition, positive});
  }
  return g.Emit(builder.Add(Op::where, {condition, a.id, b->id}), std::max(a.bound, b->bound));
}

bool TryFma(GrowingGraph& g) {
  GraphBuilder& builder = g.builder();
  const KnownValue a = g.Pick();
  std::optional<KnownValue> b = g.PickMate(builder.type(a.id));
  if (!b.has_value()) return false;
  const std::optional<Shape> both =
      BroadcastShapes(builder.type(a.id).shape, builder.type(b->id).shape);
  std::optional<KnownValue> c = g.PickMate({builder.type(a.id).dtype, *both});
  if (!c.has_value() || a.bound * b->bound + c->bound > kTame) return false;
  return g.Emit(builder.Add(Op::fma, {a.id, b->id, c->id}), a.bound * b->bound + c->bound);
}

bool TryConstant(GrowingGraph& g) {
  RandomDraws& draws = g.draws();
  GraphBuilder& builder = g.builder();
  const KnownValue k = g.Pick();
  const TensorType type = builder.type(k.id);
  if (draws.Chance(0.5)) {
    const double value = static_cast<double>(draws.Int(-8, 8)) / 4;
    if (k.bound * 2 > kTame) return false;
    return g.Emit(builder.Add(Op::mul, {k.id, builder.Full(value, type.dtype)}), k.bound * 2);
  }
  const int64_t axis = draws.Int(0, static_cast<int64_t>(g.base().size()) - 1);
  const int64_t start = draws.Int(-3, 3), step = draws.Int(1, 2);
  const ValueId counted = builder.Add(Op::iota, {},
                                      {{"axis", axis},
                                       {"dtype", std::string(Name(DType::kInt64))},
                                       {"shape", g.base()},
                                       {"start", start},
                                       {"step", step}});
  return g.Emit(builder.Cast(counted, type.dtype), 3.0 + 2.0 * static_cast<double>(g.base()[axis]));
}

bool TryCast(GrowingGraph& g) {
  GraphBuilder& builder = g.builder();
  const KnownValue k = g.Pick();
  const DType other = g.Type(k).dtype == DType::kFp32 ? DType::kBf16 : DType::kFp32;
  const double bound = k.bound;
  return g.Emit(builder.Cast(k.id, other), bound);
}

}  // namespace retrograd
