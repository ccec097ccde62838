#include "tests/support/graphs/random_graph/view_tries.h"

#include <optional>
#include <utility>
#include <vector>

namespace retrograd {
namespace {

// Attributes of a slice of the shape; nullopt if it has no axis.
std::optional<Attrs> RandomSlice(GrowingGraph& g, const Shape& shape) {
  RandomDraws& draws = g.draws();
  if (shape.empty()) return std::nullopt;
  const int64_t axis = draws.Int(0, static_cast<int64_t>(shape.size()) - 1);
  const int64_t start = draws.Int(0, shape[axis] - 1);
  const int64_t stop = draws.Int(start + 1, shape[axis]);
  const int64_t step = draws.Int(1, 3);
  return Attrs{{"axis", axis}, {"start", start}, {"stop", stop}, {"step", step}};
}

}  // namespace

bool TryReshape(GrowingGraph& g) {
  RandomDraws& draws = g.draws();
  GraphBuilder& builder = g.builder();
  const KnownValue k = g.Pick();
  const Shape from = builder.type(k.id).shape;
  Shape shape;
  if (draws.Chance(0.5)) {  // merge neighbours
    for (int64_t extent : from) {
      if (!shape.empty() && draws.Chance(0.5)) {
        shape.back() *= extent;
      } else {
        shape.push_back(extent);
      }
    }
  } else {  // split
    for (int64_t extent : from) {
      const int64_t factor = extent % 2 == 0 ? 2 : extent % 3 == 0 ? 3 : 1;
      if (factor > 1 && draws.Chance(0.6) && shape.size() < 5) {
        shape.push_back(extent / factor);
        shape.push_back(factor);
      } else {
        shape.push_back(extent);
      }
    }
    if (draws.Chance(0.3)) shape.insert(shape.begin() + draws.Int(0, shape.size()), 1);
  }
  if (shape.size() > 6) return false;
  return g.Emit(builder.Reshape(k.id, shape), k.bound);
}

bool TryPermute(GrowingGraph& g) {
  RandomDraws& draws = g.draws();
  GraphBuilder& builder = g.builder();
  const KnownValue k = g.Pick();
  std::vector<int64_t> perm(builder.type(k.id).rank());
  for (size_t i = 0; i < perm.size(); ++i) perm[i] = static_cast<int64_t>(i);
  draws.Shuffle(perm);
  return g.Emit(builder.Permute(k.id, perm), k.bound);
}

bool TryExpand(GrowingGraph& g) {
  RandomDraws& draws = g.draws();
  GraphBuilder& builder = g.builder();
  const KnownValue k = g.Pick();
  Shape shape = builder.type(k.id).shape;
  for (int64_t& extent : shape) {
    if (extent == 1) extent = draws.Int(1, g.options().max_extent);
  }
  if (shape.size() < 4 && draws.Chance(0.5)) shape.insert(shape.begin(), draws.Int(1, 5));
  if (g.TooLarge(shape)) return false;
  return g.Emit(builder.Expand(k.id, shape), k.bound);
}

bool TrySlice(GrowingGraph& g) {
  GraphBuilder& builder = g.builder();
  const KnownValue k = g.Pick();
  const std::optional<Attrs> attrs = RandomSlice(g, builder.type(k.id).shape);
  if (!attrs.has_value()) return false;
  return g.Emit(builder.Add(Op::slice, {k.id}, *attrs), k.bound);
}

bool TryFlip(GrowingGraph& g) {
  RandomDraws& draws = g.draws();
  GraphBuilder& builder = g.builder();
  const KnownValue k = g.Pick();
  std::vector<int64_t> axes;
  for (int64_t i = 0; i < builder.type(k.id).rank(); ++i) {
    if (draws.Chance(0.4)) axes.push_back(i);
  }
  return g.Emit(builder.Add(Op::flip, {k.id}, {{"axes", axes}}), k.bound);
}

bool TryPad(GrowingGraph& g) {
  RandomDraws& draws = g.draws();
  GraphBuilder& builder = g.builder();
  const KnownValue k = g.Pick();
  Shape shape = builder.type(k.id).shape;
  std::vector<int64_t> low(shape.size()), high(shape.size());
  for (size_t i = 0; i < shape.size(); ++i) {
    low[i] = draws.Chance(0.3) ? draws.Int(0, 3) : 0;
    high[i] = draws.Chance(0.3) ? draws.Int(0, 3) : 0;
    shape[i] += low[i] + high[i];
  }
  if (g.TooLarge(shape)) return false;
  Attrs attrs = {{"low", low}, {"high", high}};
  if (draws.Chance(0.3)) attrs.Set("value", 0.5);
  return g.Emit(builder.Add(Op::pad, {k.id}, std::move(attrs)), k.bound);
}

}  // namespace retrograd
