#include "fusion/lower/indexed/order_positions.h"

#include <algorithm>
#include <optional>
#include <queue>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "graph/ir/sorted_indices.h"
#include "graph/passes/rewriter.h"

namespace retrograd {
namespace {

// Whether the node sums rows by a list, which stand as the indices did that were sorted.
bool IsSumOfRows(const BackwardGraph& g, NodeId id) {
  if (g.op(id) != Op::segment_add) return false;
  const Attrs& attrs = g.node(id).attrs;
  return attrs.Int("axis") == 0 && attrs.Int("in_order") == 0 &&
         g.type(g.operands(id)[2]).shape[0] > 1;
}

ValueId BehindReshapes(const BackwardGraph& g, ValueId v) {
  while (g.op(v.node) == Op::reshape) v = g.operands(v.node)[0];
  return v;
}

// How a value whose first axis numbers positions is made in another order of these.
enum class Way : uint8_t {
  kGathered,  // its rows are gathered
  kSame,      // it is the same at all positions
  kMade,      // by its op, of those operands in that order whose first axis numbers positions, too
  kByRows,    // by an index_select of rows that the list itself tells
};

// What the sums that go by one list read of positions.
class Positions {
 public:
  Positions(const BackwardGraph& g, NodeId list, const std::vector<NodeId>& sums)
      : g_(g),
        list_(list),
        index_(BehindReshapes(g, g.operands(list)[0])),
        sorted_{.rows = g.node(list).attrs.Int("rows"), .indices = g.type(index_).elements()} {
    for (NodeId sum : sums) Want(g.operands(sum)[2], sum);
    // What reads a value stands behind it: once it is the last one, all have been followed.
    while (!open_.empty()) {
      const ValueId last = open_.top();
      open_.pop();
      FollowBack(last);
    }
    const absl::flat_hash_set<NodeId> own(sums.begin(), sums.end());
    closed_ = std::all_of(made_.begin(), made_.end(), [&](ValueId v) {
      const auto uses = g.uses(v.node);
      return std::all_of(uses.begin(), uses.end(),
                         [&](const Use& use) { return ReadInOrder(use, own); });
    });
    for (const GraphOutput& out : g.outputs()) {
      if (out.value && wanted_.contains(*out.value)) {
        closed_ = closed_ && WayOf(*out.value) == Way::kGathered;
      }
    }
  }

  // Whether several sums read one thing, and nothing that is made of it is read elsewhere.
  bool Pays() const { return shares_ && closed_; }

  NodeId list() const { return list_; }
  const SortedIndices& sorted() const { return sorted_; }
  std::vector<ValueId> Wanted() const {
    std::vector<ValueId> values;
    for (const auto& [v, reader] : wanted_) values.push_back(v);
    return values;
  }

  Way WayOf(ValueId v) const {
    const NodeId id = v.node;
    const Attrs& attrs = g_.node(id).attrs;
    const auto operands = g_.operands(id);
    switch (g_.pattern(id)) {
      case Pattern::kPointwise:
        if (operands.empty()) return g_.op(id) == Op::full ? Way::kSame : Way::kGathered;
        return Way::kMade;
      case Pattern::kAccumulate: return AddsWhole(id) ? Way::kMade : Way::kGathered;
      case Pattern::kGather: return WayOfGather(id);
      default: break;
    }
    switch (g_.op(id)) {
      case Op::reshape: return IsOrdered(operands[0]) ? Way::kMade : Way::kGathered;
      case Op::expand:
        if (g_.type(operands[0]).rank() == g_.type(v).rank() && IsOrdered(operands[0]))
          return Way::kMade;
        return Way::kSame;
      case Op::sum:
      case Op::amax:
      case Op::amin: {
        const absl::Span<const int64_t> axes = attrs.Ints("axes");
        const bool keeps = std::all_of(axes.begin(), axes.end(), [](int64_t a) { return a > 0; });
        return keeps && IsOrdered(operands[0]) ? Way::kMade : Way::kGathered;
      }
      default: return Way::kGathered;
    }
  }

  // Those operands of what is made that are wanted in order.
  std::vector<ValueId> Ordered(ValueId v) const {
    std::vector<ValueId> ordered;
    const auto operands = g_.operands(v.node);
    for (size_t o = 0; o < operands.size(); ++o) {
      if (OrdersOperand(v, o)) ordered.push_back(operands[o]);
    }
    return ordered;
  }

  bool OrdersOperand(ValueId v, size_t operand) const {
    const ValueId o = g_.operands(v.node)[operand];
    if (g_.pattern(v.node) == Pattern::kGather) return operand == 1 && WayOf(v) == Way::kMade;
    return IsOrdered(o) && g_.type(o).rank() >= (IsView(v) ? 1 : g_.type(v).rank());
  }

 private:
  static constexpr NodeId kSeveral{~uint32_t{0}};

  bool IsView(ValueId v) const { return g_.pattern(v.node) == Pattern::kView; }
  bool IsOrdered(ValueId v) const {
    return g_.type(v).rank() > 0 && g_.type(v).shape[0] == sorted_.indices;
  }

