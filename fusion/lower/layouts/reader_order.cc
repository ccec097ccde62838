#include "fusion/lower/layouts/reader_order.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "fusion/analysis/strided_view.h"
#include "fusion/kernel/build/access_maps.h"
#include "fusion/kernel/build/build.h"
#include "fusion/lower/layouts/dense_order.h"
#include "fusion/ops/call_op.h"

namespace retrograd {
namespace {

// Whether the operand is walked as the result of its op is, and lies in memory.
bool IsWalkedLike(const BackwardGraph& g, ValueId operand, const Shape& shape) {
  return g.type(operand).shape == shape && !IsConstant(g, BehindViews(g, operand).node);
}

// The values whose order others follow, as their op's operand or behind views: what is given or is
// made in an order of its own.
class FollowedValues {
 public:
  explicit FollowedValues(const BackwardGraph& g) : g_(g), known_(g.num_values()) {}

  ValueId Of(ValueId value) {
    std::vector<size_t> way;  // value_index of what follows the same
    std::optional<ValueId> followed;
    while (!followed) {
      value = BehindViews(g_, value);
      followed = known_[g_.value_index(value)];
      if (followed) break;
      way.push_back(g_.value_index(value));
      const auto next = OperandLike(value);
      if (!next) followed = value;
      value = next.value_or(value);
    }
    for (const size_t index : way) known_[index] = followed;
    return *followed;
  }

 private:
  std::optional<ValueId> OperandLike(ValueId value) const {
    if (!IsElementwise(g_, value.node)) return std::nullopt;
    const Shape& shape = g_.type(value).shape;
    for (const ValueId operand : g_.operands(value.node)) {
      if (IsWalkedLike(g_, operand, shape)) return operand;
    }
    return std::nullopt;
  }

  const BackwardGraph& g_;
  std::vector<std::optional<ValueId>> known_;  // by value_index
};

// The axis that more of `found` are than `present`, and the most; `present` if none is.
int Commonest(const std::vector<int>& found, int present) {
  auto most = std::count(found.begin(), found.end(), present);
  int commonest = present;
  for (const int axis : found) {
    const auto count = std::count(found.begin(), found.end(), axis);
    if (count <= most) continue;
    most = count;
    commonest = axis;
  }
  return commonest;
}

// The graph, its layouts, by value_index the output that a value is, if it is one, the maps
// through its views, and the values that others follow.
struct Stored {
  const BackwardGraph& graph;
  absl::Span<const Layout> layouts;
  std::vector<const GraphOutput*> outputs;
  KernelMaps maps;
  FollowedValues followed;
  std::map<size_t, std::vector<int>> joins;  // by value_index: what Readers found behind it
};

Stored StoredOf(const BackwardGraph& g, absl::Span<const Layout> layouts) {
  Stored stored{g,
                layouts,
                std::vector<const GraphOutput*>(g.num_values(), nullptr),
                KernelMaps(g),
                FollowedValues(g),
                {}};
  for (const GraphOutput& output : g.outputs()) {
    if (!output.value) continue;
    const GraphOutput*& first = stored.outputs[g.value_index(*output.value)];
    if (first == nullptr) first = &output;
  }
  return stored;
}

// Joins behind each other that are looked through.
constexpr int kMostJoins = 16;

// Values behind a result, of which a residual stream has as many as the model is deep: those
// nearest to it decide.
constexpr size_t kReach = 16;

// What is read beside a value, and where it goes: through views and elementwise ops.
class Readers {
 public:
  // beside: whether what is read beside it counts, or only where it goes. joins: how many are in
  // front of it.
  Readers(Stored& stored, ValueId value, bool beside, int joins = 0)
      : stored_(stored),
        g_(stored.graph),
        value_(value),
        extents_(g_.type(value).shape),
        maps_(stored.maps.In(extents_)),
        beside_(beside),
        joins_(joins) {}

  // The dim of the value along which each lies.
  std::vector<int> FastestDims() {
    const AccessMap own{.coords = OwnAxes(extents_.size()), .guards = {}, .fill = 0};
    Push({value_, maps_.Of(own), beside_});
    for (size_t next = 0; next < seen_.size() && next < kReach; ++next) {
      const Seen seen = seen_[next];
      if (const GraphOutput* output = stored_.outputs[g_.value_index(seen.value)]) {
        const std::vector<int64_t>& strides = output->strides;
        Add(strides.empty() ? DenseStrides(g_.type(seen.value).shape) : strides, *seen.map);
      }
      for (const Use& use : g_.uses(seen.value.node)) {
        if (use.result == seen.value.result) Follow(use.user, seen);
      }
    }
    return std::move(dims_);
  }

