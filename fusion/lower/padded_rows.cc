#include "fusion/lower/padded_rows.h"

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "fusion/analysis/barrier_depths.h"
#include "fusion/kernel/build/build.h"
#include "fusion/lower/pad_operands.h"
#include "graph/passes/rewriter.h"

namespace retrograd {
namespace {

// Search bound: ops further up than this, in ids, are not the ones that make a row.
constexpr uint32_t kNear = 512;

// Rows of `length` elements become rows of `padded`, up from one value.
class Widening {
 public:
  Widening(const BackwardGraph& g, Rewriter& rewriter, ValueId y, int64_t padded)
      : g_(g),
        rewriter_(rewriter),
        b_(rewriter.builder()),
        y_(y),
        length_(g.type(y).shape.back()),
        padded_(padded) {}

  // y with zeros behind its rows; nullopt if its ops cannot be widened.
  std::optional<ValueId> Run() {
    const std::optional<ValueId> wide = Wide(y_);
    if (!wide) return std::nullopt;
    return Masked(*wide, g_.type(y_).dtype);
  }

 private:
  bool IsRow(ValueId v) const {
    const Shape& shape = g_.type(v).shape;
    return !shape.empty() && shape.back() == length_;
  }
  Shape Widened(Shape shape) const {
    shape.back() = padded_;
    return shape;
  }

  ValueId Masked(ValueId wide, DType dtype) {
    rewriter_.UseOrigin(y_.node);
    const ValueId column = b_.Add(Op::iota, {},
                                  {{"axis", int64_t{0}},
                                   {"dtype", std::string("i64")},
                                   {"shape", Shape{padded_}},
                                   {"start", int64_t{0}},
                                   {"step", int64_t{1}}});
    const ValueId inside =
        b_.Add(Op::lt, {column, b_.Full(static_cast<double>(length_), DType::kInt64)});
    return b_.Add(Op::where, {inside, wide, b_.Full(0, dtype)});
  }

  // The value for rows of the padded length; what stands behind a row's end is worth nothing.
  std::optional<ValueId> Wide(ValueId v) {
    const auto [at, added] = wide_.try_emplace(v);
    if (!added) return at->second;
    const std::optional<ValueId> made = MakeWide(v);
    wide_[v] = made;
    return made;
  }

  std::optional<ValueId> MakeWide(ValueId v) {
    const NodeId id = v.node;
    const Node& node = g_.node(id);
    const Shape& shape = g_.type(v).shape;
    const int64_t last = static_cast<int64_t>(shape.size()) - 1;
    if (node.op == Op::input || IsBarrier(g_, id)) return Appended(v);
    if (Index(y_.node) - Index(id) > kNear) return std::nullopt;
    Attrs attrs = node.attrs;
    switch (node.op) {
      case Op::full:
      case Op::iota:
      case Op::expand:
      case Op::reshape:
        if (node.op == Op::reshape && !IsRow(g_.operands(id)[0])) return std::nullopt;
        attrs.Set("shape", Widened(shape));
        break;
      case Op::slice:
        if (attrs.Int("axis") == last) {
          const ValueId whole = g_.operands(id)[0];
          if (attrs.Int("start") != 0 || attrs.Int("step") != 1) return std::nullopt;
          if (g_.type(whole).shape.back() < padded_) return std::nullopt;
          attrs.Set("stop", padded_);
          rewriter_.UseOrigin(id);
          return b_.Add(Op::slice, {rewriter_.New(whole)}, attrs);
        }
        break;
      default:
        if (g_.pattern(id) != Pattern::kPointwise) return std::nullopt;
    }
    const auto operands = Operands(id, [&](ValueId v) { return IsRow(v) ? Wide(v) : Beside(v); });
    if (!operands) return std::nullopt;
    rewriter_.UseOrigin(id);
    return b_.Add(node.op, *operands, attrs);
  }

  // The op's operands as `make` makes them; nullopt where it cannot make one.
  template <typename Make>
  std::optional<std::vector<ValueId>> Operands(NodeId id, Make make) {
    std::vector<ValueId> operands;
    for (ValueId operand : g_.operands(id)) {
      const std::optional<ValueId> made = make(operand);
      if (!made) return std::nullopt;
      operands.push_back(*made);
    }
    return operands;
  }

