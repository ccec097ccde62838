#include "graph/passes/short_scans.h"

#include <utility>
#include <vector>

#include "graph/passes/rewriter.h"

namespace retrograd {
namespace {

// Search bound: each place is a slice, an op and a part of a cat. Products over two sides of a box,
// three coordinates and four components of a quaternion are such.
constexpr int64_t kFewPlaces = 4;

bool IsShort(const BackwardGraph& g, NodeId id) {
  if (g.pattern(id) != Pattern::kScan) return false;
  const int64_t places = g.type(id).shape[g.node(id).attrs.Int("axis")];
  return places >= 1 && places <= kFewPlaces;
}

void Expand(NodeId id, Rewriter& rewriter) {
  rewriter.UseOrigin(id);
  const BackwardGraph& g = rewriter.graph();
  GraphBuilder& b = rewriter.builder();
  const TensorType& type = g.type(id);
  const int64_t axis = g.node(id).attrs.Int("axis"), places = type.shape[axis];
  const bool reverse = g.node(id).attrs.Int("reverse") != 0;
  const Op fold = g.op(id) == Op::cumsum ? Op::add : Op::mul;
  const DType wide = IsFloat(type.dtype) ? ComputeType(type.dtype) : type.dtype;
  const ValueId x = rewriter.NewOperands(id)[0];
  std::vector<ValueId> parts(places);
  ValueId folded;
  for (int64_t n = 0; n < places; ++n) {
    const int64_t place = reverse ? places - 1 - n : n;
    const ValueId part = b.Cast(b.Slice(x, axis, place, place + 1), wide);
    folded = n == 0 ? part : b.Add(fold, {folded, part});
    parts[place] = b.Cast(folded, type.dtype);
  }
  rewriter.Set({id, 0}, b.Cat(parts, axis));
}

}  // namespace

absl::StatusOr<BackwardGraph> ExpandShortScans(const BackwardGraph& graph) {
  bool any = false;
  for (uint32_t i = 0; i < graph.num_nodes(); ++i) any |= IsShort(graph, NodeId{i});
  if (!any) return graph;
  Rewriter rewriter(graph);
  for (uint32_t i = 0; i < graph.num_nodes(); ++i) {
    IsShort(graph, NodeId{i}) ? Expand(NodeId{i}, rewriter) : rewriter.Copy(NodeId{i});
  }
  return rewriter.Finish();
}

}  // namespace retrograd