 private:
  // The value, or what is made of it element by element, behind views.
  struct Seen {
    ValueId value;
    const AccessMap* map;  // of the value's axes
    bool alone;            // nothing has been read beside it
  };

  void Push(const Seen& seen) {
    if (visited_.insert(g_.value_index(seen.value)).second) seen_.push_back(seen);
  }

  void Follow(NodeId user, const Seen& seen) {
    const ValueId next{user, 0};
    if (g_.pattern(user) == Pattern::kView) {
      if (const AccessMap* map = maps_.ThroughViewForward(user, seen.map)) {
        Push({next, map, seen.alone});
      }
    } else if (IsLibrary(g_, user)) {
      Count(seen.value, seen.value, *seen.map);
    } else if (g_.op(user) == Op::cat) {
      // Part of a join, which goes on.
      for (const int dim : DimsOfJoin(next)) {
        Add(DenseAlong(g_.type(next).shape, dim), *seen.map);
      }
    } else if (IsElementwise(g_, user) && g_.type(next).shape == g_.type(seen.value).shape) {
      Push({next, seen.map, seen.alone && !ReadsBeside(user, seen)});
    }
  }

  const std::vector<int>& DimsOfJoin(ValueId join) {
    const size_t index = g_.value_index(join);
    if (const auto known = stored_.joins.find(index); known != stored_.joins.end()) {
      return known->second;
    }
    std::vector<int> dims;
    if (joins_ < kMostJoins) dims = Readers(stored_, join, false, joins_ + 1).FastestDims();
    return stored_.joins[index] = std::move(dims);
  }

  // Whether the op, the first one that may, reads another tensor of this shape. Those count.
  bool ReadsBeside(NodeId user, const Seen& seen) {
    bool reads = false;
    for (ValueId other : g_.operands(user)) {
      if (other == seen.value || !IsWalkedLike(g_, other, g_.type(seen.value).shape)) continue;
      reads = true;
      const ValueId followed = stored_.followed.Of(other);
      if (!IsLibrary(g_, followed.node)) Count(other, followed, *seen.map);
    }
    return reads;
  }

  // The order of `value`, of which `tensor` is what lies in memory: once.
  void Count(ValueId value, ValueId tensor, const AccessMap& map) {
    if (!counted_.insert(g_.value_index(BehindViews(g_, tensor))).second) return;
    if (const auto view = AsStrided(g_, stored_.layouts, value)) Add(view->strides, map);
  }

  // What is seen with these strides: the dim along which neighbours lie side by side, if one is.
  void Add(absl::Span<const int64_t> strides, const AccessMap& map) {
    const IndexExpr address = Linearize(map.coords, strides);
    for (size_t d = 0; d < extents_.size(); ++d) {
      const bool along = address.axis_coef(static_cast<int>(d)) == 1;
      if (along && extents_[d] > 1) dims_.push_back(static_cast<int>(d));
    }
  }

  Stored& stored_;
  const BackwardGraph& g_;
  const ValueId value_;
  const Shape& extents_;
  AccessMaps& maps_;
  const bool beside_;
  const int joins_;
  std::vector<int> dims_;
  std::vector<Seen> seen_;                         // in the order of their distance
  absl::flat_hash_set<size_t> visited_, counted_;  // value_index
};

std::optional<Layout> OrderOfReaders(Stored& stored, ValueId result) {
  const int present = FastestDim(stored.graph, stored.layouts, result);
  const int dim = Commonest(Readers(stored, result, true).FastestDims(), present);
  const Shape& shape = stored.graph.type(result).shape;
  // A call takes its result's last two dims in either order, and batches as they lie.
  if (dim == present || dim + 2 < static_cast<int>(shape.size())) return std::nullopt;
  return Layout{DenseAlong(shape, dim)};
}

}  // namespace

std::vector<std::optional<Layout>> OrdersOfReaders(const BackwardGraph& graph,
                                                   absl::Span<const Layout> layouts,
                                                   absl::Span<const ValueId> results) {
  Stored stored = StoredOf(graph, layouts);
  std::vector<std::optional<Layout>> orders;
  for (const ValueId result : results) orders.push_back(OrderOfReaders(stored, result));
  return orders;
}

}  // namespace retrograd
