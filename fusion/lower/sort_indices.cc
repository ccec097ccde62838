#include "fusion/lower/sort_indices.h"

#include <utility>

#include "absl/container/flat_hash_map.h"
#include "fusion/kernel/build/build.h"
#include "graph/base/status.h"
#include "graph/passes/rewriter.h"

namespace retrograd {
namespace {

bool IsZero(const BackwardGraph& g, ValueId v) {
  v = BehindViews(g, v);
  return g.op(v.node) == Op::full && g.node(v.node).attrs.Float("value") == 0;
}

class Sorter {
 public:
  explicit Sorter(const BackwardGraph& g) : g_(g), rewriter_(g), builder_(rewriter_.builder()) {}

  absl::StatusOr<BackwardGraph> Run() {
    for (uint32_t i = 0; i < g_.num_nodes(); ++i) {
      const NodeId id{i};
      if (g_.op(id) != Op::index_add) {
        rewriter_.Copy(id);
        continue;
      }
      rewriter_.UseOrigin(id);
      rewriter_.Set({id, 0}, SegmentAdd(id));
    }
    return rewriter_.Finish();
  }

 private:
  ValueId SegmentAdd(NodeId id) {
    const auto operands = g_.operands(id);
    const Attrs& attrs = g_.node(id).attrs;
    const int64_t axis = attrs.Int("axis");
    const TensorType type = g_.type(id);
    ValueId base = rewriter_.New(operands[0]);
    const bool onto_zero = IsZero(g_, operands[0]);
    const ValueId zero = onto_zero ? base : builder_.Full(0, type.dtype, type.shape);
    // The source with one axis where the index has any number.
    Shape source = type.shape;
    source[axis] = g_.type(operands[1]).elements();
    const ValueId src = builder_.Reshape(rewriter_.New(operands[2]), std::move(source));
    const ValueId sorted = Sorted(operands[1], type.shape[axis]);
    const ValueId added = builder_.Add(Op::segment_add, {zero, sorted, src}, attrs);
    if (onto_zero) return added;
    return builder_.Add(
        Op::accumulate, {base, added},
        {{"shape", type.shape}, {"starts", std::vector<int64_t>(2 * type.shape.size(), 0)}});
  }

  ValueId Sorted(ValueId index, int64_t rows) {
    auto [at, added] = sorted_.try_emplace({index, rows});
    if (added) {
      const ValueId list = builder_.Reshape(rewriter_.New(index), {g_.type(index).elements()});
      at->second = builder_.Add(Op::sort_indices, {list}, {{"rows", rows}});
    }
    return at->second;
  }

  const BackwardGraph& g_;
  Rewriter rewriter_;
  GraphBuilder& builder_;
  absl::flat_hash_map<std::pair<ValueId, int64_t>, ValueId> sorted_;  // by old index and rows
};

}  // namespace

absl::StatusOr<BackwardGraph> SortIndices(const BackwardGraph& graph) {
  for (uint32_t i = 0; i < graph.num_nodes(); ++i) {
    if (graph.op(NodeId{i}) == Op::index_add) return Sorter(graph).Run();
  }
  return graph;
}

}  // namespace retrograd
