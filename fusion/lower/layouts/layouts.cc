#include "fusion/lower/layouts/layouts.h"

#include <algorithm>
#include <utility>

#include "absl/container/btree_map.h"
#include "absl/container/inlined_vector.h"
#include "fusion/kernel/build/build.h"
#include "fusion/kernel/ir/access_map.h"
#include "fusion/lower/layouts/dense_order.h"
#include "fusion/lower/layouts/given_order.h"
#include "fusion/lower/layouts/reader_order.h"
#include "fusion/lower/layouts/walk_order.h"
#include "fusion/ops/call_op.h"
#include "graph/base/status.h"

namespace retrograd {
namespace {

// The chain of views from a stored value to `value`, outermost (nearest to the value) first.
std::vector<NodeId> ViewChain(const BackwardGraph& g, ValueId value) {
  std::vector<NodeId> chain;
  while (g.pattern(value.node) == Pattern::kView) {
    chain.push_back(value.node);
    value = g.operands(value.node)[0];
  }
  return chain;
}

// The layout of `stored` under which the view after the first `steps` views of the chain (counted
// from the stored value) lies by DenseAlong(its shape, axis).
std::optional<Layout> DenseAfter(const BackwardGraph& g, ValueId stored,
                                 absl::Span<const NodeId> chain, size_t steps, int axis = -1) {
  const Shape& extents = g.type(stored).shape;
  if (steps == 0 && Elements(extents) > 0) return Layout{DenseAlong(extents, axis)};
  AccessMap map{.coords = OwnAxes(extents.size()), .guards = {}, .fill = 0};
  Shape shape = extents;
  for (size_t i = 0; i < steps; ++i) {
    const NodeId view = chain[chain.size() - 1 - i];
    auto next = ThroughViewForward(g, view, map, extents);
    if (!next) return std::nullopt;
    map = std::move(*next);
    shape = g.type(view).shape;
  }
  auto strides = AffineStrides(Linearize(map.coords, DenseAlong(shape, axis)), extents.size());
  if (!strides || !IsDensePermutation(extents, *strides)) return std::nullopt;
  return Layout{std::move(*strides)};
}

// Library calls that read a stored value, through views: (call, the operand as the call sees it).
// Depth first, in the order of the uses; `stack` is scratch.
void LibraryUsers(const BackwardGraph& g, ValueId v, std::vector<std::pair<ValueId, Use>>& stack,
                  std::vector<std::pair<NodeId, ValueId>>& out) {
  const auto push = [&](ValueId as) {
    const absl::Span<const Use> uses = g.uses(as.node);
    for (size_t i = uses.size(); i-- > 0;) {
      if (uses[i].result == as.result) stack.push_back({as, uses[i]});
    }
  };
  out.clear();
  push(v);
  while (!stack.empty()) {
    const auto [as, use] = stack.back();
    stack.pop_back();
    if (g.pattern(use.user) == Pattern::kView) {
      push({use.user, 0});
    } else if (IsLibrary(g, use.user)) {
      out.push_back({use.user, as});
    }
  }
}

// How an operand lies, if that is a memory order for a result of this shape.
std::optional<Layout> OrderOf(const BackwardGraph& g, absl::Span<const Layout> layouts,
                              ValueId operand, const Shape& shape) {
  if (g.type(operand).shape != shape || IsConstant(g, BehindViews(g, operand).node)) {
    return std::nullopt;
  }
  if (g.pattern(operand.node) != Pattern::kView) {
    const Layout& layout = layouts[g.value_index(operand)];
    const bool dense =
        layout.strides.size() == shape.size() && IsDensePermutation(shape, layout.strides);
    return dense ? std::optional(layout) : std::nullopt;
  }
  auto view = AsStrided(g, layouts, operand);
  if (!view || !IsDensePermutation(shape, view->strides)) return std::nullopt;
  return Layout{std::move(view->strides)};
}

// The axes along which a call wants the value to lie, as each operand that it is.
std::vector<int> AxesOf(const BackwardGraph& g, NodeId call, ValueId value) {
  const auto lies_along = CallOpOf(g.op(call)).lies_along;
  std::vector<int> axes;
  const absl::Span<const ValueId> operands = g.operands(call);
  for (size_t i = 0; i < operands.size() && lies_along != nullptr; ++i) {
    const int axis = operands[i] == value ? lies_along(static_cast<int>(i), g.type(value)) : -1;
    if (axis >= 0) axes.push_back(axis);
  }
  return axes;
}

// Whether the strides nest the dims in one order, gaps or not.
bool AreOrdered(absl::Span<const int64_t> shape, absl::Span<const int64_t> strides) {
  absl::InlinedVector<std::pair<int64_t, int64_t>, 8> dims;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] != 1) dims.push_back({strides[i], shape[i]});
  }
  std::sort(dims.begin(), dims.end());
  int64_t span = 1;  // at least, of what the dims before go through
  for (auto [stride, extent] : dims) {
    if (stride < span) return false;
    span = stride * std::max<int64_t>(extent, 1);
  }
  return true;
}

