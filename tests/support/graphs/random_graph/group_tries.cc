#include "tests/support/graphs/random_graph/group_tries.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace retrograd {
namespace {

constexpr int64_t kMostGroups = 5;

// i32[groups]: the first and then every so many of `size` places, so that no group is empty.
ValueId EvenEnds(GrowingGraph& g, int64_t groups, int64_t size) {
  const int64_t start = g.draws().Int(1, size - (groups - 1));
  const int64_t step = groups == 1 ? 1 : g.draws().Int(1, (size - start) / (groups - 1));
  return g.builder().Add(Op::iota, {},
                         {{"axis", int64_t{0}},
                          {"dtype", std::string(Name(DType::kInt32))},
                          {"shape", Shape{groups}},
                          {"start", start},
                          {"step", step}});
}

}  // namespace

bool TryGroupedMatMul(GrowingGraph& g) {
  RandomDraws& draws = g.draws();
  GraphBuilder& builder = g.builder();
  const KnownValue k = g.Pick();
  const TensorType type = builder.type(k.id);
  if (type.rank() < 2 || type.elements() == 0) return false;
  const int64_t columns = type.shape.back(), rows = type.elements() / columns;
  const int64_t groups = draws.Int(1, kMostGroups), n = draws.Int(1, g.options().max_extent);
  const bool in_rows = draws.Chance(0.5), scaled = draws.Chance(0.3);
  const bool widened = type.dtype == DType::kBf16 && draws.Chance(0.3);
  const Shape other = in_rows ? Shape{groups, columns, n} : Shape{columns, n};
  const Shape result = in_rows ? Shape{rows, n} : Shape{groups, rows, n};
  const double bound = k.bound * 2 * static_cast<double>(columns) * (scaled ? 4 : 1);
  if (bound > kTame || g.TooLarge(other) || g.TooLarge(result)) return false;

  const ValueId a = builder.Reshape(k.id, {rows, columns});
  const ValueId b = g.AddInput(type.dtype, other);
  std::vector<ValueId> operands = {a, b, g.AddInput(DType::kInt32, {groups})};
  if (scaled) {
    const DType scale = ComputeType(type.dtype);
    operands.push_back(g.AddInput(scale, in_rows ? Shape{rows} : Shape{groups, rows}));
    operands.push_back(g.AddInput(scale, {groups, n}));
  }
  Attrs attrs;
  if (widened) attrs.Set("dtype", std::string(Name(DType::kFp32)));
  return g.Emit(builder.Add(Op::grouped_matmul, operands, std::move(attrs)), bound);
}

bool TrySegmentAmax(GrowingGraph& g) {
  RandomDraws& draws = g.draws();
  GraphBuilder& builder = g.builder();
  const KnownValue x = g.Pick();
  const TensorType type = builder.type(x.id);
  if (type.rank() == 0 || type.elements() == 0) return false;
  const int64_t axis = draws.Int(0, type.rank() - 1), size = type.shape[axis];
  const bool magnitude = draws.Chance(0.6);
  const int64_t groups = draws.Int(1, magnitude ? kMostGroups : std::min(size, kMostGroups));
  Shape result = type.shape;
  result[axis] = groups;
  if (g.TooLarge(result)) return false;
  const ValueId ends = magnitude ? g.AddInput(DType::kInt32, {groups}) : EvenEnds(g, groups, size);
  Attrs attrs = {{"axis", axis}};
  if (magnitude) attrs.Set("magnitude", int64_t{1});
  return g.Emit(builder.Add(Op::segment_amax, {x.id, ends}, std::move(attrs)), x.bound);
}

}  // namespace retrograd
