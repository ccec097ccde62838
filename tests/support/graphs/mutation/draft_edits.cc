#include "tests/support/graphs/mutation/draft_edits.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>

#include "graph/ir/attribute_rules.h"
#include "graph/ir/structural_ops.h"

namespace retrograd {
void DraftEdits::Edit() {
  switch (Int(0, 15)) {
    case 0: return ChangeOp();
    case 1: return ChangeOperand();
    case 2: return ChangeExtent();
    case 3: return ChangeDType();
    case 4:
    case 5: return ChangeAttr();
    case 6: return ChangeInput();
    case 7: return RemoveNode();
    case 8: return ChangeOutputs();
    case 9: return RepeatRange();
    case 10: return StackStages();
    case 11: return StackProducts();
    default: return InsertNode();
  }
}

void DraftEdits::ChangeOp() {
  DraftNode& n = d_.nodes[AnyNode()];
  if (n.op == Op::input) return;
  const auto count = static_cast<int>(n.operands.size());
  for (int attempt = 0; attempt < 10; ++attempt) {
    const OpInfo& info = AllOps()[Int(1, kNumOps - 1)];
    if (count < info.min_operands || (info.max_operands >= 0 && count > info.max_operands))
      continue;
    n.op = info.op;
    if (!CheckAttrs(n.op, n.attrs).ok()) n.attrs = MakeAttrs(n.op, n.operands);
    return;
  }
}

void DraftEdits::ChangeOperand() {
  const size_t at = AnyNode();
  DraftNode& n = d_.nodes[at];
  if (n.operands.empty()) return;
  ValueId& operand = n.operands[Int(0, static_cast<int64_t>(n.operands.size()) - 1)];
  for (int attempt = 0; attempt < 6; ++attempt) {
    const ValueId v{NodeId{static_cast<uint32_t>(Int(0, static_cast<int64_t>(at) - 1))},
                    Chance(10) ? 1u : 0u};
    if (attempt < 5 && ShapeOf(v) != ShapeOf(operand)) continue;
    operand = v;
    return;
  }
}

DraftNode* DraftEdits::AnyInput() {
  for (int attempt = 0; attempt < 10; ++attempt) {
    DraftNode& n = d_.nodes[AnyNode()];
    if (n.op == Op::input) return &n;
  }
  return nullptr;
}

void DraftEdits::ChangeExtent() {
  DraftNode* n = AnyInput();
  if (n == nullptr || n->type.shape.empty()) return;
  int64_t& extent = n->type.shape[Int(0, static_cast<int64_t>(n->type.shape.size()) - 1)];
  const int64_t before = extent, after = Extent();
  extent = after;
  if (Chance(30) || before <= 1) return;
  for (DraftNode& other : d_.nodes) {
    if (other.op == Op::input) {
      std::replace(other.type.shape.begin(), other.type.shape.end(), before, after);
    }
    for (absl::string_view name : {"shape", "stop"}) {
      const AttrValue* value = other.attrs.Find(name);
      if (value == nullptr) continue;
      AttrValue edited = *value;
      if (auto* list = std::get_if<std::vector<int64_t>>(&edited)) {
        std::replace(list->begin(), list->end(), before, after);
      } else if (auto* number = std::get_if<int64_t>(&edited); number && *number == before) {
        *number = after;
      }
      other.attrs.Set(name, std::move(edited));
    }
  }
}

void DraftEdits::ChangeDType() {
  DraftNode* n = AnyInput();
  if (n == nullptr) return;
  const DType before = n->type.dtype, after = Chance(80) ? FloatDType() : AnyDType();
  n->type.dtype = after;
  if (Chance(40)) return;
  for (DraftNode& other : d_.nodes) {
    if (other.op == Op::input && other.type.dtype == before) other.type.dtype = after;
  }
}

void DraftEdits::ChangeAttr() {
  DraftNode& n = d_.nodes[AnyNode()];
  const auto rules = AttrRules(n.op);
  if (rules.empty()) return;
  if (Chance(40)) {
    n.attrs = MakeAttrs(n.op, n.operands);
    return;
  }
  const AttrRule& rule = rules[Int(0, static_cast<int64_t>(rules.size()) - 1)];
  const AttrValue* value = n.attrs.Find(rule.name);
  if (value == nullptr) return;
  AttrValue edited = *value;
  if (auto* number = std::get_if<int64_t>(&edited)) {
    *number = Chance(50) ? *number + Int(-1, 1) : Extent();
  } else if (auto* real = std::get_if<double>(&edited)) {
    constexpr double kSpecial[] = {0,    1,    -1,    0.5,
                                   1e-7, 3e38, 1e300, -std::numeric_limits<double>::infinity()};
    *real = kSpecial[Int(0, std::size(kSpecial) - 1)];
  } else if (auto* list = std::get_if<std::vector<int64_t>>(&edited)) {
    EditList(*list);
  } else {
    edited = std::string(Name(Chance(70) ? FloatDType() : AnyDType()));
  }
  n.attrs.Set(rule.name, std::move(edited));
}

void DraftEdits::EditList(std::vector<int64_t>& list) {
  if (list.empty() || Chance(10)) return list.push_back(Int(0, 2));
  int64_t& a = list[Int(0, static_cast<int64_t>(list.size()) - 1)];
  switch (Int(0, 3)) {
    case 0: return list.pop_back();
    case 1: return std::swap(a, list.back());
    case 2: a = Extent(); return;
    default: a += Int(-1, 1);
  }
}

std::vector<int64_t> DraftEdits::Strides(const Shape& shape, bool may_repeat) {
  std::vector<int64_t> strides(shape.size());
  int64_t stride = Chance(10) ? 2 : 1;
  for (int64_t axis : Permutation(shape.size())) {
    strides[axis] = stride;
    if (stride < (int64_t{1} << 40))
      stride *=
          std::max<int64_t>(std::min<int64_t>(shape[axis], 1 << 21), 1) + (Chance(10) ? 1 : 0);
  }
  if (may_repeat && !strides.empty() && Chance(20))
    strides[Int(0, static_cast<int64_t>(strides.size()) - 1)] = 0;
  return strides;
}

void DraftEdits::ChangeInput() {
  DraftNode* n = AnyInput();
  if (n == nullptr) return;
  switch (Int(0, 4)) {
    case 0: n->input.kind = static_cast<InputKind>(Int(1, 4)); break;
    case 1: n->input.alignment = Chance(30) ? 0 : int64_t{1} << Int(0, 20); break;
    case 2: n->input.donated = !n->input.donated; break;
    default: n->input.strides = Strides(n->type.shape, true);
  }
}

void DraftEdits::RemoveNode() {
  DraftNode& n = d_.nodes[AnyNode()];
  if (n.op == Op::input || n.operands.empty()) return;
  n.op = Op::copy;  // if a copy is not legal here either, the mender leaves it out
  n.attrs = {};
  n.operands.resize(1);
}

void DraftEdits::ChangeOutputs() {
  if (!d_.outputs.empty() && Chance(30)) {
    GraphOutput& o = d_.outputs[Int(0, static_cast<int64_t>(d_.outputs.size()) - 1)];
    if (o.value.has_value() && Chance(70)) {
      o.strides = Strides(ShapeOf(*o.value), false);
    } else if (Chance(50)) {
      o.value.reset();
      o.strides.clear();
    } else {
      d_.outputs.pop_back();
    }
    return;
  }
  GraphOutput o;
  o.value = Recent();
  if (Chance(20)) o.strides = Strides(ShapeOf(*o.value), false);
  d_.outputs.push_back(std::move(o));
}

void DraftEdits::RepeatRange() {
  const size_t from = AnyNode(),
               to = std::min(d_.nodes.size(), from + static_cast<size_t>(Int(1, 12)));
  const size_t at = d_.nodes.size();
  const bool chained = Chance(50);  // the copy's inputs are what the range ends with
  for (size_t i = from; i < to; ++i) {
    DraftNode copy = d_.nodes[i];
    for (ValueId& v : copy.operands) {
      if (Index(v.node) >= from) {
        v.node = NodeId{static_cast<uint32_t>(Index(v.node) + at - from)};
      } else if (chained && d_.nodes[Index(v.node)].type == d_.nodes[to - 1].type) {
        v = {NodeId{static_cast<uint32_t>(to) - 1}, 0};
      }
    }
    d_.nodes.push_back(std::move(copy));
  }
  d_.outputs.push_back({ValueId{NodeId{static_cast<uint32_t>(d_.nodes.size()) - 1}, 0}, "", {}});
}

ValueId DraftEdits::RowsOf(int64_t columns) {
  const ValueId x = Recent();
  const std::optional<int64_t> elements = CheckedElements(ShapeOf(x));
  if (!elements || *elements == 0 || *elements % columns != 0) {
    const int64_t rows = Int(1, 4);
    return NewInput(FloatDType(), {rows, columns});
  }
  return AppendOp(Op::reshape, {x}, {{"shape", Shape{*elements / columns, columns}}});
}

void DraftEdits::StackStages() {
  const int64_t stages = Int(1, 6);
  ValueId v = RowsOf(int64_t{1} << stages);
  const Shape rows = ShapeOf(v);
  const bool sorts = Chance(30);
  for (int64_t stage = 0; stage < stages; ++stage) {
    const int64_t apart = int64_t{1} << stage;
    const Shape pairs = {rows[0], rows[1] / apart / 2, 2, apart};
    const ValueId split = AppendOp(Op::reshape, {v}, {{"shape", pairs}});
    std::vector<ValueId> halves;
    for (int64_t at : {0, 1}) {
      halves.push_back(
          AppendOp(Op::slice, {split},
                   {{"axis", int64_t{2}}, {"start", at}, {"stop", at + 1}, {"step", int64_t{1}}}));
    }
    const ValueId low = AppendOp(sorts ? Op::minimum : Op::add, halves, {});
    const ValueId high = AppendOp(sorts ? Op::maximum : Op::sub, halves, {});
    const ValueId joined = AppendOp(Op::cat, {low, high}, {{"axis", int64_t{2}}});
    v = AppendOp(Op::reshape, {joined}, {{"shape", rows}});
  }
  d_.outputs.push_back({v, "", {}});
}

void DraftEdits::StackProducts() {
  const int64_t dims = Int(2, 8);
  ValueId v = RowsOf(int64_t{1} << dims);
  Shape shape(static_cast<size_t>(dims) + 1, 2);
  shape[0] = ShapeOf(v)[0];
  v = AppendOp(Op::reshape, {v}, {{"shape", shape}});
  for (int64_t step = 1; step < dims; ++step) {
    std::vector<int64_t> perm(shape.size());
    std::iota(perm.begin(), perm.end(), 0);
    std::swap(perm[step], perm[step + 1]);
    const ValueId permuted = AppendOp(Op::permute, {v}, {{"perm", perm}});
    v = AppendOp(Op::mul, {v, permuted}, {});
  }
  d_.outputs.push_back({v, "", {}});
}

}  // namespace retrograd
