#include "fusion/rematerialize.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "fusion/barrier_depths.h"
#include "fusion/consumers.h"
#include "fusion/kernel/build.h"
#include "graph/rewriter.h"
#include "graph/status.h"

namespace retrograd {
namespace {

// An operand of at most this share of the result's elements (a row's statistic, a weight) is free
// to read.
constexpr int64_t kSmallOperand = 8;

class Sourcing {
 public:
  explicit Sourcing(const BackwardGraph& g) : g_(g), ops_(g.num_nodes(), 0) {
    sources_.reserve(g.num_nodes());
    for (uint32_t i = 0; i < g.num_nodes(); ++i) sources_.push_back(Of(NodeId{i}));
  }
  std::vector<std::optional<ValueId>> Take() { return std::move(sources_); }

 private:
  int Bytes(ValueId v) const { return SizeBytes(g_.type(v).dtype); }

  std::optional<ValueId> Of(NodeId id) {
    const TensorType& type = g_.type(id);
    if (g_.pattern(id) != Pattern::kPointwise || type.elements() < kSharedElements ||
        Info(g_.op(id)).cost > CostClass::kDivide) {
      return std::nullopt;
    }
    const bool widens = IsWideningCast(g_, id);
    std::optional<ValueId> source;
    int ops = g_.op(id) == Op::cast ? 0 : 1;
    for (ValueId operand : g_.operands(id)) {
      const ValueId made = BehindViews(g_, operand);
      if (IsConstant(g_, made.node)) continue;
      const int64_t elements = std::min(g_.type(operand).elements(), g_.type(made).elements());
      if (elements * kSmallOperand <= type.elements()) continue;
      std::optional<ValueId> under = sources_[Index(made.node)];
      if (under) {
        ops += ops_[Index(made.node)];
      } else if (widens || g_.op(made.node) == Op::input || IsBarrier(g_, made.node)) {
        under = made;
      }
      if (!under || (source && *source != *under)) return std::nullopt;
      source = under;
    }
    if (!source || Bytes(*source) > SizeBytes(type.dtype) || ops > kMostRematerialized) {
      return std::nullopt;
    }
    ops_[Index(id)] = ops;
    return source;
  }

  const BackwardGraph& g_;
  std::vector<int> ops_;  // that lead from the source to the result
  std::vector<std::optional<ValueId>> sources_;
};

class Parting {
 public:
  explicit Parting(const BackwardGraph& g)
      : g_(g),
        consumers_(g),
        rewriter_(g),
        sources_(Sources(g)),
        depth_(BarrierDepths(g, consumers_, std::vector<bool>(g.num_nodes(), false))) {
    for (uint32_t i = 0; i < g.num_nodes(); ++i) parted_.push_back(MayBeParted(NodeId{i}));
  }

  bool Any() const {
    for (uint32_t i = 0; i < g_.num_nodes(); ++i) {
      if (!parted_[i]) continue;
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
  bool MayBeParted(NodeId id) const {
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
    if (!parted_[Index(made)] || depth_[Index(made)] == depth) return rewriter_.New(old);
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
  std::vector<bool> parted_;
  absl::flat_hash_map<std::pair<ValueId, int>, ValueId> own_;
  std::vector<ValueId> operands_;
};

}  // namespace

bool IsWideningCast(const BackwardGraph& g, NodeId id) {
  if (g.op(id) != Op::cast) return false;
  const TensorType &from = g.type(g.operands(id)[0]), &to = g.type(id);
  return SizeBytes(to.dtype) > SizeBytes(from.dtype) && to.elements() >= kSharedElements;
}

std::vector<std::optional<ValueId>> Sources(const BackwardGraph& graph) {
  return Sourcing(graph).Take();
}

absl::StatusOr<BackwardGraph> RematerializeAtBarriers(const BackwardGraph& graph) {
  Parting parting(graph);
  if (!parting.Any()) return graph;
  return parting.Run();
}

}  // namespace retrograd
