#include "fusion/lower/rematerialize.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "fusion/analysis/barrier_depths.h"
#include "fusion/analysis/cheap_sources.h"
#include "fusion/analysis/consumers.h"
#include "fusion/kernel/build/build.h"
#include "graph/base/status.h"
#include "graph/passes/rewriter.h"

namespace retrograd {
namespace {

class KernelSplit {
 public:
  KernelSplit(const BackwardGraph& g, const SinkOptions& sinking)
      : g_(g),
        consumers_(g),
        rewriter_(g),
        sources_(Sources(g, sinking.free)),
        depth_(BarrierDepths(g, consumers_, std::vector<bool>(g.num_nodes(), false), sinking)) {
    for (uint32_t i = 0; i < g.num_nodes(); ++i) separated_.push_back(MayBeSeparated(NodeId{i}));
  }

  bool Any() const {
    for (uint32_t i = 0; i < g_.num_nodes(); ++i) {
      if (!separated_[i]) continue;
      for (NodeId reader : consumers_.of(NodeId{i})) {
        if (!IsBarrier(g_, reader) && depth_[Index(reader)] != depth_[i]) return true;
      }
    }
    return false;
  }

  absl::StatusOr<BackwardGraph> Run() {
    for (uint32_t i = 0; i < g_.num_nodes(); ++i) {
      const NodeId id{i};
      if (g_.pattern(id) == Pattern::kView || !Computes(g_, id) || IsBarrier(g_, id)) {
        rewriter_.Copy(id);
        continue;
      }
      operands_.clear();
      for (ValueId v : g_.operands(id)) operands_.push_back(Read(v, depth_[i]));
      rewriter_.UseOrigin(id);
      rewriter_.CopyOver(id, operands_);
    }
    return rewriter_.Finish();
  }

 private:
  bool MayBeSeparated(NodeId id) const {
    const std::optional<ValueId>& source = sources_[Index(id)];
    if (!source || consumers_.is_output(id)) return false;
    if (SizeBytes(g_.type(*source).dtype) < SizeBytes(g_.type(id).dtype)) return true;
    const auto& readers = consumers_.of(id);
    return std::none_of(readers.begin(), readers.end(),
                        [this](NodeId reader) { return IsBarrier(g_, reader); });
  }

  // What an op at this depth reads in place of an old value.
  ValueId Read(ValueId old, int depth) {
    const NodeId made = BehindViews(g_, old).node;
    if (!separated_[Index(made)] || depth_[Index(made)] == depth) return rewriter_.New(old);
    if (const auto at = own_.find({old, depth}); at != own_.end()) return at->second;
    // Views in between are the depth's own as well.
    std::vector<ValueId> operands;
    for (ValueId v : g_.operands(old.node)) operands.push_back(Read(v, depth));
    const Node& node = g_.node(old.node);
    rewriter_.UseOrigin(old.node);
    return own_[{old, depth}] = rewriter_.builder().Add(node.op, operands, node.attrs);
  }

  const BackwardGraph& g_;
  const Consumers consumers_;
  Rewriter rewriter_;
  const std::vector<std::optional<ValueId>> sources_;
  const std::vector<int> depth_;
  std::vector<bool> separated_;
  absl::flat_hash_map<std::pair<ValueId, int>, ValueId> own_;
  std::vector<ValueId> operands_;
};

}  // namespace

absl::StatusOr<BackwardGraph> RematerializeAtBarriers(const BackwardGraph& graph,
                                                      const SinkOptions& sinking) {
  KernelSplit split(graph, sinking);
  if (!split.Any()) return graph;
  return split.Run();
}

}  // namespace retrograd