// The order of an operand of this shape, or that of a slice, without the gaps that it has.
std::optional<Layout> OrderWithoutGaps(const BackwardGraph& g, absl::Span<const Layout> layouts,
                                       ValueId operand) {
  const Shape& shape = g.type(operand).shape;
  if (auto order = OrderOf(g, layouts, operand, shape)) return order;
  const auto view = AsStrided(g, layouts, operand);
  if (!view || !AreOrdered(shape, view->strides)) return std::nullopt;
  return DenseInOrderOf(view->strides, shape);
}

// The dense layout in the order of the first operand that is a slice, which has gaps, with pads
// around it or without.
std::optional<Layout> LikePart(const BackwardGraph& g, absl::Span<const Layout> layouts,
                               ValueId v) {
  const Shape& shape = g.type(v).shape;
  for (ValueId operand : g.operands(v.node)) {
    if (g.type(operand).shape != shape || IsConstant(g, BehindViews(g, operand).node)) continue;
    const auto strides = StridesWithinPads(g, layouts, operand);
    if (strides && AreOrdered(shape, *strides)) return DenseInOrderOf(*strides, shape);
  }
  return std::nullopt;
}

// The dense layout along the dim along which the first operand lies whose views do what no strides
// say along others: they repeat, pad or flip them.
std::optional<Layout> LikeNeighbours(const BackwardGraph& g, absl::Span<const Layout> layouts,
                                     ValueId v) {
  const Shape& shape = g.type(v).shape;
  for (ValueId operand : g.operands(v.node)) {
    if (g.type(operand).shape != shape || IsConstant(g, BehindViews(g, operand).node)) continue;
    if (AsStrided(g, layouts, operand)) continue;
    const int dim = FastestDim(g, layouts, operand);
    if (dim >= 0) return Layout{DenseAlong(shape, dim)};
  }
  return std::nullopt;
}

