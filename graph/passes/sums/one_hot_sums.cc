#include "graph/passes/sums/one_hot_sums.h"

#include <optional>
#include <vector>

#include "graph/base/status.h"
#include "graph/passes/rewriter.h"

namespace retrograd {
namespace {

// Questions about one axis, which is counted from the last one: ranks may differ, as in a
// broadcast.
class AlongAxis {
 public:
  AlongAxis(const BackwardGraph& graph, size_t from_last, int64_t extent)
      : g_(graph), from_last_(from_last), extent_(extent) {}

  // Whether all terms but one are zero at each place of the other axes.
  bool IsOneHot(ValueId x) const {
    if (ExtentOf(x) != extent_) return false;
    const absl::Span<const ValueId> operands = g_.operands(x.node);
    switch (g_.op(x.node)) {
      case Op::where:
        return HotIndex(operands[0]).has_value() && IsConstant(operands[1]) && IsZero(operands[2]);
      case Op::mul:
        return (IsOneHot(operands[0]) && IsConstant(operands[1])) ||
               (IsConstant(operands[0]) && IsOneHot(operands[1]));
      case Op::div: return IsOneHot(operands[0]) && IsConstant(operands[1]);
      case Op::neg: return IsOneHot(operands[0]);
      case Op::cast: return IsFloat(g_.type(operands[0]).dtype) && IsOneHot(operands[0]);
      default: return false;
    }
  }

  // What the nonzero term is, with an extent of 1 along the axis; zero where there is none.
  ValueId Term(ValueId x, Rewriter& rewriter) const {
    if (!IsOneHot(x)) return Constant(x, rewriter);
    GraphBuilder& builder = rewriter.builder();
    const absl::Span<const ValueId> operands = g_.operands(x.node);
    if (g_.op(x.node) == Op::where) {
      const ValueId index = Constant(*HotIndex(operands[0]), rewriter);
      const DType dtype = builder.type(index).dtype;
      const ValueId first = builder.Full(0, dtype);
      const ValueId end = builder.Full(static_cast<double>(extent_), dtype);
      const ValueId lies_inside = builder.Add(
          Op::logical_and,
          {{builder.Add(Op::ge, {{index, first}}), builder.Add(Op::lt, {{index, end}})}});
      const ValueId zero = builder.Full(0, g_.type(x).dtype);
      return builder.Add(Op::where, {{lies_inside, Constant(operands[1], rewriter), zero}});
    }
    std::vector<ValueId> terms;
    for (const ValueId operand : operands) terms.push_back(Term(operand, rewriter));
    return builder.Add(g_.op(x.node), terms, g_.node(x.node).attrs);
  }

 private:
  int64_t ExtentOf(ValueId x) const {
    const Shape& shape = g_.type(x).shape;
    return from_last_ < shape.size() ? shape[shape.size() - 1 - from_last_] : 1;
  }

  // The value itself or what it is expanded from, if that has one element along the axis.
  std::optional<ValueId> Narrow(ValueId x) const {
    while (ExtentOf(x) != 1 && g_.op(x.node) == Op::expand) x = g_.operands(x.node)[0];
    if (ExtentOf(x) == 1) return x;
    return std::nullopt;
  }

  bool IsFull(ValueId x) const { return g_.op(x.node) == Op::full; }
  bool IsZero(ValueId x) const {
    while (g_.op(x.node) == Op::expand) x = g_.operands(x.node)[0];
    return IsFull(x) && g_.node(x.node).attrs.Float("value") == 0;
  }
  bool IsConstant(ValueId x) const { return IsFull(x) || Narrow(x).has_value(); }

  ValueId Constant(ValueId x, Rewriter& rewriter) const {
    if (IsFull(x)) {
      return rewriter.builder().Full(g_.node(x.node).attrs.Float("value"), g_.type(x).dtype);
    }
    return rewriter.New(*Narrow(x));
  }

  // Whether the value is the index along the axis.
  bool IsIndex(ValueId x) const {
    if (ExtentOf(x) != extent_) return false;
    const absl::Span<const ValueId> operands = g_.operands(x.node);
    switch (g_.op(x.node)) {
      case Op::iota: {
        const Attrs& attrs = g_.node(x.node).attrs;
        const size_t rank = g_.type(x).shape.size();
        return attrs.Int("axis") == static_cast<int64_t>(rank - 1 - from_last_) &&
               attrs.Float("start") == 0 && attrs.Float("step", 1) == 1;
      }
      case Op::expand: return IsIndex(operands[0]);
      case Op::reshape: return IsIndexOfVector(operands[0]) && Elements(x) == extent_;
      default: return false;
    }
  }

  int64_t Elements(ValueId x) const {
    int64_t elements = 1;
    for (const int64_t extent : g_.type(x).shape) elements *= extent;
    return elements;
  }

  // The same of a tensor whose only axis of several elements this is.
  bool IsIndexOfVector(ValueId x) const {
    return Elements(x) == extent_ && g_.type(x).shape.size() == 1 &&
           AlongAxis(g_, 0, extent_).IsIndex(x);
  }

  // What the index is compared with, if `condition` is such a comparison.
  std::optional<ValueId> HotIndex(ValueId condition) const {
    while (g_.op(condition.node) == Op::expand) condition = g_.operands(condition.node)[0];
    if (g_.op(condition.node) != Op::eq || ExtentOf(condition) != extent_) return std::nullopt;
    const ValueId a = g_.operands(condition.node)[0], b = g_.operands(condition.node)[1];
    if (IsFloat(g_.type(a).dtype)) return std::nullopt;  // no whole number, perhaps
    if (IsIndex(a) && IsConstant(b)) return b;
    if (IsIndex(b) && IsConstant(a)) return a;
    return std::nullopt;
  }

  const BackwardGraph& g_;
  size_t from_last_;
  int64_t extent_;
};

// The sum as its only term, or nothing where it may have several.
std::optional<ValueId> OneHotSum(NodeId id, Rewriter& rewriter) {
  const BackwardGraph& g = rewriter.graph();
  if (g.op(id) != Op::sum) return std::nullopt;
  const ValueId x = g.operands(id)[0];
  const absl::Span<const int64_t> axes = g.node(id).attrs.Ints("axes");
  Shape shape = g.type(x).shape;
  if (axes.size() != 1 || shape[axes[0]] < 2) return std::nullopt;
  const size_t from_last = shape.size() - 1 - static_cast<size_t>(axes[0]);
  const AlongAxis along(g, from_last, shape[axes[0]]);
  if (!along.IsOneHot(x)) return std::nullopt;
  const ValueId term = along.Term(x, rewriter);
  shape[axes[0]] = 1;
  GraphBuilder& builder = rewriter.builder();
  return builder.Reshape(builder.Expand(term, shape), g.type(id).shape);
}

}  // namespace

absl::StatusOr<BackwardGraph> TakeOneHotSums(const BackwardGraph& graph) {
  Rewriter rewriter(graph);
  for (uint32_t i = 0; i < graph.num_nodes(); ++i) {
    const NodeId id{i};
    rewriter.UseOrigin(id);
    if (const std::optional<ValueId> term = OneHotSum(id, rewriter)) {
      rewriter.Set({id, 0}, *term);
    } else {
      rewriter.Copy(id);
    }
    RG_RETURN_IF_ERROR(rewriter.builder().status());
  }
  return rewriter.Finish();
}

}  // namespace retrograd
