#include "fusion/lower/indexed/based_sums.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "fusion/kernel/build/build.h"
#include "graph/base/status.h"
#include "graph/passes/rewriter.h"

namespace retrograd {
namespace {

// What an accumulate becomes.
struct BasedSum {
  NodeId sum{};
  ValueId base{};
};

class Adder {
 public:
  explicit Adder(const BackwardGraph& g)
      : g_(g), is_output_(g.num_nodes()), absorbed_(g.num_nodes()) {
    for (const GraphOutput& output : g.outputs()) {
      if (output.value) is_output_[Index(output.value->node)] = true;
    }
  }

  absl::StatusOr<BackwardGraph> Run() {
    for (uint32_t i = 0; i < g_.num_nodes(); ++i) Find(NodeId{i});
    if (based_.empty()) return g_;
    Rewriter rewriter(g_);
    for (uint32_t i = 0; i < g_.num_nodes(); ++i) {
      const NodeId id{i};
      if (absorbed_[i]) continue;
      const auto at = based_.find(id);
      if (at == based_.end()) {
        rewriter.Copy(id);
      } else {
        rewriter.UseOrigin(at->second.sum);
        rewriter.Set({id, 0}, Added(id, at->second, rewriter));
      }
      RG_RETURN_IF_ERROR(rewriter.builder().status());
    }
    return rewriter.Finish();
  }

 private:
  bool ReadOnce(NodeId id) const { return g_.uses(id).size() == 1 && !is_output_[Index(id)]; }

  void Find(NodeId id) {
    if (g_.op(id) != Op::accumulate || g_.operands(id).size() != 2) return;
    if (!is_output_[Index(id)] || !g_.uses(id).empty()) return;
    for (const int term : {0, 1}) {
      const ValueId sum = g_.operands(id)[term], other = g_.operands(id)[1 - term];
      const std::optional<ValueId> base = BaseOf(other, g_.type(id).dtype);
      if (!IsSum(sum, id) || g_.type(other).shape != g_.type(id).shape || !base) continue;
      // A product that is made later adds the sums in its epilogue.
      if (BehindViews(g_, *base).node >= sum.node) continue;
      absorbed_[Index(sum.node)] = true;
      if (*base != other && ReadOnce(other.node)) absorbed_[Index(other.node)] = true;
      based_.emplace(id, BasedSum{sum.node, *base});
      return;
    }
  }

  // Whether a term is nothing but sums at indices, of the accumulate's type.
  bool IsSum(ValueId term, NodeId accumulate) const {
    return g_.op(term.node) == Op::segment_add && ReadOnce(term.node) &&
           g_.type(term) == g_.type(accumulate) && IsFloat(g_.type(term).dtype) &&
           IsZero(g_, g_.operands(term.node)[0]);
  }

  // What lies in memory before the sums are made, without a cast that widens it.
  std::optional<ValueId> BaseOf(ValueId term, DType wide) const {
    ValueId base = term;
    if (g_.op(base.node) == Op::cast) {
      base = g_.operands(base.node)[0];
      const DType narrow = g_.type(base).dtype;
      if (!IsFloat(narrow) || SizeBytes(narrow) >= SizeBytes(wide)) return std::nullopt;
    }
    switch (g_.pattern(BehindViews(g_, base).node)) {
      case Pattern::kLibrary:
      case Pattern::kInput:
      case Pattern::kScatter: return base;
      default: return std::nullopt;
    }
  }

  ValueId Added(NodeId id, const BasedSum& based, Rewriter& rewriter) const {
    const absl::Span<const ValueId> operands = g_.operands(based.sum);
    Attrs attrs = g_.node(based.sum).attrs;
    attrs.Set("dtype", std::string(Name(g_.type(id).dtype)));
    return rewriter.builder().Add(
        Op::segment_add,
        {rewriter.New(based.base), rewriter.New(operands[1]), rewriter.New(operands[2])},
        std::move(attrs));
  }

  const BackwardGraph& g_;
  std::vector<bool> is_output_;  // by node
  std::vector<bool> absorbed_;   // by node: made by the sum that stands in place of its reader
  absl::flat_hash_map<NodeId, BasedSum> based_;  // by accumulate
};

}  // namespace

absl::StatusOr<BackwardGraph> SumOntoBases(const BackwardGraph& graph) {
  return Adder(graph).Run();
}

}  // namespace retrograd
