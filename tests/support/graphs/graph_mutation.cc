#include "tests/support/graphs/graph_mutation.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>

#include "graph/base/status.h"
#include "graph/ir/attribute_rules.h"
#include "graph/ir/node_rules.h"
#include "graph/ir/structural_ops.h"

namespace retrograd {
namespace {

// A node that may still be illegal. Operands number the draft's own nodes.
struct DraftNode {
  Op op = Op::input;
  std::vector<ValueId> operands;
  Attrs attrs;
  TensorType type;  // inputs: as given. Others: of the first result when the draft was made
  InputInfo input;
  int origin = -1;
};

struct Draft {
  std::vector<DraftNode> nodes;
  std::vector<GraphOutput> outputs;
};

Draft DraftOf(const BackwardGraph& g) {
  Draft d;
  for (uint32_t i = 0; i < g.num_nodes(); ++i) {
    const Node& n = g.node(NodeId{i});
    DraftNode node{.op = n.op,
                   .operands = {},
                   .attrs = n.attrs,
                   .type = n.results[0],
                   .input = {},
                   .origin = n.origin};
    const auto operands = g.operands(NodeId{i});
    node.operands.assign(operands.begin(), operands.end());
    if (n.input != nullptr) node.input = *n.input;
    d.nodes.push_back(std::move(node));
  }
  d.outputs.assign(g.outputs().begin(), g.outputs().end());
  return d;
}

// --- mending -------------------------------------------------------------------------------------

class Mender {
 public:
  Mender(const BackwardGraph& from, const Draft& draft) : draft_(draft), builder_(from.name()) {
    builder_.SetNumerics(from.numerics());
    for (const Origin& o : from.origins()) builder_.AddOrigin(o);
  }

  BackwardGraph Build() {
    for (const DraftNode& node : draft_.nodes) {
      builder_.SetOriginIndex(node.origin);
      values_.push_back(node.op == Op::input ? AddInput(node) : AddOp(node));
    }
    if (builder_.num_nodes() == 0) builder_.Input({DType::kFp32, {1}}, {});
    for (const GraphOutput& o : draft_.outputs) AddOutput(o);
    absl::StatusOr<BackwardGraph> graph = builder_.Build();
    RG_CHECK(graph.ok());
    return *std::move(graph);
  }

 private:
  using Results = std::vector<ValueId>;  // of one draft node; empty: left out

  Results AddInput(const DraftNode& node) {
    InputInfo info = node.input;
    TensorType type = node.type;
    if (!CheckInput(type, info).ok()) info.strides.clear();
    if (!CheckInput(type, info).ok()) info.alignment = 0;
    if (!CheckInput(type, info).ok()) return {};
    return {builder_.Input(std::move(type), std::move(info))};
  }

  bool Lookup(ValueId v, ValueId& out) const {
    if (Index(v.node) >= values_.size() || values_[Index(v.node)].empty()) return false;
    const Results& results = values_[Index(v.node)];
    out = results[std::min<size_t>(v.result, results.size() - 1)];
    return true;
  }

  absl::StatusOr<std::vector<TensorType>> Infer(const DraftNode& node, const Results& operands) {
    std::vector<const TensorType*> types;
    std::vector<TensorType> copies;
    for (ValueId v : operands) copies.push_back(builder_.type(v));
    for (const TensorType& t : copies) types.push_back(&t);
    return InferTypes(node.op, types, node.attrs);
  }

  Results AddOp(const DraftNode& node) {
    Results operands;
    for (ValueId v : node.operands) {
      ValueId mapped;
      if (Lookup(v, mapped)) operands.push_back(mapped);
    }
    auto types = Infer(node, operands);
    if (!types.ok() && operands.size() > 1) {
      const size_t leader = node.op == Op::where ? 1 : 0;
      const DType dtype = builder_.type(operands[std::min(leader, operands.size() - 1)]).dtype;
      Results cast = operands;
      for (size_t i = leader; i < cast.size(); ++i) {
        if (node.op != Op::index_add || i != 1) cast[i] = builder_.Cast(cast[i], dtype);
      }
      types = Infer(node, cast);
      if (types.ok()) operands = std::move(cast);
    }
    if (!types.ok()) return operands.empty() ? Results{} : Results{operands[0]};
    const ValueId first = builder_.Add(node.op, operands, node.attrs);
    Results results;
    for (uint32_t r = 0; r < types->size(); ++r) results.push_back({first.node, r});
    return results;
  }

