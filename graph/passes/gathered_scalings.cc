#include "graph/passes/gathered_scalings.h"

#include <optional>
#include <vector>

#include "graph/base/status.h"
#include "graph/passes/rewriter.h"

namespace retrograd {
namespace {

// op(x), or of two operands op(x, number) or op(number, x).
struct Scaling {
  NodeId node{0};
  int x = 0;  // which operand it is
};

class Mover {
 public:
  explicit Mover(const BackwardGraph& g)
      : g_(g), rewriter_(g), is_output_(g.num_nodes(), false), moved_(g.num_nodes(), false) {
    for (const GraphOutput& out : g.outputs()) {
      if (out.value) is_output_[Index(out.value->node)] = true;
    }
  }

  absl::StatusOr<BackwardGraph> Run() {
    for (uint32_t i = 0; i < g_.num_nodes(); ++i) {
      for (const Scaling& s : ScalingsOf(NodeId{i})) moved_[Index(s.node)] = true;
    }
    for (uint32_t i = 0; i < g_.num_nodes(); ++i) {
      const NodeId id{i};
      if (moved_[i]) continue;
      const std::vector<Scaling> scalings = ScalingsOf(id);
      if (scalings.empty()) {
        rewriter_.Copy(id);
      } else {
        rewriter_.Set({id, 0}, Scaled(id, scalings));
      }
    }
    return rewriter_.Finish();
  }

 private:
  // The number that the value is everywhere, as one of one element.
  std::optional<ValueId> NumberOf(ValueId v) const {
    if (g_.op(v.node) == Op::expand) v = g_.operands(v.node)[0];
    if (g_.type(v).elements() != 1) return std::nullopt;
    return v;
  }

  bool IsNonZeroConstant(ValueId v) const {
    if (g_.op(v.node) == Op::expand) v = g_.operands(v.node)[0];
    return g_.op(v.node) == Op::full && g_.node(v.node).attrs.Float("value") != 0;
  }

  // No kernel makes it: an input, or what a library call leaves.
  bool IsStoredAnyway(ValueId v) const {
    while (g_.pattern(v.node) == Pattern::kView) v = g_.operands(v.node)[0];
    return g_.pattern(v.node) == Pattern::kInput || g_.pattern(v.node) == Pattern::kLibrary;
  }

  std::optional<Scaling> ScalingAt(ValueId v) const {
    const NodeId id = v.node;
    if (g_.uses(id).size() != 1 || is_output_[Index(id)]) return std::nullopt;
    const absl::Span<const ValueId> operands = g_.operands(id);
    const auto scales = [&](int x) {
      return g_.type(operands[x]).shape == g_.type(id).shape && NumberOf(operands[1 - x]);
    };
    switch (g_.op(id)) {
      case Op::neg:
      case Op::cast: return Scaling{id, 0};
      case Op::mul:
        if (scales(0)) return Scaling{id, 0};
        return scales(1) ? std::optional(Scaling{id, 1}) : std::nullopt;
      case Op::div:
        return scales(0) && IsNonZeroConstant(operands[1]) ? std::optional(Scaling{id, 0})
                                                           : std::nullopt;
      default: return std::nullopt;
    }
  }

  // What scales the rows of an index_select, the last one first.
  std::vector<Scaling> ScalingsOf(NodeId id) const {
    std::vector<Scaling> scalings;
    if (g_.op(id) != Op::index_select) return scalings;
    ValueId at = g_.operands(id)[0];
    const bool repeats = g_.type(id).elements() > g_.type(at).elements();
    while (const std::optional<Scaling> s = ScalingAt(at)) {
      const ValueId x = g_.operands(s->node)[s->x];
      if ((repeats || !IsStoredAnyway(x)) &&
          SizeBytes(g_.type(x).dtype) > SizeBytes(g_.type(at).dtype))
        break;
      scalings.push_back(*s);
      at = x;
    }
    return scalings;
  }

  ValueId Scaled(NodeId gather, const std::vector<Scaling>& scalings) {
    GraphBuilder& builder = rewriter_.builder();
    const Scaling& first = scalings.back();
    const ValueId rows = rewriter_.New(g_.operands(first.node)[first.x]);
    rewriter_.UseOrigin(gather);
    ValueId v = builder.Add(Op::index_select, {rows, rewriter_.New(g_.operands(gather)[1])},
                            g_.node(gather).attrs);
    for (size_t n = scalings.size(); n-- > 0;) {
      const Scaling& s = scalings[n];
      const absl::Span<const ValueId> operands = g_.operands(s.node);
      std::vector<ValueId> scaled(operands.size(), v);
      rewriter_.UseOrigin(s.node);
      if (operands.size() == 2) {
        scaled[1 - s.x] = builder.Reshape(rewriter_.New(*NumberOf(operands[1 - s.x])), {});
      }
      v = builder.Add(g_.op(s.node), scaled, g_.node(s.node).attrs);
    }
    return v;
  }

  const BackwardGraph& g_;
  Rewriter rewriter_;
  std::vector<bool> is_output_, moved_;  // by node
};

}  // namespace

absl::StatusOr<BackwardGraph> ScaleBehindGathers(const BackwardGraph& graph) {
  for (uint32_t i = 0; i < graph.num_nodes(); ++i) {
    if (graph.op(NodeId{i}) == Op::index_select) return Mover(graph).Run();
  }
  return graph;
}

}  // namespace retrograd
