#include "graph/one_hot.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "graph/rewriter.h"

namespace retrograd {
namespace {

class Summing {
 public:
  explicit Summing(const BackwardGraph& g) : g_(g), rewriter_(g), b_(rewriter_.builder()) {}

  absl::StatusOr<BackwardGraph> Run() {
    for (uint32_t i = 0; i < g_.num_nodes(); ++i) {
      if (!Sum(NodeId{i})) rewriter_.Copy(NodeId{i});
    }
    return rewriter_.Finish();
  }

 private:
  // Row values of the new graph: the column that is hot, and what stands there.
  struct OneHot {
    ValueId column, value;
    int64_t begin = 0, end = 0;  // the columns that there are
  };

  bool Sum(NodeId id) {
    if (g_.op(id) != Op::sum) return false;
    const ValueId rows = g_.operands(id)[0];
    const auto axes = g_.node(id).attrs.Ints("axes");
    const int64_t rank = g_.type(rows).rank();
    if (axes.size() != 1 || axes[0] != rank - 1) return false;
    rewriter_.UseOrigin(id);
    const std::optional<OneHot> hot = Of(rows);
    if (!hot) return false;
    const auto bound = [&](int64_t at) {
      return b_.Full(static_cast<double>(at), b_.type(hot->column).dtype);
    };
    const ValueId from = b_.Add(Op::le, {bound(hot->begin), hot->column});
    const ValueId to = b_.Add(Op::lt, {hot->column, bound(hot->end)});
    ValueId sum = b_.Add(Op::where, {from, hot->value, b_.Full(0, g_.type(id).dtype)});
    sum = b_.Add(Op::where, {to, sum, b_.Full(0, g_.type(id).dtype)});
    Shape kept = g_.type(rows).shape;
    kept.back() = 1;
    if (b_.type(sum).shape != kept) sum = b_.Expand(sum, kept);
    rewriter_.Set({id, 0}, b_.Reshape(sum, g_.type(id).shape));
    return true;
  }

  bool OnePerRow(ValueId v) const {
    const Shape& shape = g_.type(v).shape;
    return shape.empty() || shape.back() == 1;
  }

  // What has one value a row, seen through expansions along the row: that value, of extent 1 there.
  std::optional<ValueId> RowValue(ValueId v) {
    while (!OnePerRow(v)) {
      if (g_.op(v.node) != Op::expand) return std::nullopt;
      v = g_.operands(v.node)[0];
    }
    return rewriter_.New(v);
  }

  bool IsZero(ValueId v) const {
    while (g_.op(v.node) == Op::expand || g_.op(v.node) == Op::reshape) v = g_.operands(v.node)[0];
    return g_.op(v.node) == Op::full && g_.node(v.node).attrs.Float("value") == 0;
  }

  // The first column and one past the last of a row of consecutive column numbers.
  std::optional<std::pair<int64_t, int64_t>> Columns(ValueId v) const {
    const int64_t length = g_.type(v).shape.empty() ? 0 : g_.type(v).shape.back();
    while (g_.op(v.node) == Op::expand || g_.op(v.node) == Op::reshape) {
      v = g_.operands(v.node)[0];
      if (g_.type(v).shape.empty() || g_.type(v).shape.back() != length) return std::nullopt;
    }
    const Attrs& attrs = g_.node(v.node).attrs;
    if (g_.op(v.node) != Op::iota || attrs.Int("axis") != g_.type(v).rank() - 1) return std::nullopt;
    if (attrs.Int("step") != 1) return std::nullopt;
    return std::pair(attrs.Int("start"), attrs.Int("start") + length);
  }

  std::optional<OneHot> Of(ValueId v) {
    const absl::Span<const ValueId> operands = g_.operands(v.node);
    switch (g_.op(v.node)) {
      case Op::where: return IsZero(operands[2]) ? Where(operands) : std::nullopt;
      case Op::cast: {
        std::optional<OneHot> hot = Of(operands[0]);
        if (hot) hot->value = b_.Cast(hot->value, g_.type(v).dtype);
        return hot;
      }
      case Op::mul:
        for (const int side : {0, 1}) {
          const std::optional<ValueId> factor = RowValue(operands[1 - side]);
          if (!factor) continue;
          std::optional<OneHot> hot = Of(operands[side]);
          if (hot) hot->value = b_.Add(Op::mul, {hot->value, *factor});
          return hot;
        }
        return std::nullopt;
      default: return std::nullopt;
    }
  }

  std::optional<OneHot> Where(absl::Span<const ValueId> operands) {
    const NodeId condition = operands[0].node;
    if (g_.op(condition) == Op::eq) {
      for (const int side : {0, 1}) {
        const auto columns = Columns(g_.operands(condition)[side]);
        const auto hot = RowValue(g_.operands(condition)[1 - side]);
        const auto value = RowValue(operands[1]);
        if (columns && hot && value) return OneHot{*hot, *value, columns->first, columns->second};
      }
    }
    if (g_.op(condition) == Op::lt) {  // iota < length
      const auto columns = Columns(g_.operands(condition)[0]);
      const ValueId length = g_.operands(condition)[1];
      if (!columns || g_.op(length.node) != Op::full) return std::nullopt;
      std::optional<OneHot> hot = Of(operands[1]);
      if (hot && hot->begin == columns->first) {
        hot->end = std::min(hot->end, static_cast<int64_t>(g_.node(length.node).attrs.Float("value")));
        return hot;
      }
    }
    return std::nullopt;
  }

  const BackwardGraph& g_;
  Rewriter rewriter_;
  GraphBuilder& b_;
};

}  // namespace

absl::StatusOr<BackwardGraph> SumOneHots(const BackwardGraph& graph) { return Summing(graph).Run(); }

}  // namespace retrograd
