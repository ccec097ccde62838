#include "fusion/lower/layouts/walk_order.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <tuple>
#include <utility>
#include <vector>

#include "fusion/analysis/strided_view.h"
#include "fusion/kernel/build/build.h"
#include "fusion/lower/layouts/dense_order.h"
#include "fusion/ops/call_op.h"

namespace retrograd {
namespace {

// Neighbours of a tensor that lie side by side: how far apart they are among its elements in
// row-major order, which no reshape changes, and how many lie in a row. step 0: none does.
struct Neighbours {
  int64_t step = 0, count = 1;
};

Neighbours NeighboursAlong(const Shape& shape, int dim) {
  if (dim < 0 || Elements(shape) == 0) return {};
  Neighbours along{.step = 1, .count = shape[dim]};
  for (size_t d = dim + 1; d < shape.size(); ++d) along.step *= shape[d];
  return along;
}

// Whether an extent divides what is left of the neighbours from this step on.
bool Covers(const Neighbours& along, int64_t step, int64_t extent) {
  const int64_t left = along.step * along.count / step;
  return step >= along.step && left >= extent && left % extent == 0;
}

// The layout of the shape in which these neighbours lie side by side, and that is row-major
// otherwise; nullopt if there is no such layout.
std::optional<Layout> DenseAlongNeighbours(const Shape& shape, const Neighbours& along) {
  std::vector<int64_t> order(shape.size());  // greater: further apart
  int64_t step = 1, covered = 1;
  for (size_t d = shape.size(); d-- > 0; step *= shape[d]) {
    const bool side_by_side = shape[d] > 1 && Covers(along, step, shape[d]);
    if (side_by_side) covered *= shape[d];
    order[d] = static_cast<int64_t>((side_by_side ? 1 : 2) * shape.size() - d);
  }
  if (covered != along.count) return std::nullopt;
  return DenseInOrderOf(order, shape);
}

ValueId BehindReshapes(const BackwardGraph& g, ValueId value) {
  while (g.op(value.node) == Op::reshape) value = g.operands(value.node)[0];
  return value;
}

// Values that are walked together, and along which neighbours the tensors lie that are read and
// written along with them.
class Walks {
 public:
  Walks(const BackwardGraph& g, absl::Span<const Layout> layouts, absl::Span<const ValueId> values,
        const std::vector<bool>& of_no_order)
      : g_(g),
        layouts_(layouts),
        of_no_order_(of_no_order),
        walk_of_(g.num_values()),
        free_(g.num_values()) {
    std::iota(walk_of_.begin(), walk_of_.end(), uint32_t{0});
    for (const ValueId v : values) free_[g.value_index(v)] = true;
    for (uint32_t i = 0; i < g.num_nodes(); ++i) {
      if (IsElementwise(g, NodeId{i})) JoinOperands(NodeId{i});
    }
    for (uint32_t i = 0; i < g.num_nodes(); ++i) {
      if (IsElementwise(g, NodeId{i})) CountAround(NodeId{i});
    }
    CountEach();
  }

  std::optional<Layout> OrderOf(ValueId value) {
    const auto [begin, end] = Counts(WalkOf(g_.value_index(value)));
    if (begin == end) return std::nullopt;
    const Shape& shape = g_.type(value).shape;
    const int64_t present = NeighboursAlong(shape, FastestDim(g_, layouts_, value)).step;
    const auto same =
        std::find_if(begin, end, [&](const Tensors& t) { return t.along.step == present; });
    // In doubt as it is, then along the nearest neighbours.
    Tensors most = {.along = {.step = present}, .count = same == end ? 0 : same->count};
    for (auto at = begin; at != end; ++at) {
      if (at->count > most.count) most = *at;
    }
    if (most.along.step == present) return std::nullopt;
    if (auto layout = DenseAlongNeighbours(shape, most.along)) return layout;
    // The longest run is another tensor's.
    for (int d = 0; d < static_cast<int>(shape.size()); ++d) {
      const Neighbours along = NeighboursAlong(shape, d);
      if (along.count > 1 && along.count <= most.along.count && along.step == most.along.step) {
        return Layout{DenseAlong(shape, d)};
      }
    }
    return std::nullopt;
  }

 private:
  // Tensors of a walk that lie along neighbours a step apart; the most that any has in a row.
  struct Tensors {
    uint32_t walk = 0;
    Neighbours along;
    int count = 0;
  };
  // A tensor that counts in a walk: once, and along the neighbours along which the first who reads
  // it there does.
  struct Counted {
    uint32_t walk = 0, tensor = 0;
    Neighbours along;
  };

