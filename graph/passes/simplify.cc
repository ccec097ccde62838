#include "graph/passes/simplify.h"

#include <cmath>
#include <limits>

#include "absl/container/flat_hash_set.h"
#include "absl/hash/hash.h"
#include "graph/base/malformations.h"
#include "graph/base/status.h"
#include "graph/ir/node_rules.h"
#include "graph/ir/structural_ops.h"
#include "graph/passes/cast_pairs.h"
#include "graph/passes/identities.h"

namespace retrograd {
namespace {

size_t HashOf(const NodeView& node) {
  size_t hash = absl::HashOf(node.op, node.operands);
  for (const auto& [name, value] : node.attrs.all()) {
    std::visit([&](const auto& v) { hash = absl::HashOf(hash, v); }, value);
  }
  return hash;
}

bool Equal(const NodeView& a, const NodeView& b) {
  return a.op == b.op && a.operands == b.operands && (&a.attrs == &b.attrs || a.attrs == b.attrs);
}

// Whether an equal node may stand for it.
bool Mergeable(const NodeView& node) {
  if (node.op == Op::copy || node.op == Op::input) return false;
  // Zeros of either sign compare equal and are not.
  const double value = node.attrs.Float("value", 1);
  return value != 0 || !std::signbit(value);
}

// The nodes of the walk so far, in order, the ones drafted in vain too.
class Draft {
 public:
  uint32_t Add(std::shared_ptr<const Node> node, absl::Span<const ValueId> operands, size_t hash) {
    nodes_.push_back(std::move(node));
    hashes_.push_back(hash);
    operands_.insert(operands_.end(), operands.begin(), operands.end());
    operand_begin_.push_back(static_cast<uint32_t>(operands_.size()));
    return static_cast<uint32_t>(nodes_.size()) - 1;
  }

  void Reserve(const BackwardGraph& graph) {
    nodes_.reserve(graph.num_nodes());
    hashes_.reserve(graph.num_nodes());
    operand_begin_.reserve(graph.num_nodes() + 1);
    operands_.reserve(graph.num_operands());
  }

  size_t size() const { return nodes_.size(); }
  size_t num_operands() const { return operands_.size(); }
  size_t hash(uint32_t i) const { return hashes_[i]; }
  const std::shared_ptr<const Node>& node(uint32_t i) const { return nodes_[i]; }
  const TensorType& type(ValueId v) const { return nodes_[Index(v.node)]->results[v.result]; }
  absl::Span<const ValueId> operands(uint32_t i) const {
    return absl::MakeConstSpan(operands_).subspan(operand_begin_[i],
                                                  operand_begin_[i + 1] - operand_begin_[i]);
  }
  NodeView view(uint32_t i) const { return {nodes_[i]->op, operands(i), nodes_[i]->attrs}; }

 private:
  std::vector<std::shared_ptr<const Node>> nodes_;
  std::vector<size_t> hashes_;  // of the node with its operands; 0 where it cannot merge
  std::vector<uint32_t> operand_begin_ = {0};
  std::vector<ValueId> operands_;
};

// Looks up nodes of the draft by what they compute.
struct Wanted {
  const NodeView& node;
  size_t hash;
};
struct DraftHash {
  using is_transparent = void;
  const Draft* draft;
  size_t operator()(uint32_t i) const { return draft->hash(i); }
  size_t operator()(const Wanted& wanted) const { return wanted.hash; }
};
struct DraftEqual {
  using is_transparent = void;
  const Draft* draft;
  bool operator()(uint32_t a, uint32_t b) const { return a == b; }
  bool operator()(uint32_t a, const Wanted& b) const {
    return draft->hash(a) == b.hash && Equal(draft->view(a), b.node);
  }
  bool operator()(const Wanted& a, uint32_t b) const { return (*this)(b, a); }
};

// One walk in id order into a draft, where local rules and merging see simplified operands; then
// the part of the draft that outputs reach is the new graph.
class Simplifier {
 public:
  Simplifier(const BackwardGraph& graph, absl::Span<const NodeId> dropped)
      : graph_(graph), dropped_(dropped), new_(graph.num_values()) {
    draft_.Reserve(graph);
    merged_.reserve(graph.num_nodes());
  }

  absl::StatusOr<BackwardGraph> Run() {
    for (uint32_t i = 0; i < graph_.num_nodes(); ++i) {
      absl::Status status = Walk(NodeId{i});
      if (!status.ok()) return At(NodeName(i, Name(graph_.op(NodeId{i}))), status);
    }
    return EmitLive();
  }

 private:
  absl::Status Walk(NodeId id) {
    const absl::Span<const ValueId> old = graph_.operands(id);
    if (!dropped_.empty() && dropped_[0] == id) {
      dropped_.remove_prefix(1);
      Set({id, 0}, New(old[0]));
      return absl::OkStatus();
    }
    operands_.clear();
    bool same_types = true;
    for (ValueId v : old) {
      operands_.push_back(New(v));
      const TensorType& now = draft_.type(operands_.back());
      const TensorType& then = graph_.type(v);
      same_types &= &now == &then || now == then;
    }
    std::shared_ptr<const Node> node = graph_.shared_node(id);
    if (!same_types) {
      RG_ASSIGN_OR_RETURN(node, Inferred(node->op, operands_, node->attrs, node->origin));
    }
    const size_t results = node->results.size();
    RG_ASSIGN_OR_RETURN(const ValueId made, Make(std::move(node), operands_));
    // What stands for a node of one result may be any result of another node.
    for (uint32_t r = 0; r < results; ++r) Set({id, r}, {made.node, made.result + r});
    return absl::OkStatus();
  }

