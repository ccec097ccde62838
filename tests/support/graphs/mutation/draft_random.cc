#include "tests/support/graphs/mutation/draft_random.h"

#include <numeric>
#include <utility>

#include "graph/ir/structural_ops.h"

namespace retrograd {
int64_t DraftRandom::Int(int64_t low, int64_t high) {
  return low + static_cast<int64_t>(rng_() % static_cast<uint64_t>(high - low + 1));
}

bool DraftRandom::Chance(int percent) { return Int(0, 99) < percent; }

size_t DraftRandom::AnyNode() {
  return static_cast<size_t>(Int(0, static_cast<int64_t>(d_.nodes.size()) - 1));
}

const Shape& DraftRandom::ShapeOf(ValueId v) const { return d_.nodes[Index(v.node)].type.shape; }

int64_t DraftRandom::Extent() {
  constexpr int64_t kSpecial[] = {
      0,  1,  1,   2,   3,   4,   5,    8,    16,    31,      32,
      33, 64, 100, 127, 128, 768, 1024, 4096, 50257, 1 << 20, int64_t{1} << 33};
  return Chance(80) ? kSpecial[Int(0, 15)] : kSpecial[Int(0, std::size(kSpecial) - 1)];
}

DType DraftRandom::AnyDType() { return kAllDTypes[Int(0, std::size(kAllDTypes) - 1)]; }

DType DraftRandom::FloatDType() {
  constexpr DType kFloats[] = {DType::kFp32, DType::kFp32, DType::kBf16, DType::kFp16,
                               DType::kFp64};
  return kFloats[Int(0, 4)];
}

std::vector<int64_t> DraftRandom::Permutation(size_t n) {
  std::vector<int64_t> perm(n);
  std::iota(perm.begin(), perm.end(), 0);
  for (size_t i = n; i > 1; --i) std::swap(perm[i - 1], perm[Int(0, static_cast<int64_t>(i) - 1)]);
  return perm;
}

ValueId DraftRandom::AppendOp(Op op, std::vector<ValueId> operands, Attrs attrs,
                              TensorType illegal) {
  DraftNode n;
  n.op = op;
  n.operands = std::move(operands);
  n.attrs = std::move(attrs);
  n.type = std::move(illegal);
  std::vector<const TensorType*> types;
  for (ValueId v : n.operands) types.push_back(&d_.nodes[Index(v.node)].type);
  if (auto inferred = InferTypes(n.op, types, n.attrs); inferred.ok()) n.type = (*inferred)[0];
  return Append(std::move(n));
}

ValueId DraftRandom::Append(DraftNode node) {
  d_.nodes.push_back(std::move(node));
  return {NodeId{static_cast<uint32_t>(d_.nodes.size()) - 1}, 0};
}

ValueId DraftRandom::NewInput(DType dtype, Shape shape) {
  DraftNode n;
  n.type = {dtype, std::move(shape)};
  return Append(std::move(n));
}

ValueId DraftRandom::Recent() {
  const auto n = static_cast<int64_t>(d_.nodes.size());
  const int64_t from = Chance(60) ? std::max<int64_t>(0, n - 6) : 0;
  return {NodeId{static_cast<uint32_t>(Int(from, n - 1))}, Chance(8) ? 1u : 0u};
}

DType DraftRandom::DTypeOf(ValueId v) const { return d_.nodes[Index(v.node)].type.dtype; }

ValueId DraftRandom::OfShape(const Shape& shape, DType dtype) {
  for (int attempt = 0; attempt < 8; ++attempt) {
    const ValueId v = Recent();
    if (ShapeOf(v) == shape && IsFloat(DTypeOf(v)) == IsFloat(dtype)) return v;
  }
  return NewInput(dtype, shape);
}

}  // namespace retrograd