  // The value that stands for all that are walked with it.
  uint32_t WalkOf(size_t value) {
    auto at = static_cast<uint32_t>(value);
    while (walk_of_[at] != at) at = walk_of_[at] = walk_of_[walk_of_[at]];
    return at;
  }

  bool SameShape(ValueId a, ValueId b) const { return g_.type(a).shape == g_.type(b).shape; }

  void JoinOperands(NodeId id) {
    const ValueId result{id, 0};
    for (const ValueId operand : g_.operands(id)) {
      if (!SameShape(operand, result)) continue;
      const ValueId made = BehindReshapes(g_, operand);
      if (!IsElementwise(g_, made.node) || IsConstant(g_, made.node)) continue;
      if (of_no_order_[g_.value_index(made)]) continue;  // each of its readers may have its own
      walk_of_[WalkOf(g_.value_index(made))] = WalkOf(g_.value_index(result));
    }
  }

  void CountAround(NodeId id) {
    const ValueId result{id, 0};
    if (of_no_order_[g_.value_index(result)]) return;
    if (!free_[g_.value_index(result)]) Count(result, result);
    for (const ValueId operand : g_.operands(id)) {
      if (!SameShape(operand, result)) continue;
      if (IsElementwise(g_, BehindReshapes(g_, operand).node)) continue;
      const ValueId stored = BehindViews(g_, operand);
      if (g_.type(stored).elements() < g_.type(result).elements()) continue;  // repeated
      if (!IsConstant(g_, stored.node) && !IsLibrary(g_, stored.node)) Count(operand, result);
    }
  }

  void Count(ValueId tensor, ValueId walked) {
    const Neighbours along =
        NeighboursAlong(g_.type(tensor).shape, FastestDim(g_, layouts_, tensor));
    const size_t stored = g_.value_index(BehindViews(g_, tensor));
    counted_.push_back({WalkOf(g_.value_index(walked)), static_cast<uint32_t>(stored), along});
  }

  void CountEach() {
    const auto of = [](const Counted& c) { return std::pair(c.walk, c.tensor); };
    std::stable_sort(counted_.begin(), counted_.end(),
                     [&](const Counted& a, const Counted& b) { return of(a) < of(b); });
    const auto same = [&](const Counted& a, const Counted& b) { return of(a) == of(b); };
    counted_.erase(std::unique(counted_.begin(), counted_.end(), same), counted_.end());
    std::sort(counted_.begin(), counted_.end(), [](const Counted& a, const Counted& b) {
      return std::tuple(a.walk, a.along.step, b.along.count) <
             std::tuple(b.walk, b.along.step, a.along.count);
    });
    for (const Counted& c : counted_) {
      if (c.along.step == 0) continue;
      const bool again = !tensors_.empty() && tensors_.back().walk == c.walk &&
                         tensors_.back().along.step == c.along.step;
      if (!again) tensors_.push_back({c.walk, c.along, 0});
      ++tensors_.back().count;
    }
  }

  using Place = std::vector<Tensors>::const_iterator;
  std::pair<Place, Place> Counts(uint32_t walk) const {
    struct ByWalk {
      bool operator()(const Tensors& t, uint32_t walk) const { return t.walk < walk; }
      bool operator()(uint32_t walk, const Tensors& t) const { return walk < t.walk; }
    };
    return std::equal_range(tensors_.begin(), tensors_.end(), walk, ByWalk());
  }

  const BackwardGraph& g_;
  absl::Span<const Layout> layouts_;
  const std::vector<bool>& of_no_order_;
  std::vector<uint32_t> walk_of_;  // by value_index: a value of the same walk
  std::vector<bool> free_;         // by value_index
  std::vector<Counted> counted_;
  std::vector<Tensors> tensors_;  // by walk and step
};

}  // namespace

std::vector<std::optional<Layout>> OrdersOfWalks(const BackwardGraph& graph,
                                                 absl::Span<const Layout> layouts,
                                                 absl::Span<const ValueId> values,
                                                 const std::vector<bool>& of_no_order) {
  Walks walks(graph, layouts, values, of_no_order);
  std::vector<std::optional<Layout>> orders;
  orders.reserve(values.size());
  for (const ValueId value : values) orders.push_back(walks.OrderOf(value));
  return orders;
}

}  // namespace retrograd