// The dense layout in the order of most elements that are joined. A part of one position along the
// joined axis, whose stride says nothing, has that axis where row-major has it.
std::optional<Layout> LikeMostParts(const BackwardGraph& g, absl::Span<const Layout> layouts,
                                    ValueId v) {
  absl::btree_map<std::vector<int64_t>, int64_t> elements;  // by the strides of a layout
  for (ValueId operand : g.operands(v.node)) {
    if (IsConstant(g, BehindViews(g, operand).node)) continue;
    const Shape& part = g.type(operand).shape;
    const auto view = AsStrided(g, layouts, operand);
    if (!view || !AreOrdered(part, view->strides)) continue;
    const Layout of_part = DenseInOrderOf(view->strides, part);
    elements[DenseInOrderOf(of_part.strides, g.type(v).shape).strides] +=
        g.type(operand).elements();
  }
  const auto most =
      std::max_element(elements.begin(), elements.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  return most == elements.end() ? std::nullopt : std::optional(Layout{most->first});
}

// A dense layout with gaps after each run of the innermost dim, so that all runs begin aligned;
// nullopt where they do.
std::optional<Layout> Pitched(const TensorType& type, Layout layout, int64_t alignment_bytes) {
  const int64_t unit = std::max<int64_t>(alignment_bytes / SizeBytes(type.dtype), 1);
  int64_t run = 1;  // extent of the innermost dim
  for (size_t d = 0; d < type.shape.size(); ++d) {
    if (layout.strides[d] == 1 && type.shape[d] > 1) run = type.shape[d];
  }
  if (run == 1 || run % unit == 0 || run == type.elements()) return std::nullopt;
  const int64_t pitch = (run + unit - 1) / unit * unit;
  for (size_t d = 0; d < type.shape.size(); ++d) {
    if (type.shape[d] > 1 && layout.strides[d] > 1)
      layout.strides[d] = layout.strides[d] / run * pitch;
  }
  return layout;
}

class Assigner {
 public:
  Assigner(const BackwardGraph& g, const LayoutOptions& options)
      : g_(g), options_(options), layouts_(g.num_values()), of_no_order_(ValuesOfNoOrder(g)) {}

  // What takes the order of tensors that are read beside it, or walked with it, which only a first
  // assignment knows, is claimed for a second, which lets others follow.
  ValueLayouts Run() {
    std::vector<Layout> first = AssignAll();
    std::vector<Layout> claimed(g_.num_values());
    const std::vector<ValueId> free = std::exchange(free_, {});
    const std::vector<ValueId> following = std::exchange(following_, {});
    const bool readers = Claim(free, OrdersOfReaders(g_, first, free), claimed);
    const bool walks = options_.walk_order &&
                       Claim(following, OrdersOfWalks(g_, first, following, of_no_order_), claimed);
    if (!readers && !walks) return {std::move(first), false};
    layouts_ = std::move(claimed);
    return {AssignAll(), walks};
  }

 private:
  // Memory order of the first operand that has one, where the result is walked like it; one that
  // nothing in memory gives only where no other operand has one.
  std::optional<Layout> LikeOperand(ValueId v) const {
    const Shape& shape = g_.type(v).shape;
    for (const bool of_none : {false, true}) {
      for (ValueId operand : g_.operands(v.node)) {
        if (IsOfNoOrder(operand) != of_none) continue;
        if (auto order = OrderOf(g_, layouts_, operand, shape)) return order;
      }
    }
    return std::nullopt;
  }

  // The order of the operands of the result's shape, if all of them lie alike whose order something
  // in memory gives: in any other order its kernel transposes.
  std::optional<Layout> LikeAllOperands(ValueId v) const {
    std::optional<Layout> common;
    for (ValueId operand : g_.operands(v.node)) {
      if (g_.type(operand).shape != g_.type(v).shape || IsOfNoOrder(operand)) continue;
      if (IsConstant(g_, BehindViews(g_, operand).node)) continue;
      auto order = OrderWithoutGaps(g_, layouts_, operand);
      if (!order || (common && common->strides != order->strides)) return std::nullopt;
      common = std::move(order);
    }
    return common;
  }

  bool IsOfNoOrder(ValueId operand) const {
    return of_no_order_[g_.value_index(BehindViews(g_, operand))];
  }

  // Whether any of the values can be stored in the order that was found for it.
  bool Claim(const std::vector<ValueId>& values, std::vector<std::optional<Layout>> orders,
             std::vector<Layout>& claimed) const {
    bool any = false;
    for (size_t i = 0; i < values.size(); ++i) {
      if (!orders[i] || !Stores(values[i], *orders[i])) continue;
      claimed[g_.value_index(values[i])] = *std::move(orders[i]);
      any = true;
    }
    return any;
  }

  std::vector<Layout> AssignAll() {
    ClaimOutputs();
    // What is made for a call may lie like another operand of it that stands later in the graph.
    for (uint32_t i = 0; i < g_.num_nodes(); ++i) {
      if (g_.op(NodeId{i}) == Op::input) AssignInput(NodeId{i});
    }
    for (uint32_t i = 0; i < g_.num_nodes(); ++i) {
      if (CopiesPermuted(NodeId{i})) Assign(NodeId{i});
    }
    for (uint32_t i = 0; i < g_.num_nodes(); ++i) Assign(NodeId{i});
    return std::move(layouts_);
  }

  void ClaimOutputs() {
    for (const GraphOutput& out : g_.outputs()) {
      if (!out.value) continue;
      const ValueId stored = BehindViews(g_, *out.value);
      Layout& layout = layouts_[g_.value_index(stored)];
      if (g_.pattern(stored.node) == Pattern::kInput || !layout.strides.empty()) continue;
      if (auto wanted = LayoutForOutput(g_, out)) layout = std::move(*wanted);
    }
  }

  void AssignInput(NodeId id) {
    const Node& node = g_.node(id);
    layouts_[g_.value_index({id, 0})].strides =
        node.input->strides.empty() ? DenseStrides(node.results[0].shape) : node.input->strides;
  }

  void Assign(NodeId id) {
    const Node& node = g_.node(id);
    if (!Computes(g_, id)) return;
    for (uint32_t r = 0; r < node.results.size(); ++r) {
      const ValueId v{id, r};
      Layout& layout = layouts_[g_.value_index(v)];
      if (layout.strides.empty() && node.results[r].rank() > 0) layout = Choose(v);
    }
  }

  // A copy of permuted dims is there to move what it copies, where it is no copy for a call, which
  // says itself what it reads.
  bool CopiesPermuted(NodeId id) const {
    if (g_.op(id) != Op::copy || g_.op(g_.operands(id)[0].node) != Op::permute) return false;
    const absl::Span<const Use> uses = g_.uses(id);
    return std::none_of(uses.begin(), uses.end(),
                        [&](const Use& use) { return IsLibrary(g_, use.user); });
  }

  // Whether sums at indices are added onto it: it lies as their table does.
  bool IsBaseOfSums(NodeId id) const {
    const auto uses = g_.uses(id);
    return std::any_of(uses.begin(), uses.end(), [&](const Use& use) {
      return use.operand == 0 && g_.pattern(use.user) == Pattern::kScatter;
    });
  }

  // Of a call's result that sums at indices are added onto as it is permuted: so that they find it
  // as their table lies.
  std::optional<Layout> AsBaseOfSums(ValueId v) const {
    for (const Use& use : g_.uses(v.node)) {
      if (g_.op(use.user) != Op::permute || !IsBaseOfSums(use.user)) continue;
      const std::vector<int64_t> dense = DenseStrides(g_.type(use.user).shape);
      const absl::Span<const int64_t> perm = g_.node(use.user).attrs.Ints("perm");
      Layout layout{std::vector<int64_t>(perm.size())};
      for (size_t d = 0; d < perm.size(); ++d) layout.strides[perm[d]] = dense[d];
      if (LibraryStores(g_, v, layout.strides)) return layout;
    }
    return std::nullopt;
  }

  Layout Choose(ValueId v) {
    const NodeId id = v.node;
    const auto natural = [&] { return Layout{DenseStrides(g_.type(v).shape)}; };
    if (g_.pattern(id) == Pattern::kScatter) return natural();
    if (!IsLibrary(g_, id) && IsBaseOfSums(id)) return natural();
    const int like =
        IsLibrary(g_, id) ? CallOpOf(g_.op(id)).result_like(static_cast<int>(v.result)) : -1;
    if (like >= 0) {
      auto layout = InOrderOf(g_.operands(id)[like], g_.type(v).shape);
      return layout && LibraryStores(g_, v, layout->strides) ? *layout : natural();
    }
    if (!options_.follow) return natural();
    LibraryUsers(g_, v, stack_, library_users_);
    if (CopiesPermuted(id) && AllRead(v, natural())) return natural();
    if (!library_users_.empty()) {
      if (auto layout = ForLibrary(v)) {
        const bool may_pitch = options_.pitches && !IsLibrary(g_, id);
        const auto pitched =
            may_pitch ? Pitched(g_.type(v), *layout, options_.alignment_bytes) : std::nullopt;
        return pitched && AllRead(v, *pitched) ? *pitched : *layout;
      }
    }
    if (IsElementwise(g_, id)) {
      auto layout = LikeOperand(v);
      if (!layout) layout = LikePart(g_, layouts_, v);
      if (!layout) layout = LikeNeighbours(g_, layouts_, v);
      following_.push_back(v);
      return layout ? *layout : natural();
    }
    if (g_.pattern(id) == Pattern::kJoin) {
      if (auto layout = LikeMostParts(g_, layouts_, v)) return *layout;
    }
    if (IsLibrary(g_, id) && library_users_.empty()) {
      if (auto layout = AsBaseOfSums(v)) return *layout;
      free_.push_back(v);
    }
    return natural();
  }

  // A dense layout of the shape in the operand's memory order.
  std::optional<Layout> InOrderOf(ValueId operand, const Shape& shape) const {
    auto view = AsStrided(g_, layouts_, operand);
    if (!view) return std::nullopt;
    if (g_.type(operand).shape != shape) return DenseInOrderOf(view->strides, shape);
    if (IsDensePermutation(shape, view->strides)) return Layout{std::move(view->strides)};
    return std::nullopt;
  }

  // What library calls read, in an order that they take as it is.
  std::optional<Layout> ForLibrary(ValueId v) {
    if (auto layout = BesideOthers(v)) return layout;
    if (g_.pattern(v.node) == Pattern::kPointwise) {
      if (auto layout = LikeAllOperands(v); layout && AllRead(v, *layout)) return layout;
    }
    for (const auto reads : {LibraryPrefers, LibraryReads}) {
      for (auto [call, as] : library_users_) {
        if (auto layout = ReadableBy(v, call, as, reads)) return layout;
      }
    }
    return std::nullopt;
  }

  // The layout that a call asks of v beside its other operands, where these lie already.
  std::optional<Layout> BesideOthers(ValueId v) {
    for (auto [call, as] : library_users_) {
      const auto beside = CallOpOf(g_.op(call)).beside;
      if (beside == nullptr || as != v) continue;
      for (ValueId other : g_.operands(call)) {
        if (other == v || !Lies(BehindViews(g_, other))) continue;
        const auto view = AsStrided(g_, layouts_, other);
        if (!view) continue;
        Layout layout{beside(g_.type(v).shape, g_.type(other).shape, view->strides)};
        if (!layout.strides.empty() && AllRead(v, layout)) return layout;
      }
    }
    return std::nullopt;
  }

  bool Lies(ValueId stored) const { return !layouts_[g_.value_index(stored)].strides.empty(); }

  // Whether what makes v can store it so: a library call takes some layouts only.
  bool Stores(ValueId v, const Layout& layout) const {
    return !IsLibrary(g_, v.node) || LibraryStores(g_, v, layout.strides);
  }

  // Whether v can be stored so and every library call then prefers it to a copy.
  bool AllRead(ValueId v, const Layout& layout) {
    if (!Stores(v, layout)) return false;
    Layout& slot = layouts_[g_.value_index(v)];
    slot = layout;
    const bool all = std::all_of(
        library_users_.begin(), library_users_.end(),
        [&](const auto& user) { return LibraryPrefers(g_, layouts_, user.first, user.second); });
    slot = {};
    return all;
  }

  // A layout that v can be stored in and the call reads without a copy: row-major if that will do,
  // else row-major as seen after one of the views in between, or along the axis that the call is
  // made for.
  std::optional<Layout> ReadableBy(ValueId v, NodeId call, ValueId as,
                                   decltype(LibraryReads)* reads) {
    Layout& slot = layouts_[g_.value_index(v)];
    const std::vector<NodeId> chain = ViewChain(g_, as);
    std::optional<Layout> found;
    const auto try_one = [&](std::optional<Layout> candidate) {
      if (found || !candidate || !Stores(v, *candidate)) return;
      slot = *std::move(candidate);
      if (reads(g_, layouts_, call, as)) found = slot;
    };
    for (size_t steps = 0; steps <= chain.size(); ++steps) try_one(DenseAfter(g_, v, chain, steps));
    for (int axis : AxesOf(g_, call, as)) try_one(DenseAfter(g_, v, chain, chain.size(), axis));
    slot = {};
    return found;
  }

  const BackwardGraph& g_;
  const LayoutOptions& options_;
  std::vector<Layout> layouts_;
  const std::vector<bool> of_no_order_;
  std::vector<ValueId> free_;       // results of calls, of which nothing asks for an order
  std::vector<ValueId> following_;  // elementwise values that took the order of an operand, or none
  std::vector<std::pair<ValueId, Use>> stack_;             // scratch
  std::vector<std::pair<NodeId, ValueId>> library_users_;  // of the value that is chosen for
};

}  // namespace

