#include "graph/passes/identities.h"

#include <algorithm>
#include <cmath>

#include "graph/base/rounding.h"
#include "graph/ir/library_ops.h"

namespace retrograd {
namespace {

bool IsFull(const NodeView& node, double value) {
  return node.op == Op::full && node.attrs.Float("value") == value;
}

std::vector<ValueId> ToVector(absl::Span<const ValueId> values) {
  return {values.begin(), values.end()};
}

NewNode Full(double value, const TensorType& type) {
  return {Op::full,
          {},
          {{"dtype", std::string(Name(type.dtype))}, {"shape", type.shape}, {"value", value}}};
}

// --- views ---------------------------------------------------------------------------------------

// A view that leaves the tensor as it is.
bool IsIdentityView(const NodeView& node, const TensorType& x, const TensorType& result) {
  switch (node.op) {
    case Op::reshape:
    case Op::expand: return x.shape == result.shape;
    case Op::permute:
      return std::is_sorted(node.attrs.Ints("perm").begin(), node.attrs.Ints("perm").end());
    case Op::slice: return x.shape == result.shape;
    case Op::flip: {
      const absl::Span<const int64_t> axes = node.attrs.Ints("axes");
      return std::all_of(axes.begin(), axes.end(), [&](int64_t a) { return x.shape[a] <= 1; });
    }
    case Op::pad: return x.shape == result.shape;
    default: return false;
  }
}

// A scan of the flipped operand, flipped back, is the scan from the other end.
Simpler FlippedScan(const NodeView& flip, const NodeView& scan, const ValueView& values) {
  const NodeView inner = values.producer(scan.operands[0]);
  const absl::Span<const int64_t> axes = flip.attrs.Ints("axes");
  const int64_t axis = scan.attrs.Int("axis");
  if (inner.op != Op::flip || axes != inner.attrs.Ints("axes")) return {};
  if (axes.size() != 1 || axes[0] != axis) return {};
  const int64_t reverse = 1 - scan.attrs.Int("reverse");
  return NewNode{scan.op, ToVector(inner.operands), {{"axis", axis}, {"reverse", reverse}}};
}

Simpler SimplifyView(const NodeView& node, const TensorType& result, const ValueView& values) {
  const ValueId x = node.operands[0];
  const NodeView from = values.producer(x);
  if (IsIdentityView(node, values.type(x), result)) return x;
  if (from.op == Op::full && node.op != Op::pad) return Full(from.attrs.Float("value"), result);
  if (node.op == Op::flip && Info(from.op).pattern == Pattern::kScan)
    return FlippedScan(node, from, values);
  if (from.op != node.op) return {};
  if (node.op == Op::reshape || node.op == Op::expand) {
    return NewNode{node.op, ToVector(from.operands), node.attrs};
  }
  if (node.op == Op::permute) {
    const absl::Span<const int64_t> outer = node.attrs.Ints("perm"),
                                    inner = from.attrs.Ints("perm");
    std::vector<int64_t> perm;
    for (int64_t axis : outer) perm.push_back(inner[axis]);
    return NewNode{Op::permute, ToVector(from.operands), {{"perm", std::move(perm)}}};
  }
  return {};
}

// --- casts ---------------------------------------------------------------------------------------

// Whether every value of `narrow` is one of `wide`.
bool Holds(DType wide, DType narrow) {
  if (wide == narrow) return true;
  if (!IsFloat(wide) || !IsFloat(narrow)) return false;
  return SizeBytes(wide) > SizeBytes(narrow);  // bf16 and fp16 do not hold each other
}

Simpler SimplifyCast(const NodeView& node, const TensorType& result, const ValueView& values) {
  const ValueId x = node.operands[0];
  const NodeView from = values.producer(x);
  if (values.type(x).dtype == result.dtype) return x;
  if (from.op == Op::full) return Full(RoundTo(result.dtype, from.attrs.Float("value")), result);
  // A widening before another cast changes nothing.
  if (from.op == Op::cast && Holds(values.type(x).dtype, values.type(from.operands[0]).dtype)) {
    return NewNode{Op::cast, ToVector(from.operands), node.attrs};
  }
  return {};
}

// --- arithmetic ----------------------------------------------------------------------------------

// The operand that the node equals because the other one is neutral.
std::optional<ValueId> NeutralOperand(const NodeView& node, const ValueView& values) {
  if (node.operands.size() != 2) return std::nullopt;
  const ValueId a = node.operands[0], b = node.operands[1];
  switch (node.op) {
    case Op::add:
      if (IsFull(values.producer(b), 0)) return a;
      if (IsFull(values.producer(a), 0)) return b;
      break;
    case Op::sub:
      if (IsFull(values.producer(b), 0)) return a;
      break;
    case Op::mul:
      if (IsFull(values.producer(b), 1)) return a;
      if (IsFull(values.producer(a), 1)) return b;
      break;
    case Op::div:
      if (IsFull(values.producer(b), 1)) return a;
      break;
    default: break;
  }
  return std::nullopt;
}

// A pointwise op whose operands are all constants.
Simpler Fold(const NodeView& node, const TensorType& result, const ValueView& values) {
  const OpInfo& info = Info(node.op);
  if (info.reference == nullptr || node.operands.empty() || node.op == Op::copy) return {};
  double args[4];
  for (size_t i = 0; i < node.operands.size(); ++i) {
    const NodeView from = values.producer(node.operands[i]);
    if (from.op != Op::full) return {};
    args[i] = from.attrs.Float("value");
    if (info.type_rule == TypeRule::kCompare || !IsFloat(values.type(node.operands[i]).dtype)) {
      args[i] = RoundTo(values.type(node.operands[i]).dtype, args[i]);
    }
  }
  double value = info.reference(args);
  if (!IsFloat(result.dtype)) value = RoundTo(result.dtype, value);
  if (!std::isfinite(value)) return {};
  return Full(value, result);
}

Simpler SimplifyPointwise(const NodeView& node, const TensorType& result, const ValueView& values) {
  if (node.op == Op::cast) return SimplifyCast(node, result, values);
  const std::optional<ValueId> same = NeutralOperand(node, values);
  if (same.has_value() && values.type(*same) == result) return *same;
  if (node.op == Op::neg && values.producer(node.operands[0]).op == Op::neg) {
    return values.producer(node.operands[0]).operands[0];
  }
  return Fold(node, result, values);
}

// A reduction over extents of 1 is a reshape.
Simpler SimplifyReduction(const NodeView& node, const TensorType& result, const ValueView& values) {
  const Shape& shape = values.type(node.operands[0]).shape;
  const absl::Span<const int64_t> axes = node.attrs.Ints("axes");
  if (!std::all_of(axes.begin(), axes.end(), [&](int64_t a) { return shape[a] == 1; })) return {};
  return NewNode{Op::reshape, ToVector(node.operands), {{"shape", result.shape}}};
}

// --- tensors without elements --------------------------------------------------------------------

bool IsEmpty(const TensorType& type) {
  return std::find(type.shape.begin(), type.shape.end(), 0) != type.shape.end();
}

// A join or accumulate without the operands that hold nothing.
Simpler WithoutEmptyOperands(const NodeView& node, const TensorType& result,
                             const ValueView& values) {
  std::vector<ValueId> kept;
  std::vector<int64_t> starts;
  const size_t rank = result.shape.size();
  for (size_t i = 0; i < node.operands.size(); ++i) {
    if (IsEmpty(values.type(node.operands[i]))) continue;
    kept.push_back(node.operands[i]);
    if (node.op != Op::accumulate) continue;
    const absl::Span<const int64_t> mine = node.attrs.Ints("starts").subspan(i * rank, rank);
    starts.insert(starts.end(), mine.begin(), mine.end());
  }
  if (kept.size() == node.operands.size()) return {};
  if (kept.empty()) return Full(0, result);
  Attrs attrs = node.attrs;
  if (node.op == Op::accumulate) attrs.Set("starts", std::move(starts));
  return NewNode{node.op, std::move(kept), std::move(attrs)};
}

// What holds no element is a constant, and so is what is made of nothing: kernels and library calls
// then never meet an extent of 0.
Simpler SimplifyEmpty(const NodeView& node, const TensorType& result, const ValueView& values) {
  if (node.operands.empty()) return {};
  if (PatternOf(node.op) == Pattern::kLibrary && !LibraryOpOf(node.op).zero_of_empty) return {};
  if (IsEmpty(result)) return Full(0, result);
  const auto empty = [&](size_t i) { return IsEmpty(values.type(node.operands[i])); };
  switch (PatternOf(node.op)) {
    case Pattern::kReduction:
    case Pattern::kGather:
      if (empty(0)) return Full(0, result);
      return {};
    case Pattern::kLibrary:
      for (size_t i = 0; i < node.operands.size(); ++i) {
        if (empty(i)) return Full(0, result);
      }
      return {};
    case Pattern::kView:
      if (empty(0)) return Full(node.attrs.Float("value"), result);  // a pad
      return {};
    case Pattern::kScatter:
      if (!empty(2)) return {};
      if (values.type(node.operands[0]) == result) return node.operands[0];
      return NewNode{Op::cast, {node.operands[0]}, {{"dtype", std::string(Name(result.dtype))}}};
    case Pattern::kJoin:
      if (node.op == Op::cat) return WithoutEmptyOperands(node, result, values);
      if (empty(1)) return node.operands[0];
      return {};
    case Pattern::kAccumulate: return WithoutEmptyOperands(node, result, values);
    default: return {};
  }
}

}  // namespace

Simpler SimplifyOnce(const NodeView& node, const TensorType& result, const ValueView& values) {
  if (Simpler simpler = SimplifyEmpty(node, result, values);
      !std::holds_alternative<std::monostate>(simpler)) {
    return simpler;
  }
  switch (PatternOf(node.op)) {
    case Pattern::kPointwise: return SimplifyPointwise(node, result, values);
    case Pattern::kReduction: return SimplifyReduction(node, result, values);
    case Pattern::kView: return SimplifyView(node, result, values);
    case Pattern::kJoin:
      if (node.op == Op::cat && node.operands.size() == 1) return node.operands[0];
      return {};
    case Pattern::kAccumulate:
      if (node.operands.size() == 1 && values.type(node.operands[0]) == result) {
        return node.operands[0];
      }
      return {};
    case Pattern::kScan:
      if (result.shape[node.attrs.Int("axis")] == 1) return node.operands[0];
      return {};
    default: return {};
  }
}

}  // namespace retrograd
