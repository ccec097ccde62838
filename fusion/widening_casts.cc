#include "fusion/widening_casts.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "fusion/consumers.h"
#include "fusion/kernel/build.h"
#include "fusion/regions.h"
#include "graph/rewriter.h"
#include "graph/status.h"

namespace retrograd {
namespace {

class Parting {
 public:
  explicit Parting(const BackwardGraph& g)
      : g_(g), consumers_(g), rewriter_(g),
        depth_(BarrierDepths(g, consumers_, std::vector<bool>(g.num_nodes(), false))) {}

  bool Any() const {
    for (uint32_t i = 0; i < g_.num_nodes(); ++i) {
      if (!IsParted(NodeId{i})) continue;
      for (NodeId reader : consumers_.of(NodeId{i})) {
        if (Place(reader) != depth_[i]) return true;
      }
    }
    return false;
  }

  absl::StatusOr<BackwardGraph> Run() {
    for (uint32_t i = 0; i < g_.num_nodes(); ++i) {
      const NodeId id{i};
      if (g_.pattern(id) == Pattern::kView || !Computes(g_, id)) {
        rewriter_.Copy(id);
        continue;
      }
      operands_.clear();
      for (ValueId v : g_.operands(id)) operands_.push_back(Read(v, Place(id)));
      rewriter_.UseOrigin(id);
      rewriter_.CopyOver(id, operands_);
    }
    return rewriter_.Finish();
  }

 private:
  bool IsParted(NodeId id) const { return IsWideningCast(g_, id) && !consumers_.is_output(id); }

  // The depth at which an op reads: a barrier reads before it.
  int Place(NodeId reader) const { return depth_[Index(reader)] - (IsBarrier(g_, reader) ? 1 : 0); }

  // What an op at this depth reads in place of an old value.
  ValueId Read(ValueId old, int depth) {
    const NodeId made = BehindViews(g_, old).node;
    if (!IsParted(made) || depth_[Index(made)] == depth) return rewriter_.New(old);
    auto [at, added] = own_.try_emplace({old, depth});
    if (!added) return at->second;
    // Views in between are the depth's own as well.
    const ValueId operand = g_.operands(old.node)[0];
    const ValueId under = old.node == made ? rewriter_.New(operand) : Read(operand, depth);
    const Node& node = g_.node(old.node);
    rewriter_.UseOrigin(old.node);
    return own_[{old, depth}] = rewriter_.builder().Add(node.op, {under}, node.attrs);
  }

  const BackwardGraph& g_;
  const Consumers consumers_;
  Rewriter rewriter_;
  const std::vector<int> depth_;
  absl::flat_hash_map<std::pair<ValueId, int>, ValueId> own_;
  std::vector<ValueId> operands_;
};

}  // namespace

bool IsWideningCast(const BackwardGraph& g, NodeId id) {
  if (g.op(id) != Op::cast) return false;
  const TensorType &from = g.type(g.operands(id)[0]), &to = g.type(id);
  return SizeBytes(to.dtype) > SizeBytes(from.dtype) && to.elements() >= kSharedElements;
}

absl::StatusOr<BackwardGraph> PartWideningCasts(const BackwardGraph& graph) {
  Parting parting(graph);
  if (!parting.Any()) return graph;
  return parting.Run();
}

}  // namespace retrograd