  // From a value that is wanted in order to what it is made of.
  void FollowBack(ValueId v) {
    const NodeId reader = wanted_.at(v);
    const Way way = WayOf(v);
    if (way == Way::kGathered && reader == kSeveral) shares_ = true;
    if (way != Way::kMade && way != Way::kByRows) return;
    const bool view_of_given = IsView(v) && WayOf(BehindReshapes(g_, v)) == Way::kGathered;
    if (!view_of_given) made_.push_back(v);
    for (ValueId operand : Ordered(v)) Want(operand, reader);
  }

  bool ReadInOrder(const Use& use, const absl::flat_hash_set<NodeId>& own) const {
    if (own.contains(use.user)) return use.operand == 2;
    const ValueId v{use.user, 0};
    return wanted_.contains(v) && WayOf(v) == Way::kMade && OrdersOperand(v, use.operand);
  }

  void Want(ValueId v, NodeId reader) {
    const auto [at, added] = wanted_.try_emplace(v, reader);
    if (added) open_.push(v);
    if (!added && at->second != reader) at->second = kSeveral;
  }

  // Whether each operand is added as a whole.
  bool AddsWhole(NodeId id) const {
    const auto operands = g_.operands(id);
    return std::all_of(operands.begin(), operands.end(),
                       [&](ValueId o) { return g_.type(o).shape == g_.type(id).shape; });
  }

  // Rows of a table that its first axis numbers, at an index whose first axis numbers positions.
  Way WayOfGather(NodeId id) const {
    const auto operands = g_.operands(id);
    if (g_.op(id) != Op::index_select || g_.node(id).attrs.Int("axis") != 0 ||
        !IsOrdered(operands[1])) {
      return Way::kGathered;
    }
    const bool told =
        BehindReshapes(g_, operands[1]) == index_ && g_.type(operands[0]).shape[0] == sorted_.rows;
    return told ? Way::kByRows : Way::kMade;
  }

  const BackwardGraph& g_;
  const NodeId list_;
  const ValueId index_;
  const SortedIndices sorted_;
  // In the list's order, with the only sum that reads it, or kSeveral.
  absl::flat_hash_map<ValueId, NodeId> wanted_;
  struct Earlier {
    bool operator()(ValueId a, ValueId b) const {
      return std::pair(Index(a.node), a.result) < std::pair(Index(b.node), b.result);
    }
  };
  std::priority_queue<ValueId, std::vector<ValueId>, Earlier> open_;  // not followed yet
  std::vector<ValueId> made_;
  bool shares_ = false, closed_ = false;
};

using SumsByList = absl::flat_hash_map<NodeId, std::vector<NodeId>>;

class Orderer {
 public:
  Orderer(const BackwardGraph& g, std::vector<Positions> lists) : g_(g), rewriter_(g) {
    for (Positions& positions : lists) {
      by_list_.try_emplace(positions.list(), OrderedList{std::move(positions)});
    }
    FindNeeded();
  }

  absl::StatusOr<BackwardGraph> Run() {
    for (uint32_t i = 0; i < g_.num_nodes(); ++i) {
      const NodeId id{i};
      if (!needed_[i]) continue;
      OrderedList* list = ListOf(id);
      if (list == nullptr) {
        rewriter_.Copy(id);
        continue;
      }
      const auto operands = g_.operands(id);
      const ValueId src = list->Make(operands[2], rewriter_, g_);
      Attrs attrs = g_.node(id).attrs;
      attrs.Set("in_order", int64_t{1});
      rewriter_.UseOrigin(id);
      rewriter_.Set({id, 0}, rewriter_.builder().Add(
                                 Op::segment_add,
                                 {rewriter_.New(operands[0]), rewriter_.New(operands[1]), src},
                                 std::move(attrs)));
    }
    return rewriter_.Finish();
  }

 private:
  // A list, and the values that stand in its order.
  struct OrderedList {
    Positions positions;
    absl::flat_hash_map<ValueId, ValueId> made;  // by the old value
    std::optional<ValueId> rows, places;         // of the list: what it says of each position

    ValueId Make(ValueId v, Rewriter& rewriter, const BackwardGraph& g);
    ValueId MakeOnly(ValueId v, Rewriter& rewriter, const BackwardGraph& g);
    ValueId Told(std::optional<ValueId>& told, int64_t first, Rewriter& rewriter);
  };

  OrderedList* ListOf(NodeId id) {
    if (!IsSumOfRows(g_, id)) return nullptr;
    const auto at = by_list_.find(g_.operands(id)[1].node);
    return at == by_list_.end() ? nullptr : &at->second;
  }