  void AddOutput(const GraphOutput& o) {
    if (!o.value.has_value()) return builder_.AbsentOutput(o.name);
    ValueId v;
    if (!Lookup(*o.value, v)) return;
    std::vector<int64_t> strides = o.strides;
    if (!CheckStrides(builder_.type(v).shape, strides, /*distinct=*/true).ok()) strides.clear();
    builder_.Output(v, o.name, std::move(strides));
  }

  const Draft& draft_;
  GraphBuilder builder_;
  std::vector<Results> values_;  // by draft node
};

// --- edits ---------------------------------------------------------------------------------------

class Editor {
 public:
  Editor(Draft& draft, std::mt19937& rng) : d_(draft), rng_(rng) {}

  void Edit() {
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

 private:
  int64_t Int(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(rng_() % static_cast<uint64_t>(high - low + 1));
  }
  bool Chance(int percent) { return Int(0, 99) < percent; }
  size_t AnyNode() {
    return static_cast<size_t>(Int(0, static_cast<int64_t>(d_.nodes.size()) - 1));
  }
  const Shape& ShapeOf(ValueId v) const { return d_.nodes[Index(v.node)].type.shape; }

  int64_t Extent() {
    constexpr int64_t kSpecial[] = {
        0,  1,  1,   2,   3,   4,   5,    8,    16,    31,      32,
        33, 64, 100, 127, 128, 768, 1024, 4096, 50257, 1 << 20, int64_t{1} << 33};
    return Chance(80) ? kSpecial[Int(0, 15)] : kSpecial[Int(0, std::size(kSpecial) - 1)];
  }
  DType AnyDType() { return kAllDTypes[Int(0, std::size(kAllDTypes) - 1)]; }
  DType FloatDType() {
    constexpr DType kFloats[] = {DType::kFp32, DType::kFp32, DType::kBf16, DType::kFp16,
                                 DType::kFp64};
    return kFloats[Int(0, 4)];
  }

  // Another op that takes as many operands; attributes are made anew where it needs others.
  void ChangeOp() {
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

  // Prefers a value of the same shape.
  void ChangeOperand() {
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

  DraftNode* AnyInput() {
    for (int attempt = 0; attempt < 10; ++attempt) {
      DraftNode& n = d_.nodes[AnyNode()];
      if (n.op == Op::input) return &n;
    }
    return nullptr;
  }

  // An extent everywhere it occurs, or in one input.
  void ChangeExtent() {
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

  void ChangeDType() {
    DraftNode* n = AnyInput();
    if (n == nullptr) return;
    const DType before = n->type.dtype, after = Chance(80) ? FloatDType() : AnyDType();
    n->type.dtype = after;
    if (Chance(40)) return;
    for (DraftNode& other : d_.nodes) {
      if (other.op == Op::input && other.type.dtype == before) other.type.dtype = after;
    }
  }

  void ChangeAttr() {
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

  void EditList(std::vector<int64_t>& list) {
    if (list.empty() || Chance(10)) return list.push_back(Int(0, 2));
    int64_t& a = list[Int(0, static_cast<int64_t>(list.size()) - 1)];
    switch (Int(0, 3)) {
      case 0: return list.pop_back();
      case 1: return std::swap(a, list.back());
      case 2: a = Extent(); return;
      default: a += Int(-1, 1);
    }
  }

  std::vector<int64_t> Permutation(size_t n) {
    std::vector<int64_t> perm(n);
    std::iota(perm.begin(), perm.end(), 0);
    for (size_t i = n; i > 1; --i)
      std::swap(perm[i - 1], perm[Int(0, static_cast<int64_t>(i) - 1)]);
    return perm;
  }

  std::vector<int64_t> Strides(const Shape& shape, bool may_repeat) {
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

  void ChangeInput() {
    DraftNode* n = AnyInput();
    if (n == nullptr) return;
    switch (Int(0, 4)) {
      case 0: n->input.kind = static_cast<InputKind>(Int(1, 4)); break;
      case 1: n->input.alignment = Chance(30) ? 0 : int64_t{1} << Int(0, 20); break;
      case 2: n->input.donated = !n->input.donated; break;
      default: n->input.strides = Strides(n->type.shape, true);
    }
  }

  void RemoveNode() {
    DraftNode& n = d_.nodes[AnyNode()];
    if (n.op == Op::input || n.operands.empty()) return;
    n.op = Op::copy;  // if a copy is not legal here either, the mender leaves it out
    n.attrs = {};
    n.operands.resize(1);
  }

  void ChangeOutputs() {
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

  // Nodes [from, to) once more behind them, each reading the copies of what it read: a layer twice.
  void RepeatRange() {
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

  // --- stacked maps ---

  // Some value as rows of so many columns, or a new input.
  ValueId RowsOf(int64_t columns) {
    const ValueId x = Recent();
    const std::optional<int64_t> elements = CheckedElements(ShapeOf(x));
    if (!elements || *elements == 0 || *elements % columns != 0) {
      const int64_t rows = Int(1, 4);
      return NewInput(FloatDType(), {rows, columns});
    }
    return AppendOp(Op::reshape, {x}, {{"shape", Shape{*elements / columns, columns}}});
  }

  // Stages of a fast transform or a sorting network: each reads its operand at two places.
  void StackStages() {
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
        halves.push_back(AppendOp(
            Op::slice, {split},
            {{"axis", int64_t{2}}, {"start", at}, {"stop", at + 1}, {"step", int64_t{1}}}));
      }
      const ValueId low = AppendOp(sorts ? Op::minimum : Op::add, halves, {});
      const ValueId high = AppendOp(sorts ? Op::maximum : Op::sub, halves, {});
      const ValueId joined = AppendOp(Op::cat, {low, high}, {{"axis", int64_t{2}}});
      v = AppendOp(Op::reshape, {joined}, {{"shape", rows}});
    }
    d_.outputs.push_back({v, "", {}});
  }

  // x = x * permute(x), for neighbouring dims of 2.
  void StackProducts() {
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

  // --- a new node ---

  // `illegal`: its type where the op is not legal.
  ValueId AppendOp(Op op, std::vector<ValueId> operands, Attrs attrs, TensorType illegal = {}) {
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
  ValueId Append(DraftNode node) {
    d_.nodes.push_back(std::move(node));
    return {NodeId{static_cast<uint32_t>(d_.nodes.size()) - 1}, 0};
  }
  ValueId NewInput(DType dtype, Shape shape) {
    DraftNode n;
    n.type = {dtype, std::move(shape)};
    return Append(std::move(n));
  }
  ValueId Recent() {
    const auto n = static_cast<int64_t>(d_.nodes.size());
    const int64_t from = Chance(60) ? std::max<int64_t>(0, n - 6) : 0;
    return {NodeId{static_cast<uint32_t>(Int(from, n - 1))}, Chance(8) ? 1u : 0u};
  }
  DType DTypeOf(ValueId v) const { return d_.nodes[Index(v.node)].type.dtype; }
  // A value of the shape, or a new input of it.
  ValueId OfShape(const Shape& shape, DType dtype) {
    for (int attempt = 0; attempt < 8; ++attempt) {
      const ValueId v = Recent();
      if (ShapeOf(v) == shape && IsFloat(DTypeOf(v)) == IsFloat(dtype)) return v;
    }
    return NewInput(dtype, shape);
  }

  // The appended node stands last; an earlier node's operand is often moved behind it, so that new
  // nodes do not only grow at the end.
  void InsertNode() {
    const OpInfo& info = AllOps()[Int(1, kNumOps - 1)];
    const ValueId x = Recent();
    const DType dtype = DTypeOf(x);
    const Shape shape = ShapeOf(x);
    std::vector<ValueId> operands = Operands(info, x, dtype, shape);
    Attrs attrs = MakeAttrs(info.op, operands);
    const ValueId result = AppendOp(info.op, std::move(operands), std::move(attrs), {dtype, shape});
    if (Chance(40) || d_.outputs.empty()) d_.outputs.push_back({result, "", {}});
  }

  std::vector<ValueId> Operands(const OpInfo& info, ValueId x, DType dtype, Shape shape) {
    switch (info.pattern) {
      case Pattern::kLibrary:
        if (info.op == Op::matmul) return MatMulOperands(x, dtype, shape);
        if (info.op == Op::grouped_matmul) return GroupedMatMulOperands();
        if (info.op == Op::segment_amax) return {x, NewInput(DType::kInt32, {Int(1, 5)})};
        if (info.op == Op::scatter_lines) return ScatterLinesOperands(x, shape);
        if (info.op == Op::sort_indices) return {NewInput(DType::kInt64, {Int(0, 64)})};
        if (info.op == Op::attention_backward) return AttentionOperands();
        return ConvolutionOperands(info.op, dtype);
      case Pattern::kGather:
        if (info.op == Op::gather) return {x, NewInput(DType::kInt64, shape)};
        return {x, NewInput(DType::kInt32, {Int(1, 40)})};
      case Pattern::kScatter: {
        const Shape index = {Int(1, 64)};
        Shape source = shape;
        if (source.empty()) source = {1};
        source[0] = index[0];
        ValueId list = NewInput(DType::kInt64, index);
        if (info.op == Op::segment_add) {
          const int64_t rows = shape.empty() ? 1 : shape[0];
          list = AppendOp(Op::sort_indices, {list}, {{"rows", rows}}, {DType::kInt32, {}});
        }
        return {x, list, OfShape(source, dtype)};
      }
      case Pattern::kComposite: return CompositeOperands(info, x, dtype, shape);
      default: break;
    }
    const int most =
        info.max_operands < 0 ? info.min_operands + static_cast<int>(Int(0, 3)) : info.max_operands;
    std::vector<ValueId> out;
    if (info.op == Op::where) out.push_back(OfShape(shape, DType::kBool));
    while (static_cast<int>(out.size()) < most) {
      if (out.empty()) {
        out.push_back(x);
      } else if (Chance(30) && !shape.empty()) {  // a statistic or a bias
        Shape other = shape;
        Chance(50) ? void(other.back() = 1) : void(other.erase(other.begin()));
        out.push_back(OfShape(other, dtype));
      } else {
        out.push_back(OfShape(shape, dtype));
      }
    }
    return out;
  }

  std::vector<ValueId> MatMulOperands(ValueId x, DType dtype, Shape shape) {
    if (shape.size() < 2) return {x, x};
    Shape other = shape;
    other[other.size() - 2] = shape.back();
    if (Chance(50)) other.back() = Extent();
    if (Chance(50)) return {x, OfShape(other, dtype)};
    // x transposed first: a weight gradient.
    DraftNode t;
    t.op = Op::permute;
    t.operands = {x};
    std::vector<int64_t> perm(shape.size());
    std::iota(perm.begin(), perm.end(), 0);
    std::swap(perm[perm.size() - 1], perm[perm.size() - 2]);
    t.attrs.Set("perm", perm);
    std::swap(shape[shape.size() - 1], shape[shape.size() - 2]);
    t.type = {dtype, shape};
    const ValueId transposed = Append(std::move(t));
    other = shape;
    other[other.size() - 2] = shape.back();
    return {transposed, OfShape(other, dtype)};
  }

  std::vector<ValueId> GroupedMatMulOperands() {
    const int64_t groups = Int(1, 5), m = Extent(), k = Extent(), n = Extent();
    const DType dtype = FloatDType();
    return {NewInput(dtype, {m, k}),
            NewInput(dtype, Chance(50) ? Shape{groups, k, n} : Shape{k, n}),
            NewInput(DType::kInt32, {groups})};
  }

  // The index may lack the first axes of the source.
  std::vector<ValueId> ScatterLinesOperands(ValueId x, Shape shape) {
    if (!shape.empty() && Chance(50)) shape.erase(shape.begin());
    return {NewInput(Chance(50) ? DType::kInt32 : DType::kInt64, std::move(shape)), x};
  }

  std::vector<ValueId> AttentionOperands() {
    const int64_t b = Int(1, 3), h = Int(1, 4), kv = Chance(70) ? h : 1, t = Extent(),
                  s = Chance(60) ? t : Extent(), w = Int(1, 64);
    const DType dtype = FloatDType();
    std::vector<ValueId> out = {NewInput(dtype, {b, h, t, w}),  NewInput(dtype, {b, h, t, w}),
                                NewInput(dtype, {b, kv, s, w}), NewInput(dtype, {b, kv, s, w}),
                                NewInput(dtype, {b, h, t, w}),  NewInput(DType::kFp32, {b, h, t})};
    if (Chance(30))
      out.push_back(NewInput(dtype, Chance(50) ? Shape{b, h, t, s} : Shape{1, 1, t, s}));
    return out;
  }

  // With stride and dilation 1 and no padding a gradient's attributes give back its shapes.
  std::vector<ValueId> ConvolutionOperands(Op op, DType dtype) {
    const auto dims = static_cast<size_t>(Int(1, 3));
    const int64_t batch = Int(1, 3), channels = Int(1, 8), filters = Int(1, 8);
    Shape x = {batch, channels}, w = {filters, channels}, y = {batch, filters};
    for (size_t d = 0; d < dims; ++d) {
      w.push_back(Int(1, 3));
      y.push_back(Int(1, 9));
      x.push_back(y.back() + w.back() - 1);
    }
    if (!IsFloat(dtype)) dtype = FloatDType();
    return {OfShape(op == Op::convolution ? x : y, dtype),
            NewInput(dtype, op == Op::convolution_weight_gradient ? x : w)};
  }

  // The shape that a gradient of ConvolutionOperands has.
  Shape GradientShape(Op op, const std::vector<ValueId>& operands) {
    const Shape dy = ShapeOf(operands[0]), other = ShapeOf(operands[1]);
    const bool input = op == Op::convolution_input_gradient;
    if (dy.size() < 3 || other.size() != dy.size()) return dy;
    Shape shape = {input ? dy[0] : dy[1], other[1]};
    for (size_t d = 2; d < dy.size(); ++d) {
      shape.push_back(input ? dy[d] + other[d] - 1 : std::max<int64_t>(other[d] - dy[d] + 1, 1));
    }
    return shape;
  }

  std::vector<ValueId> CompositeOperands(const OpInfo& info, ValueId x, DType dtype,
                                         const Shape& shape) {
    std::vector<ValueId> out = {x, OfShape(shape, dtype)};
    Shape statistic = shape;
    if (!statistic.empty()) statistic.back() = 1;
    const Shape weight = shape.empty() ? Shape{} : Shape{shape.back()};
    while (static_cast<int>(out.size()) < info.max_operands - 1)
      out.push_back(OfShape(statistic, dtype));
    if (info.max_operands > 2) out.push_back(OfShape(weight, dtype));
    return out;
  }

  Attrs MakeAttrs(Op op, const std::vector<ValueId>& operands) {
    const Shape shape = operands.empty() ? Shape{Extent(), Extent()} : ShapeOf(operands[0]);
    const auto rank = static_cast<int64_t>(shape.size());
    const int64_t axis = rank == 0 ? 0 : Int(0, rank - 1);
    const int64_t extent = rank == 0 ? 1 : shape[axis];
    Attrs a;
    for (const AttrRule& rule : AttrRules(op)) {
      if (rule.name == "dtype") {
        if (rule.required || Chance(30))
          a.Set("dtype", std::string(Name(Chance(80) ? FloatDType() : AnyDType())));
      } else if (rule.name == "shape") {
        a.Set("shape", NewShape(op, shape));
      } else if (rule.name == "value" || rule.name == "scale") {
        a.Set(rule.name, Chance(50) ? 0.0 : 0.5);
      } else if (rule.name == "axis") {
        a.Set("axis", axis);
      } else if (rule.name == "start") {
        a.Set("start", op == Op::iota ? Int(-3, 3) : Int(0, std::min<int64_t>(extent, 4)));
      } else if (rule.name == "stop") {
        a.Set("stop", std::max(extent - (Chance(50) ? 0 : 1), int64_t{0}));
      } else if (rule.name == "step") {
        a.Set("step", Chance(70) ? int64_t{1} : Int(1, 3));
      } else if (rule.name == "axes") {
        std::vector<int64_t> axes;
        for (int64_t i = 0; i < rank; ++i) {
          if (Chance(40)) axes.push_back(i);
        }
        if (axes.empty()) axes.push_back(axis);
        a.Set("axes", axes);
      } else if (rule.name == "keep" || rule.name == "causal" || rule.name == "reverse" ||
                 rule.name == "magnitude") {
        if (Chance(50)) a.Set(rule.name, int64_t{1});
      } else if (rule.name == "rows" || rule.name == "extent") {
        a.Set(rule.name, Int(0, 64));
      } else if (rule.name == "groups") {
        a.Set("groups", int64_t{1});
      } else if (rule.name == "stride" || rule.name == "dilation" || rule.name == "padding") {
        std::vector<int64_t> list(std::max<int64_t>(rank - 2, 0), rule.name == "padding" ? 0 : 1);
        if (op == Op::convolution && !list.empty() && Chance(40)) ++list.back();
        a.Set(rule.name, list);
      } else if (rule.name == "input_shape" || rule.name == "weight_shape") {
        a.Set(rule.name, GradientShape(op, operands));
      } else if (rule.name == "perm") {
        a.Set("perm", Permutation(shape.size()));
      } else if (rule.name == "low" || rule.name == "high") {
        std::vector<int64_t> list(shape.size());
        for (int64_t& v : list) v = Chance(40) ? Int(1, 4) : 0;
        a.Set(rule.name, list);
      } else if (rule.name == "starts") {
        a.Set("starts", std::vector<int64_t>(shape.size() * operands.size(), 0));
      }
    }
    return a;
  }

  // For reshape: the same elements in other dims; for expand: repeats; else: any.
  Shape NewShape(Op op, Shape shape) {
    if (op == Op::expand) {
      for (int64_t& e : shape) e = e == 1 && Chance(60) ? Extent() : e;
      if (Chance(40)) shape.insert(shape.begin(), Extent());
      return shape;
    }
    if (op == Op::accumulate) return shape;
    if (op != Op::reshape) {
      if (Chance(30)) return {};
      return shape;
    }
    if (shape.size() > 1 && Chance(50)) {  // two dims become one
      const int64_t at = Int(0, static_cast<int64_t>(shape.size()) - 2);
      int64_t product;
      if (__builtin_mul_overflow(shape[at], shape[at + 1], &product)) return shape;
      shape[at] = product;
      shape.erase(shape.begin() + at + 1);
    } else if (!shape.empty()) {  // one becomes two
      const int64_t at = Int(0, static_cast<int64_t>(shape.size()) - 1);
      for (int64_t divisor : {Int(2, 9), int64_t{64}, int64_t{8}, int64_t{2}, int64_t{1}}) {
        if (shape[at] % divisor != 0) continue;
        shape[at] /= divisor;
        shape.insert(shape.begin() + at + 1, divisor);
        break;
      }
    }
    return shape;
  }

  Draft& d_;
  std::mt19937& rng_;
};

}  // namespace

BackwardGraph MutateGraph(const BackwardGraph& graph, std::mt19937& rng) {
  Draft draft = DraftOf(graph);
  if (draft.nodes.empty()) return SmallestGraph();
  Editor editor(draft, rng);
  for (uint32_t i = 0; i <= rng() % 3; ++i) editor.Edit();
  return Mender(graph, draft).Build();
}

BackwardGraph SmallestGraph() {
  GraphBuilder builder;
  builder.Input({DType::kFp32, {8}}, {});
  absl::StatusOr<BackwardGraph> graph = builder.Build();
  RG_CHECK(graph.ok());
  return *std::move(graph);
}

}  // namespace retrograd