ValueLayouts AssignLayouts(const BackwardGraph& graph, const LayoutOptions& options) {
  return Assigner(graph, options).Run();
}

bool LibraryReads(const BackwardGraph& g, absl::Span<const Layout> layouts, NodeId call,
                  ValueId value) {
  const std::optional<StridedView> view = AsStrided(g, layouts, value);
  return view && CallOpOf(g.op(call)).reads(g.type(value).shape, view->strides);
}

bool LibraryPrefers(const BackwardGraph& g, absl::Span<const Layout> layouts, NodeId call,
                    ValueId value) {
  const std::optional<StridedView> view = AsStrided(g, layouts, value);
  const Shape& shape = g.type(value).shape;
  if (!view || !CallOpOf(g.op(call)).reads(shape, view->strides)) return false;
  const std::vector<int> axes = AxesOf(g, call, value);
  return std::all_of(axes.begin(), axes.end(),
                     [&](int axis) { return shape[axis] <= 1 || view->strides[axis] == 1; });
}

bool LibraryStores(const BackwardGraph& g, ValueId result, absl::Span<const int64_t> strides) {
  return CallOpOf(g.op(result.node)).stores(g.type(result).shape, strides);
}

std::optional<Layout> LayoutForOutput(const BackwardGraph& g, const GraphOutput& output) {
  const std::vector<NodeId> chain = ViewChain(g, *output.value);
  const ValueId stored = BehindViews(g, *output.value);
  const Shape& extents = g.type(stored).shape;
  std::optional<std::vector<int64_t>> strides =
      output.strides.empty() ? DenseStrides(g.type(*output.value).shape) : output.strides;
  if (!chain.empty()) {
    AccessMap map{.coords = OwnAxes(extents.size()), .guards = {}, .fill = 0};
    for (size_t i = chain.size(); i-- > 0;) {
      auto next = ThroughViewForward(g, chain[i], map, extents);
      if (!next) return std::nullopt;
      map = std::move(*next);
    }
    const IndexExpr address = Linearize(map.coords, *strides);
    strides = AffineStrides(address, extents.size());
    if (!strides || address.offset() != 0) return std::nullopt;
  }
  for (size_t i = 0; i < extents.size(); ++i) {
    if (extents[i] > 1 && (*strides)[i] <= 0) return std::nullopt;
    if (extents[i] <= 1) (*strides)[i] = std::max<int64_t>((*strides)[i], 1);
  }
  return Layout{std::move(*strides)};
}

}  // namespace retrograd
