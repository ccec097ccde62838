#include "tests/support/graphs/random_graph/indexed_tries.h"

#include <string>
#include <vector>

namespace retrograd {

bool TryIndexSelect(GrowingGraph& g) {
  RandomDraws& draws = g.draws();
  GraphBuilder& builder = g.builder();
  const KnownValue x = g.Pick();
  const TensorType type = builder.type(x.id);
  if (type.rank() == 0 || type.elements() > g.options().max_elements / 8) return false;
  const Shape index = draws.Chance(0.5) ? Shape{draws.Int(1, 8)} : Shape{2, draws.Int(1, 4)};
  const int64_t axis = draws.Int(0, type.rank() - 1);
  const ValueId places = g.AddIndexInput(index);
  return g.Emit(builder.Add(Op::index_select, {x.id, places}, {{"axis", axis}}), x.bound);
}

bool TryGather(GrowingGraph& g) {
  RandomDraws& draws = g.draws();
  GraphBuilder& builder = g.builder();
  const KnownValue x = g.Pick();
  const TensorType type = builder.type(x.id);
  if (type.rank() == 0) return false;
  const int64_t axis = draws.Int(0, type.rank() - 1);
  Shape index = type.shape;
  index[axis] = draws.Int(1, 4);
  if (g.TooLarge(index)) return false;
  return g.Emit(builder.Add(Op::gather, {x.id, g.AddIndexInput(index)}, {{"axis", axis}}), x.bound);
}

bool TryIndexAdd(GrowingGraph& g) {
  RandomDraws& draws = g.draws();
  GraphBuilder& builder = g.builder();
  const KnownValue x = g.Pick();
  const TensorType type = builder.type(x.id);
  if (type.rank() == 0) return false;
  const int64_t axis = draws.Int(0, type.rank() - 1);
  const double bound = x.bound * static_cast<double>(type.shape[axis]);
  if (bound > kTame) return false;
  Shape shape = type.shape;
  shape[axis] = draws.Int(1, g.options().max_extent);
  if (g.TooLarge(shape)) return false;
  const ValueId base = builder.Full(0, type.dtype, shape);
  return g.Emit(builder.Add(Op::index_add, {base, g.AddIndexInput({type.shape[axis]}), x.id},
                            {{"axis", axis}}),
                bound);
}

bool TryScatterLines(GrowingGraph& g) {
  RandomDraws& draws = g.draws();
  GraphBuilder& builder = g.builder();
  const KnownValue x = g.Pick();
  const TensorType type = builder.type(x.id);
  if (type.rank() == 0) return false;
  const double bound = x.bound * static_cast<double>(type.shape.back());
  if (bound > kTame) return false;
  Shape result = type.shape, index = type.shape;
  result.back() = draws.Int(1, g.options().max_extent);
  if (g.TooLarge(result)) return false;
  index.erase(index.begin(), index.begin() + draws.Int(0, type.rank() - 1));
  return g.Emit(
      builder.Add(Op::scatter_lines, {g.AddIndexInput(index), x.id}, {{"extent", result.back()}}),
      bound);
}

bool TryStrided(GrowingGraph& g) {
  RandomDraws& draws = g.draws();
  GraphBuilder& builder = g.builder();
  const KnownValue k = g.Pick();
  const TensorType type = builder.type(k.id);
  const int64_t length = type.elements();
  if (type.rank() == 0 || length == 0) return false;
  const Shape shape = {draws.Int(1, 5), draws.Int(1, 5)};
  std::vector<int64_t> strides(shape.size());
  int64_t last = 0;
  for (size_t d = 0; d < shape.size(); ++d) {
    const int64_t steps = shape[d] - 1;
    strides[d] = steps == 0 ? 1 : draws.Int(0, (length - 1 - last) / steps);
    last += steps * strides[d];
  }
  ValueId places{};
  for (size_t d = 0; d < shape.size(); ++d) {
    const ValueId line = builder.Add(Op::iota, {},
                                     {{"axis", static_cast<int64_t>(d)},
                                      {"dtype", std::string(Name(DType::kInt64))},
                                      {"shape", shape},
                                      {"start", d == 0 ? draws.Int(0, length - 1 - last) : 0},
                                      {"step", strides[d]}});
    places = d == 0 ? line : builder.Add(Op::add, {places, line});
  }
  const ValueId flat = builder.Reshape(k.id, {length});
  return g.Emit(builder.Add(Op::index_select, {flat, places}, {{"axis", int64_t{0}}}), k.bound);
}

}  // namespace retrograd