  // The nodes whose values something reads in their given order.
  void FindNeeded() {
    needed_.assign(g_.num_nodes(), false);
    absl::flat_hash_map<NodeId, std::vector<std::pair<ValueId, const Positions*>>> wanted;
    for (const auto& [list, ordered] : by_list_) {
      for (ValueId v : ordered.positions.Wanted()) {
        wanted[v.node].emplace_back(v, &ordered.positions);
      }
    }
    for (const GraphOutput& out : g_.outputs()) {
      if (out.value) needed_[Index(out.value->node)] = true;
    }
    for (uint32_t i = static_cast<uint32_t>(g_.num_nodes()); i-- > 0;) {
      const NodeId id{i};
      if (const auto at = wanted.find(id); at != wanted.end()) {
        for (const auto& [v, positions] : at->second) NeedForOrdered(v, *positions);
      }
      needed_[i] = needed_[i] || g_.op(id) == Op::input;
      if (!needed_[i]) continue;
      const auto operands = g_.operands(id);
      const bool ordered = ListOf(id) != nullptr;
      for (size_t o = 0; o < operands.size(); ++o) {
        if (!ordered || o != 2) needed_[Index(operands[o].node)] = true;
      }
    }
  }

  void NeedForOrdered(ValueId v, const Positions& positions) {
    const Way way = positions.WayOf(v);
    if (way == Way::kGathered || way == Way::kSame) {
      needed_[Index(v.node)] = true;
      return;
    }
    const auto operands = g_.operands(v.node);
    for (size_t o = 0; o < operands.size(); ++o) {
      const bool told = way == Way::kByRows && o == 1;
      if (!told && !positions.OrdersOperand(v, o)) needed_[Index(operands[o].node)] = true;
    }
  }

  const BackwardGraph& g_;
  Rewriter rewriter_;
  absl::flat_hash_map<NodeId, OrderedList> by_list_;
  std::vector<bool> needed_;  // by node
};

// The value in order. What it is made of comes first, with a stack of its own: graphs are deep.
ValueId Orderer::OrderedList::Make(ValueId v, Rewriter& rewriter, const BackwardGraph& g) {
  std::vector<ValueId> open = {v};
  while (!open.empty()) {
    const ValueId next = open.back();
    if (made.contains(next)) {
      open.pop_back();
      continue;
    }
    const size_t before = open.size();
    const Way way = positions.WayOf(next);
    if (way == Way::kMade) {
      for (ValueId operand : positions.Ordered(next)) {
        if (!made.contains(operand)) open.push_back(operand);
      }
    }
    if (open.size() > before) continue;
    made[next] = MakeOnly(next, rewriter, g);
    open.pop_back();
  }
  return made.at(v);
}

ValueId Orderer::OrderedList::MakeOnly(ValueId v, Rewriter& rewriter, const BackwardGraph& g) {
  GraphBuilder& builder = rewriter.builder();
  const Way way = positions.WayOf(v);
  if (way == Way::kSame) return rewriter.New(v);
  rewriter.UseOrigin(v.node);
  const SortedIndices& sorted = positions.sorted();
  if (way == Way::kGathered) {
    const ValueId at = Told(places, sorted.order(0), rewriter);
    return builder.Add(Op::index_select, {rewriter.New(v), at}, {{"axis", int64_t{0}}});
  }
  const auto old = g.operands(v.node);
  std::vector<ValueId> operands;
  for (size_t o = 0; o < old.size(); ++o) {
    if (way == Way::kByRows && o == 1) {
      const ValueId told = Told(rows, sorted.key(0), rewriter);
      const Shape& shape = g.type(old[o]).shape;
      operands.push_back(shape.size() == 1 ? told : builder.Reshape(told, shape));
    } else {
      operands.push_back(positions.OrdersOperand(v, o) ? made.at(old[o]) : rewriter.New(old[o]));
    }
  }
  return builder.Add(g.op(v.node), operands, g.node(v.node).attrs);
}

// Every second word of the list from the one on.
ValueId Orderer::OrderedList::Told(std::optional<ValueId>& told, int64_t first,
                                   Rewriter& rewriter) {
  if (!told) {
    told = rewriter.builder().Slice(rewriter.New({positions.list(), 0}), 0, first,
                                    positions.sorted().elements(), 2);
  }
  return *told;
}

}  // namespace

bool HasSumsInOrder(const BackwardGraph& graph) {
  for (uint32_t i = 0; i < graph.num_nodes(); ++i) {
    const NodeId id{i};
    if (graph.op(id) == Op::segment_add && graph.node(id).attrs.Int("in_order") == 1) return true;
  }
  return false;
}

absl::StatusOr<BackwardGraph> OrderPositions(const BackwardGraph& graph) {
  SumsByList sums;
  std::vector<NodeId> lists;  // in the order of their first sums
  for (uint32_t i = 0; i < graph.num_nodes(); ++i) {
    const NodeId id{i};
    if (!IsSumOfRows(graph, id)) continue;
    std::vector<NodeId>& of_list = sums[graph.operands(id)[1].node];
    if (of_list.empty()) lists.push_back(graph.operands(id)[1].node);
    of_list.push_back(id);
  }
  std::vector<Positions> ordered;
  for (NodeId list : lists) {
    if (sums[list].size() < 2) continue;
    Positions positions(graph, list, sums[list]);
    if (positions.Pays()) ordered.push_back(std::move(positions));
  }
  if (ordered.empty()) return graph;
  return Orderer(graph, std::move(ordered)).Run();
}

}  // namespace retrograd