  // The value that the node computes: an older equal one, a simpler one, or a new node's.
  absl::StatusOr<ValueId> Make(std::shared_ptr<const Node> node,
                               absl::Span<const ValueId> operands) {
    const NodeView view = {node->op, operands, node->attrs};
    const bool mergeable = Mergeable(view);
    const size_t hash = mergeable ? HashOf(view) : 0;
    if (mergeable) {
      const auto older = merged_.find(Wanted{view, hash});
      if (older != merged_.end()) return stands_for_[*older];
    }
    const int origin = node->origin;
    const uint32_t place = draft_.Add(std::move(node), operands, hash);
    ValueId value = {NodeId{place}, 0};
    stands_for_.push_back(value);
    RG_ASSIGN_OR_RETURN(value, Simplified(place, origin));
    // What was drafted in vain stays unread and is left behind.
    stands_for_[place] = value;
    if (mergeable) merged_.insert(place);
    return value;
  }

  // What a local rule makes of a node of the draft; its own result where none applies.
  absl::StatusOr<ValueId> Simplified(uint32_t place, int origin) {
    const ValueId made = {NodeId{place}, 0};
    const auto type = [&](ValueId v) -> const TensorType& { return draft_.type(v); };
    const auto producer = [&](ValueId v) { return draft_.view(Index(v.node)); };
    Simpler simpler = SimplifyOnce(draft_.view(place), draft_.type(made), {type, producer});
    if (const auto* same = std::get_if<ValueId>(&simpler)) return *same;
    auto* simpler_node = std::get_if<NewNode>(&simpler);
    if (simpler_node == nullptr) return made;
    RG_ASSIGN_OR_RETURN(
        std::shared_ptr<const Node> node,
        Inferred(simpler_node->op, simpler_node->operands, std::move(simpler_node->attrs), origin));
    return Make(std::move(node), simpler_node->operands);
  }

  absl::StatusOr<std::shared_ptr<const Node>> Inferred(Op op, absl::Span<const ValueId> operands,
                                                       Attrs attrs, int origin) {
    std::vector<const TensorType*> types;
    for (ValueId v : operands) types.push_back(&draft_.type(v));
    auto node = std::make_shared<Node>();
    RG_ASSIGN_OR_RETURN(node->results, InferTypes(op, types, attrs));
    node->op = op;
    node->attrs = std::move(attrs);
    node->origin = origin;
    return node;
  }

  ValueId New(ValueId old) const { return new_[graph_.value_index(old)]; }
  void Set(ValueId old, ValueId value) { new_[graph_.value_index(old)] = value; }

  std::vector<bool> FindLive() const {
    std::vector<bool> live(draft_.size());
    for (const GraphOutput& output : graph_.outputs()) {
      if (output.value.has_value()) live[Index(New(*output.value).node)] = true;
    }
    for (uint32_t i = static_cast<uint32_t>(draft_.size()); i-- > 0;) {
      if (draft_.node(i)->op == Op::input) live[i] = true;
      if (!live[i]) continue;
      for (ValueId v : draft_.operands(i)) live[Index(v.node)] = true;
    }
    return live;
  }

  bool Unchanged(const std::vector<bool>& live) const {
    if (draft_.size() != graph_.num_nodes()) return false;
    for (uint32_t i = 0; i < draft_.size(); ++i) {
      if (!live[i] || draft_.node(i) != graph_.shared_node(NodeId{i}) ||
          draft_.operands(i) != graph_.operands(NodeId{i})) {
        return false;
      }
    }
    return true;
  }

  absl::StatusOr<BackwardGraph> EmitLive() {
    const std::vector<bool> live = FindLive();
    if (Unchanged(live)) return graph_;
    GraphBuilder builder(graph_.name());
    builder.SetNumerics(graph_.numerics());
    builder.Reserve(draft_.size(), draft_.num_operands());
    builder.ShareOrigins(graph_);
    std::vector<NodeId> placed(draft_.size());
    for (uint32_t i = 0; i < draft_.size(); ++i) {
      if (!live[i]) continue;
      operands_.clear();
      for (ValueId v : draft_.operands(i)) {
        operands_.push_back({placed[Index(v.node)], v.result});
      }
      placed[i] = builder.AddShared(draft_.node(i), operands_);
    }
    for (const GraphOutput& output : graph_.outputs()) {
      if (!output.value.has_value()) {
        builder.AbsentOutput(output.name);
        continue;
      }
      const ValueId v = New(*output.value);
      builder.Output({placed[Index(v.node)], v.result}, output.name, output.strides);
    }
    return builder.Build();
  }

  const BackwardGraph& graph_;
  absl::Span<const NodeId> dropped_;  // casts that the walk has not come to yet
  std::vector<ValueId> new_;          // by old value: what stands for it in the draft
  Draft draft_;
  std::vector<ValueId> stands_for_;  // by node of the draft: what stands for its first result
  absl::flat_hash_set<uint32_t, DraftHash, DraftEqual> merged_{0, DraftHash{&draft_},
                                                               DraftEqual{&draft_}};
  std::vector<ValueId> operands_;  // scratch
};

}  // namespace

absl::StatusOr<BackwardGraph> Simplify(const BackwardGraph& graph, const SimplifyOptions& options) {
  // A walk leaves nothing for another one to find, but that a merge may free a cast pair.
  constexpr int kMaxWalks = 4;
  BackwardGraph simplified = graph;
  for (int walk = 0; walk < kMaxWalks; ++walk) {
    std::vector<NodeId> dropped;
    if (options.cast_pairs) dropped = DroppableCasts(simplified);
    if (walk > 0 && dropped.empty()) break;
    RG_ASSIGN_OR_RETURN(simplified, Simplifier(simplified, dropped).Run());
  }
  return simplified;
}

}  // namespace retrograd
