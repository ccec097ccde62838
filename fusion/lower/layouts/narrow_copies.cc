#include "fusion/lower/layouts/narrow_copies.h"

#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "fusion/analysis/strided_view.h"
#include "fusion/kernel/build/build.h"
#include "graph/passes/rewriter.h"

namespace retrograd {
namespace {

bool WidensInAnotherOrder(const BackwardGraph& g, absl::Span<const Layout> layouts, NodeId id) {
  if (g.op(id) != Op::cast) return false;
  const ValueId wide{id, 0}, narrow = g.operands(id)[0];
  if (SizeBytes(g.type(wide).dtype) <= SizeBytes(g.type(narrow).dtype)) return false;
  const ValueId stored = BehindViews(g, narrow);
  if (IsElementwise(g, stored.node) || IsConstant(g, stored.node)) return false;
  if (g.type(stored).elements() < g.type(narrow).elements()) return false;  // repeated
  const int lies = FastestDim(g, layouts, wide), reads = FastestDim(g, layouts, narrow);
  return lies >= 0 && reads >= 0 && lies != reads;
}

}  // namespace

absl::StatusOr<BackwardGraph> CopyForWideningCasts(const BackwardGraph& graph,
                                                   absl::Span<const Layout> layouts) {
  absl::flat_hash_set<NodeId> casts;
  for (uint32_t i = 0; i < graph.num_nodes(); ++i) {
    if (WidensInAnotherOrder(graph, layouts, NodeId{i})) casts.insert(NodeId{i});
  }
  if (casts.empty()) return graph;
  Rewriter rewriter(graph);
  // By what is copied, and the dim along which it then lies.
  absl::flat_hash_map<std::pair<ValueId, int>, ValueId> copies;
  for (uint32_t i = 0; i < graph.num_nodes(); ++i) {
    const NodeId id{i};
    if (!casts.contains(id)) {
      rewriter.Copy(id);
      continue;
    }
    rewriter.UseOrigin(id);
    const ValueId narrow = graph.operands(id)[0];
    const auto [copy, added] = copies.try_emplace({narrow, FastestDim(graph, layouts, {id, 0})});
    if (added) copy->second = rewriter.builder().Add(Op::copy, {rewriter.New(narrow)});
    rewriter.CopyOver(id, {copy->second});
  }
  return rewriter.Finish();
}

}  // namespace retrograd
