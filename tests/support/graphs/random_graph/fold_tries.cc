#include "tests/support/graphs/random_graph/fold_tries.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

namespace retrograd {

bool TryReduce(GrowingGraph& g) {
  RandomDraws& draws = g.draws();
  GraphBuilder& builder = g.builder();
  const KnownValue k = g.Pick();
  const TensorType type = builder.type(k.id);
  if (type.rank() == 0) return false;
  std::vector<int64_t> axes;
  int64_t folded = 1;
  for (int64_t i = 0; i < type.rank(); ++i) {
    if (!draws.Chance(0.45)) continue;
    axes.push_back(i);
    folded *= type.shape[i];
  }
  if (axes.empty()) return false;
  const Op op = draws.Chance(0.75) ? Op::sum : draws.Chance(0.5) ? Op::amax : Op::amin;
  const double bound = op == Op::sum ? k.bound * static_cast<double>(folded) : k.bound;
  if (bound > kTame) return false;
  Attrs attrs = {{"axes", axes}};
  if (draws.Chance(0.5)) attrs.Set("keep", int64_t{1});
  return g.Emit(builder.Add(op, {k.id}, std::move(attrs)), bound);
}

bool TryScan(GrowingGraph& g) {
  RandomDraws& draws = g.draws();
  GraphBuilder& builder = g.builder();
  const KnownValue k = g.Pick();
  const TensorType type = builder.type(k.id);
  if (type.rank() == 0) return false;
  const int64_t axis = draws.Int(0, type.rank() - 1);
  const Op op = draws.Chance(0.7) ? Op::cumsum : Op::cumprod;
  const auto extent = static_cast<double>(type.shape[axis]);
  const double bound =
      op == Op::cumsum ? k.bound * extent : std::pow(std::max(k.bound, 1.0), extent);
  if (bound > kTame) return false;
  Attrs attrs = {{"axis", axis}};
  if (draws.Chance(0.4)) attrs.Set("reverse", int64_t{1});
  return g.Emit(builder.Add(op, {k.id}, std::move(attrs)), bound);
}

}  // namespace retrograd
