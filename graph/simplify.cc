#include "graph/simplify.h"

#include <cmath>

#include "absl/container/flat_hash_map.h"
#include "graph/cast_pairs.h"
#include "graph/identities.h"
#include "graph/rewriter.h"
#include "graph/status.h"

namespace retrograd {
namespace {

// One walk in id order into a draft graph, where local rules and merging see simplified operands;
// then the part of the draft that outputs reach is the new graph.
class Simplifier {
 public:
  Simplifier(const BackwardGraph& graph, const SimplifyOptions& options)
      : graph_(graph), draft_(graph) {
    if (options.cast_pairs) dropped_ = DroppableCasts(graph);
  }

  absl::StatusOr<BackwardGraph> Run() {
    for (uint32_t i = 0; i < graph_.num_nodes(); ++i) {
      Draft(NodeId{i});
      RG_RETURN_IF_ERROR(draft_.builder().status());
    }
    return EmitLive();
  }

 private:
  void Draft(NodeId id) {
    const Node& node = graph_.node(id);
    if (!dropped_.empty() && dropped_[Index(id)]) {
      draft_.Set({id, 0}, draft_.New(graph_.operands(id)[0]));
      return;
    }
    origin_ = node.origin;
    if (node.input != nullptr) {
      draft_.Copy(id);
      Record({Op::input, {}, {}}, id);
      return;
    }
    const ValueId made = Make({node.op, draft_.NewOperands(id), node.attrs}, id);
    for (uint32_t r = 0; r < node.results.size(); ++r) draft_.Set({id, r}, {made.node, r});
  }

  // The value that the record computes: an older equal one, a simpler one, or a new node's.
  ValueId Make(NodeRecord record, NodeId source) {
    if (auto it = merged_.find(record); it != merged_.end()) return it->second;
    draft_.builder().SetOriginIndex(origin_);
    const ValueId made = draft_.builder().Add(record.op, record.operands, record.attrs);
    if (!draft_.builder().status().ok()) return {};
    Record(record, source);
    const auto type = [&](ValueId v) -> const TensorType& { return draft_.builder().type(v); };
    const auto producer = [&](ValueId v) -> const NodeRecord& { return records_[Index(v.node)]; };
    Simpler simpler = SimplifyOnce(record, type(made), {type, producer});
    ValueId value = made;
    if (const auto* same = std::get_if<ValueId>(&simpler)) {
      value = *same;
    } else if (auto* node = std::get_if<NodeRecord>(&simpler)) {
      value = Make(*std::move(node), source);
    }
    // What was drafted in vain stays unread and is left behind.
    if (Mergeable(record)) merged_.emplace(std::move(record), value);
    return value;
  }

  static bool Mergeable(const NodeRecord& record) {
    if (record.op == Op::copy) return false;
    // Zeros of either sign compare equal and are not.
    const double value = record.attrs.Float("value", 1);
    return value != 0 || !std::signbit(value);
  }

  void Record(NodeRecord record, NodeId source) {
    records_.push_back(std::move(record));
    sources_.push_back(source);
    origins_.push_back(origin_);
  }

  absl::StatusOr<BackwardGraph> EmitLive() {
    std::vector<bool> live(records_.size());
    for (const GraphOutput& output : graph_.outputs()) {
      if (output.value.has_value()) live[Index(draft_.New(*output.value).node)] = true;
    }
    for (size_t i = records_.size(); i-- > 0;) {
      if (!live[i]) continue;
      for (ValueId v : records_[i].operands) live[Index(v.node)] = true;
    }
    GraphBuilder builder(graph_.name());
    builder.SetNumerics(graph_.numerics());
    builder.Reserve(records_.size());
    for (const Origin& origin : graph_.origins()) builder.AddOrigin(origin);
    std::vector<NodeId> placed(records_.size());
    for (size_t i = 0; i < records_.size(); ++i) {
      NodeRecord& record = records_[i];
      if (!live[i] && record.op != Op::input) continue;
      builder.SetOriginIndex(origins_[i]);
      if (record.op == Op::input) {
        const Node& input = graph_.node(sources_[i]);
        placed[i] = builder.Input(input.results[0], *input.input).node;
        continue;
      }
      for (ValueId& v : record.operands) v.node = placed[Index(v.node)];
      placed[i] = builder.Add(record.op, record.operands, std::move(record.attrs)).node;
    }
    for (const GraphOutput& output : graph_.outputs()) {
      if (!output.value.has_value()) {
        builder.AbsentOutput(output.name);
        continue;
      }
      const ValueId v = draft_.New(*output.value);
      builder.Output({placed[Index(v.node)], v.result}, output.name, output.strides);
    }
    return builder.Build();
  }

  const BackwardGraph& graph_;
  Rewriter draft_;
  std::vector<bool> dropped_;  // by old node; empty: none
  absl::flat_hash_map<NodeRecord, ValueId> merged_;
  // By node of the draft.
  std::vector<NodeRecord> records_;
  std::vector<NodeId> sources_;  // the old node
  std::vector<int> origins_;
  int origin_ = -1;
};

}  // namespace

absl::StatusOr<BackwardGraph> Simplify(const BackwardGraph& graph, const SimplifyOptions& options) {
  // A dropped cast pair may make nodes equal that were seen before, and a merge may free a cast
  // pair: a second walk finds nearly all of that, more are rare.
  constexpr int kMaxWalks = 4;
  BackwardGraph simplified = graph;
  for (int walk = 0; walk < kMaxWalks; ++walk) {
    const size_t before = simplified.num_nodes();
    RG_ASSIGN_OR_RETURN(simplified, Simplifier(simplified, options).Run());
    if (walk > 0 && simplified.num_nodes() == before) break;
  }
  return simplified;
}

}  // namespace retrograd
