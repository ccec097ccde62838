#include "fusion/lower/indexed/sort_indices.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "fusion/kernel/build/build.h"
#include "fusion/kernel/templates/schedule.h"
#include "graph/base/status.h"
#include "graph/passes/rewriter.h"

namespace retrograd {
namespace {

class Sorter {
 public:
  explicit Sorter(const BackwardGraph& g) : g_(g), rewriter_(g), builder_(rewriter_.builder()) {}

  absl::StatusOr<BackwardGraph> Run() {
    for (uint32_t i = 0; i < g_.num_nodes(); ++i) {
      const NodeId id{i};
      if (g_.op(id) == Op::cast && NarrowedBy(g_.operands(id)[0].node) == id) {
        rewriter_.Set({id, 0}, rewriter_.New(g_.operands(id)[0]));
      } else if (g_.op(id) == Op::index_add || g_.op(id) == Op::segment_add) {
        rewriter_.UseOrigin(id);
        rewriter_.Set({id, 0}, SegmentAdd(id));
      } else {
        rewriter_.Copy(id);
      }
    }
    return rewriter_.Finish();
  }

 private:
  // The cast that alone reads the table of an index_add onto zeros, if it narrows what the sums are
  // made in anyway: they are then rounded once, as they are stored.
  std::optional<NodeId> NarrowedBy(NodeId id) const {
    if (g_.op(id) != Op::index_add || !IsZero(g_, g_.operands(id)[0])) return std::nullopt;
    if (g_.uses(id).size() != 1 || IsOutput(id)) return std::nullopt;
    const NodeId reader = g_.uses(id)[0].user;
    if (g_.op(reader) != Op::cast) return std::nullopt;
    const DType wide = g_.type(id).dtype, narrow = g_.type(reader).dtype;
    const bool narrows = IsFloat(wide) && IsFloat(narrow) && SizeBytes(narrow) < SizeBytes(wide);
    if (!narrows || AccumulatorType(narrow) != AccumulatorType(wide)) return std::nullopt;
    return reader;
  }

  bool IsOutput(NodeId id) const {
    return std::any_of(g_.outputs().begin(), g_.outputs().end(),
                       [&](const GraphOutput& out) { return out.value && out.value->node == id; });
  }

  ValueId SegmentAdd(NodeId id) {
    const auto operands = g_.operands(id);
    const Attrs& attrs = g_.node(id).attrs;
    const std::optional<NodeId> cast = NarrowedBy(id);
    const TensorType type = g_.type(cast ? *cast : id);
    ValueId base = rewriter_.New(operands[0]);
    const bool onto_zero = IsZero(g_, operands[0]);
    const bool zero_there = onto_zero && !cast;
    const ValueId zero = zero_there ? base : builder_.Full(0, type.dtype, type.shape);
    const ValueId list = ListOf(id), src = SourceOf(id);
    const ValueId added = builder_.Add(Op::segment_add, {zero, list, src}, attrs);
    if (onto_zero) return added;
    base = builder_.Cast(base, type.dtype);
    return builder_.Add(
        Op::accumulate, {base, added},
        {{"shape", type.shape}, {"starts", std::vector<int64_t>(2 * type.shape.size(), 0)}});
  }

  // The source with one axis where the index has any number.
  ValueId SourceOf(NodeId id) {
    const auto operands = g_.operands(id);
    const ValueId src = rewriter_.New(operands[2]);
    if (g_.op(id) == Op::segment_add) return src;
    Shape shape = g_.type(id).shape;
    shape[g_.node(id).attrs.Int("axis")] = g_.type(operands[1]).elements();
    return Shaped(src, std::move(shape));
  }

  ValueId Shaped(ValueId v, Shape shape) {
    return builder_.type(v).shape == shape ? v : builder_.Reshape(v, std::move(shape));
  }

  ValueId ListOf(NodeId id) {
    const ValueId index = g_.operands(id)[1];
    if (g_.op(id) == Op::segment_add) return rewriter_.New(index);
    return Sorted(index, g_.type(id).shape[g_.node(id).attrs.Int("axis")]);
  }

  ValueId Sorted(ValueId index, int64_t rows) {
    auto [at, added] = sorted_.try_emplace({index, rows});
    if (added) {
      const ValueId list = Shaped(rewriter_.New(index), {g_.type(index).elements()});
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
    if (graph.pattern(NodeId{i}) == Pattern::kScatter) return Sorter(graph).Run();
  }
  return graph;
}

}  // namespace retrograd
