#include "fusion/lower/layouts/walk_order.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "fusion/analysis/strided_view.h"
#include "fusion/kernel/build/build.h"
#include "fusion/lower/layouts/dense_order.h"
#include "fusion/lower/layouts/given_order.h"
#include "fusion/ops/call_op.h"

namespace retrograd {
namespace {

class Walks {
 public:
  Walks(const BackwardGraph& g, absl::Span<const Layout> layouts, absl::Span<const ValueId> values)
      : g_(g),
        layouts_(layouts),
        of_no_order_(ValuesOfNoOrder(g)),
        walk_of_(g.num_values()),
        free_(g.num_values()) {
    std::iota(walk_of_.begin(), walk_of_.end(), size_t{0});
    for (const ValueId v : values) free_[g.value_index(v)] = true;
    for (uint32_t i = 0; i < g.num_nodes(); ++i) {
      if (IsElementwise(g, NodeId{i})) JoinOperands(NodeId{i});
    }
    for (uint32_t i = 0; i < g.num_nodes(); ++i) {
      if (IsElementwise(g, NodeId{i})) CountAround(NodeId{i});
    }
  }

  std::optional<Layout> OrderOf(ValueId value) {
    const auto walk = tensors_.find(WalkOf(g_.value_index(value)));
    if (walk == tensors_.end()) return std::nullopt;
    const int present = FastestDim(g_, layouts_, value);
    const auto same = walk->second.find(present);
    std::pair<int, int> most = {present, same == walk->second.end() ? 0 : same->second};
    for (const auto& [dim, count] : walk->second) {
      if (count > most.second) most = {dim, count};
    }
    if (most.first == present) return std::nullopt;
    return Layout{DenseAlong(g_.type(value).shape, most.first)};
  }

 private:
  // The value that stands for all that are walked with it.
  size_t WalkOf(size_t value) {
    while (walk_of_[value] != value) value = walk_of_[value] = walk_of_[walk_of_[value]];
    return value;
  }

  bool SameShape(ValueId a, ValueId b) const { return g_.type(a).shape == g_.type(b).shape; }

  void JoinOperands(NodeId id) {
    const ValueId result{id, 0};
    for (const ValueId operand : g_.operands(id)) {
      if (!IsElementwise(g_, operand.node) || IsConstant(g_, operand.node)) continue;
      if (of_no_order_[g_.value_index(operand)]) continue;  // each of its readers may have its own
      if (!SameShape(operand, result)) continue;
      walk_of_[WalkOf(g_.value_index(operand))] = WalkOf(g_.value_index(result));
    }
  }

  void CountAround(NodeId id) {
    const ValueId result{id, 0};
    if (of_no_order_[g_.value_index(result)]) return;
    if (!free_[g_.value_index(result)]) Count(result, result);
    for (const ValueId operand : g_.operands(id)) {
      if (IsElementwise(g_, operand.node) || !SameShape(operand, result)) continue;
      const ValueId stored = BehindViews(g_, operand);
      if (g_.type(stored).elements() < g_.type(result).elements()) continue;  // repeated
      if (!IsConstant(g_, stored.node) && !IsLibrary(g_, stored.node)) Count(operand, result);
    }
  }

  void Count(ValueId tensor, ValueId walked) {
    const size_t walk = WalkOf(g_.value_index(walked));
    if (!counted_.insert({walk, g_.value_index(BehindViews(g_, tensor))}).second) return;
    const int dim = FastestDim(g_, layouts_, tensor);
    if (dim >= 0) ++tensors_[walk][dim];
  }

  const BackwardGraph& g_;
  absl::Span<const Layout> layouts_;
  const std::vector<bool> of_no_order_;
  std::vector<size_t> walk_of_;  // by value_index: a value of the same walk
  std::vector<bool> free_;       // by value_index
  absl::flat_hash_set<std::pair<size_t, size_t>> counted_;  // walks and what lies in memory
  std::map<size_t, std::map<int, int>> tensors_;  // by walk and by the dim along which they lie
};

}  // namespace

std::vector<std::optional<Layout>> OrdersOfWalks(const BackwardGraph& graph,
                                                 absl::Span<const Layout> layouts,
                                                 absl::Span<const ValueId> values) {
  Walks walks(graph, layouts, values);
  std::vector<std::optional<Layout>> orders;
  orders.reserve(values.size());
  for (const ValueId value : values) orders.push_back(walks.OrderOf(value));
  return orders;
}

}  // namespace retrograd
