#include "tests/support/graphs/random_graph/transform_tries.h"

#include <numeric>
#include <optional>
#include <utility>
#include <vector>

namespace retrograd {
namespace {

// As many rows of so many columns as the value's elements make; nullopt where they make none.
std::optional<ValueId> RowsOf(GrowingGraph& g, ValueId v, int64_t columns) {
  GraphBuilder& builder = g.builder();
  const int64_t elements = builder.type(v).elements(), rows = elements / columns;
  if (rows == 0) return std::nullopt;
  v = builder.Reshape(v, {elements});
  if (rows * columns < elements) {
    v = builder.Add(Op::slice, {v},
                    {{"axis", int64_t{0}},
                     {"start", int64_t{0}},
                     {"stop", rows * columns},
                     {"step", int64_t{1}}});
  }
  return builder.Reshape(v, {rows, columns});
}

// Of each two elements of a row that lie `apart`: what the two ops make of them, in their places.
ValueId AddStage(GraphBuilder& builder, ValueId v, int64_t apart, Op first, Op second) {
  const Shape shape = builder.type(v).shape;
  const ValueId pairs = builder.Reshape(v, {shape[0], shape[1] / apart / 2, 2, apart});
  const auto part = [&](int64_t at) {
    return builder.Add(
        Op::slice, {pairs},
        {{"axis", int64_t{2}}, {"start", at}, {"stop", at + 1}, {"step", int64_t{1}}});
  };
  const ValueId one = part(0), other = part(1);
  const ValueId low = builder.Add(first, {one, other});
  const ValueId high = builder.Add(second, {one, other});
  const ValueId joined = builder.Add(Op::cat, {low, high}, {{"axis", int64_t{2}}});
  return builder.Reshape(joined, shape);
}

}  // namespace

bool TryTransform(GrowingGraph& g) {
  RandomDraws& draws = g.draws();
  if (!draws.Chance(0.3)) return false;  // rarely: it adds many ops
  const KnownValue k = g.Pick();
  const int64_t stages = draws.Int(3, 6);
  const std::optional<ValueId> rows = RowsOf(g, k.id, int64_t{1} << stages);
  if (!rows.has_value()) return false;
  ValueId v = *rows;
  double bound = k.bound;
  const bool widening = draws.Chance(0.5);  // neighbours first
  for (int64_t stage = 0; stage < stages; ++stage) {
    const int64_t apart = int64_t{1} << (widening ? stage : stages - 1 - stage);
    const bool sums = draws.Chance(0.7) && 2 * bound <= kTame;
    v = AddStage(g.builder(), v, apart, sums ? Op::add : Op::minimum, sums ? Op::sub : Op::maximum);
    if (sums) bound *= 2;
  }
  return g.Emit(v, bound);
}

bool TryPermutedProducts(GrowingGraph& g) {
  RandomDraws& draws = g.draws();
  if (!draws.Chance(0.3)) return false;
  GraphBuilder& builder = g.builder();
  const KnownValue k = g.Pick();
  const int64_t dims = draws.Int(3, 6);
  const std::optional<ValueId> rows = RowsOf(g, k.id, int64_t{1} << dims);
  if (!rows.has_value()) return false;
  Shape shape(static_cast<size_t>(dims) + 1, 2);
  shape[0] = builder.type(*rows).shape[0];
  const bool small = draws.Chance(0.5);  // products of what is at most 1 stay so
  ValueId v = builder.Reshape(small ? builder.Add(Op::tanh, {*rows}) : *rows, shape);
  double bound = small ? 1 : k.bound;
  for (int64_t step = 1; step < dims; ++step) {
    std::vector<int64_t> perm(shape.size());
    std::iota(perm.begin(), perm.end(), 0);
    std::swap(perm[step], perm[step + 1]);
    const bool multiplies = bound * bound <= kTame;
    const ValueId permuted = builder.Permute(v, perm);
    v = builder.Add(multiplies ? Op::mul : Op::maximum, {v, permuted});
    if (multiplies) bound *= bound;
  }
  return g.Emit(v, bound);
}

}  // namespace retrograd