  ValueId Appended(ValueId v) {
    std::vector<int64_t> none(g_.type(v).rank(), 0), high = none;
    high.back() = padded_ - length_;
    rewriter_.UseOrigin(v.node);
    return b_.Add(Op::pad, {rewriter_.New(v)}, {{"high", high}, {"low", none}, {"value", 0.0}});
  }

  // A value without such rows, made of the widened ones where it is made of rows.
  std::optional<ValueId> Beside(ValueId v) {
    const auto [at, added] = beside_.try_emplace(v);
    if (!added) return at->second;
    const std::optional<ValueId> made = MakeBeside(v);
    beside_[v] = made;
    return made;
  }

  std::optional<ValueId> MakeBeside(ValueId v) {
    const NodeId id = v.node;
    const Node& node = g_.node(id);
    if (Index(y_.node) - Index(id) > kNear) return rewriter_.New(v);
    if (node.op == Op::sum && IsRow(g_.operands(id)[0])) return SumOf(id);
    if (g_.pattern(id) == Pattern::kReduction && IsRow(g_.operands(id)[0])) return std::nullopt;
    const bool through = node.op == Op::reshape || node.op == Op::expand ||
                         (g_.pattern(id) == Pattern::kPointwise && !g_.operands(id).empty());
    if (!through) return rewriter_.New(v);
    const auto operands =
        Operands(id, [&](ValueId x) { return IsRow(x) ? std::nullopt : Beside(x); });
    if (!operands) return std::nullopt;
    const auto as_they_were =
        Operands(id, [&](ValueId x) { return std::optional<ValueId>(rewriter_.New(x)); });
    if (operands == as_they_were) return rewriter_.New(v);
    rewriter_.UseOrigin(id);
    return b_.Add(node.op, *operands, node.attrs);
  }

  std::optional<ValueId> SumOf(NodeId id) {
    const ValueId rows = g_.operands(id)[0];
    const auto axes = g_.node(id).attrs.Ints("axes");
    if (axes.size() != 1 || axes[0] != g_.type(rows).rank() - 1) return std::nullopt;
    const std::optional<ValueId> wide = Wide(rows);
    if (!wide) return std::nullopt;
    const ValueId masked = Masked(*wide, g_.type(rows).dtype);
    rewriter_.UseOrigin(id);
    return b_.Add(Op::sum, {masked}, g_.node(id).attrs);
  }

  const BackwardGraph& g_;
  Rewriter& rewriter_;
  GraphBuilder& b_;
  const ValueId y_;
  const int64_t length_, padded_;
  absl::flat_hash_map<ValueId, std::optional<ValueId>> wide_, beside_;
};

}  // namespace

absl::StatusOr<BackwardGraph> PadRows(const BackwardGraph& g, int64_t alignment_bytes) {
  std::map<ValueId, std::vector<NodeId>> pads;  // of a value's rows
  for (uint32_t i = 0; i < g.num_nodes(); ++i) {
    const ValueId y = g.operands(NodeId{i}).empty() ? ValueId{} : g.operands(NodeId{i})[0];
    const bool rows = AxisPaddedForMatMul(g, NodeId{i}, alignment_bytes) == 1;
    if (rows && Computes(g, y.node)) pads[y].push_back(NodeId{i});
  }
  if (pads.empty()) return g;
  Rewriter rewriter(g);
  for (uint32_t i = 0; i < g.num_nodes(); ++i) {
    const NodeId id{i};
    if (rewriter.IsSet({id, 0})) continue;  // a pad that is made already
    rewriter.Copy(id);
    const auto at = pads.find({id, 0});
    if (at == pads.end()) continue;
    const int64_t padded = g.type(at->second[0]).shape[1];
    const std::optional<ValueId> rows = Widening(g, rewriter, {id, 0}, padded).Run();
    if (!rows) continue;
    for (NodeId pad : at->second) {
      if (g.type(pad).shape[1] == padded) rewriter.Set({pad, 0}, *rows);
    }
    rewriter.Set({id, 0}, rewriter.builder().Slice(*rows, 1, 0, g.type(id).shape[1]));
  }
  return rewriter.Finish();
}

}  // namespace retrograd
