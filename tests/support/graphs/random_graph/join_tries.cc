#include "tests/support/graphs/random_graph/join_tries.h"

#include <algorithm>
#include <vector>

namespace retrograd {

bool TryCat(GrowingGraph& g) {
  RandomDraws& draws = g.draws();
  GraphBuilder& builder = g.builder();
  const KnownValue a = g.Pick();
  const TensorType type = builder.type(a.id);
  if (type.rank() == 0 || type.elements() * 3 > g.options().max_elements) return false;
  const int64_t axis = draws.Int(0, type.rank() - 1);
  std::vector<ValueId> parts = {a.id};
  double bound = a.bound;
  for (const KnownValue& k : g.known()) {
    const TensorType& other = builder.type(k.id);
    if (parts.size() < 3 && other == type && draws.Chance(0.5)) {
      parts.push_back(k.id);
      bound = std::max(bound, k.bound);
    }
  }
  if (parts.size() < 2 && draws.Chance(0.7)) parts.push_back(a.id);
  return g.Emit(builder.Add(Op::cat, parts, {{"axis", axis}}), bound);
}

bool TrySliceScatter(GrowingGraph& g) {
  RandomDraws& draws = g.draws();
  GraphBuilder& builder = g.builder();
  const KnownValue source = g.Pick();
  const TensorType type = builder.type(source.id);
  if (type.rank() == 0) return false;
  const int64_t axis = draws.Int(0, type.rank() - 1);
  const int64_t start = draws.Int(0, 3), step = draws.Int(1, 2);
  const int64_t count = type.shape[axis];
  const int64_t stop = count == 0 ? start : start + (count - 1) * step + 1;
  Shape shape = type.shape;
  shape[axis] = stop + draws.Int(0, 3);
  if (g.TooLarge(shape)) return false;
  const ValueId base = builder.Full(draws.Chance(0.8) ? 0.0 : 1.0, type.dtype, shape);
  return g.Emit(builder.Add(Op::slice_scatter, {base, source.id},
                            {{"axis", axis}, {"start", start}, {"stop", stop}, {"step", step}}),
                std::max(source.bound, 1.0));
}

bool TryAccumulate(GrowingGraph& g) {
  RandomDraws& draws = g.draws();
  GraphBuilder& builder = g.builder();
  const KnownValue first = g.Pick();
  const TensorType type = builder.type(first.id);
  Shape shape = type.shape;
  for (int64_t& extent : shape) extent += draws.Chance(0.3) ? draws.Int(1, 4) : 0;
  if (g.TooLarge(shape)) return false;
  std::vector<ValueId> parts;
  std::vector<int64_t> starts;
  double bound = 0;
  const auto add = [&](const KnownValue& k) {
    const Shape& part = builder.type(k.id).shape;
    parts.push_back(k.id);
    for (size_t d = 0; d < part.size(); ++d) starts.push_back(draws.Int(0, shape[d] - part[d]));
    bound += k.bound;
  };
  add(first);
  for (const KnownValue& k : g.known()) {
    const TensorType& other = builder.type(k.id);
    bool fits = parts.size() < 5 && other.dtype == type.dtype && other.rank() == type.rank();
    for (int d = 0; fits && d < type.rank(); ++d) fits = other.shape[d] <= shape[d];
    if (fits && draws.Chance(0.4)) add(k);
  }
  if (bound > kTame) return false;
  return g.Emit(builder.Add(Op::accumulate, parts, {{"shape", shape}, {"starts", starts}}), bound);
}

}  // namespace retrograd
