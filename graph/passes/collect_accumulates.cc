#include <algorithm>

#include "graph/base/status.h"
#include "graph/passes/accumulate.h"
#include "graph/passes/rewriter.h"

namespace retrograd {
namespace {

// One contribution: a value and where its region begins in the sum.
struct Term {
  ValueId value;
  std::vector<int64_t> start;
};

std::vector<int64_t> ScatterStart(const BackwardGraph& graph, NodeId scatter) {
  std::vector<int64_t> start(graph.type(scatter).shape.size());
  const Attrs& attrs = graph.node(scatter).attrs;
  start[attrs.Int("axis")] = attrs.Int("start");
  return start;
}

bool Disjoint(const std::vector<int64_t>& a, const Shape& a_shape, const std::vector<int64_t>& b,
              const Shape& b_shape) {
  for (size_t d = 0; d < a.size(); ++d) {
    if (a[d] + a_shape[d] <= b[d] || b[d] + b_shape[d] <= a[d]) return true;
  }
  return false;
}

class Collector {
 public:
  explicit Collector(const BackwardGraph& graph)
      : graph_(graph), is_output_(graph.num_nodes()), is_tree_(graph.num_nodes()) {
    for (const GraphOutput& output : graph.outputs()) {
      if (output.value.has_value()) is_output_[Index(output.value->node)] = true;
    }
    for (uint32_t i = 0; i < graph.num_nodes(); ++i) is_tree_[i] = IsTree(NodeId{i});
  }

  absl::StatusOr<BackwardGraph> Run() {
    if (std::find(is_tree_.begin(), is_tree_.end(), true) == is_tree_.end()) return graph_;
    Rewriter rewriter(graph_);
    for (uint32_t i = 0; i < graph_.num_nodes(); ++i) {
      const NodeId id{i};
      if (is_tree_[i]) {
        if (!Absorbed(id)) Emit(rewriter, id);
      } else if (!AbsorbedPad(id)) {
        rewriter.Copy(id);
      }
      RG_RETURN_IF_ERROR(rewriter.builder().status());
    }
    return rewriter.Finish();
  }

 private:
  bool IsZero(NodeId id) const {
    return graph_.op(id) == Op::full && graph_.node(id).attrs.Float("value") == 0;
  }

  bool ReadOnce(NodeId id) const { return graph_.uses(id).size() == 1 && !is_output_[Index(id)]; }

  bool IsTree(NodeId id) const {
    if (!IsFloat(graph_.type(id).dtype)) return false;
    if (graph_.op(id) == Op::add) {
      return graph_.type(graph_.operands(id)[0]) == graph_.type(id) &&
             graph_.type(graph_.operands(id)[1]) == graph_.type(id);
    }
    return graph_.op(id) == Op::slice_scatter && IsScatterIntoZeros(id);
  }

  bool IsScatterIntoZeros(NodeId id) const {
    if (graph_.node(id).attrs.Int("step") != 1) return false;
    const ValueId base = graph_.operands(id)[0];
    if (IsZero(base.node)) return true;
    if (graph_.op(base.node) != Op::slice_scatter || !is_tree_[Index(base.node)] ||
        !ReadOnce(base.node)) {
      return false;
    }
    // What is written later replaces what is there: only disjoint regions add up.
    for (NodeId earlier = base.node; graph_.op(earlier) == Op::slice_scatter;
         earlier = graph_.operands(earlier)[0].node) {
      if (!Disjoint(ScatterStart(graph_, id), graph_.type(graph_.operands(id)[1]).shape,
                    ScatterStart(graph_, earlier),
                    graph_.type(graph_.operands(earlier)[1]).shape)) {
        return false;
      }
    }
    return true;
  }

  // Whether a tree node is part of its only reader's tree.
  bool Absorbed(NodeId id) const {
    if (!ReadOnce(id)) return false;
    const Use& use = graph_.uses(id)[0];
    if (!is_tree_[Index(use.user)]) return false;
    return graph_.op(use.user) == Op::add ||
           (use.operand == 0 && graph_.op(id) == Op::slice_scatter);
  }

  // A pad with zeros that is only a term of a sum.
  bool AbsorbedPad(NodeId id) const {
    if (graph_.op(id) != Op::pad || graph_.node(id).attrs.Float("value") != 0) return false;
    if (!ReadOnce(id)) return false;
    const NodeId user = graph_.uses(id)[0].user;
    return graph_.op(user) == Op::add && is_tree_[Index(user)];
  }

  // The terms under a root, depth first, left to right.
  std::vector<Term> Terms(NodeId root) const {
    std::vector<Term> terms;
    std::vector<ValueId> stack = {{root, 0}};
    std::vector<NodeId> scatters;
    while (!stack.empty()) {
      const ValueId v = stack.back();
      stack.pop_back();
      const bool inner = is_tree_[Index(v.node)] && (v.node == root || Absorbed(v.node));
      if (inner && graph_.op(v.node) == Op::add) {
        stack.push_back(graph_.operands(v.node)[1]);
        stack.push_back(graph_.operands(v.node)[0]);
      } else if (inner) {
        scatters.clear();
        for (NodeId s = v.node; graph_.op(s) == Op::slice_scatter; s = graph_.operands(s)[0].node) {
          scatters.push_back(s);
        }
        std::reverse(scatters.begin(), scatters.end());
        for (NodeId s : scatters) {
          terms.push_back({graph_.operands(s)[1], ScatterStart(graph_, s)});
        }
      } else if (AbsorbedPad(v.node)) {
        const absl::Span<const int64_t> low = graph_.node(v.node).attrs.Ints("low");
        terms.push_back({graph_.operands(v.node)[0], {low.begin(), low.end()}});
      } else {
        terms.push_back({v, std::vector<int64_t>(graph_.type(v).shape.size())});
      }
    }
    return terms;
  }

  void Emit(Rewriter& rewriter, NodeId root) const {
    std::vector<ValueId> values;
    std::vector<int64_t> starts;
    for (const Term& term : Terms(root)) {
      values.push_back(rewriter.New(term.value));
      starts.insert(starts.end(), term.start.begin(), term.start.end());
    }
    rewriter.UseOrigin(root);
    rewriter.Set({root, 0}, rewriter.builder().Add(Op::accumulate, values,
                                                   {{"shape", graph_.type(root).shape},
                                                    {"starts", std::move(starts)}}));
  }

  const BackwardGraph& graph_;
  std::vector<bool> is_output_;  // by node
  std::vector<bool> is_tree_;    // by node: an add or scatter that collecting replaces
};

}  // namespace

absl::StatusOr<BackwardGraph> CollectAccumulates(const BackwardGraph& graph) {
  return Collector(graph).Run();
}

}  // namespace retrograd
