#include "fusion/lower/concat_in_place.h"

#include <algorithm>

#include "absl/container/flat_hash_set.h"
#include "fusion/kernel/build/build.h"
#include "fusion/kernel/ir/access_map.h"
#include "fusion/kernel/ir/kernel_ir.h"
#include "fusion/lower/layouts/layouts.h"
#include "fusion/ops/call_op.h"

namespace retrograd {
namespace {

// Bytes of a part that lie together: a line of the last-level cache of both vendors. Shorter runs
// would be fetched and written back in pieces.
constexpr int64_t kLeastRun = 128;

// Ops whose results a kernel or a library call stores with any strides. An accumulate step or a
// cast behind a matmul may become part of the call, which then writes into what it adds to.
bool WritesAnyStrides(const BackwardGraph& g, NodeId id) {
  switch (g.pattern(id)) {
    case Pattern::kPointwise:
    case Pattern::kAccumulate: {
      const absl::Span<const ValueId> operands = g.operands(id);
      return std::none_of(operands.begin(), operands.end(),
                          [&](ValueId v) { return g.op(BehindViews(g, v).node) == Op::matmul; });
    }
    case Pattern::kReduction: return true;
    case Pattern::kLibrary: return CallOpOf(g.op(id)).stores_slices;
    default: return false;
  }
}

// The strides that the value behind the views of `part` has if the part has these; nullopt if the
// part is not all of it.
std::optional<Layout> LayoutBehind(const BackwardGraph& g, ValueId part,
                                   absl::Span<const int64_t> strides) {
  std::vector<NodeId> chain;
  ValueId stored = part;
  for (; g.pattern(stored.node) == Pattern::kView; stored = g.operands(stored.node)[0]) {
    chain.push_back(stored.node);
  }
  const Shape& extents = g.type(stored).shape;
  AccessMap map;
  for (size_t i = 0; i < extents.size(); ++i) {
    map.coords.push_back(IndexExpr::Axis(static_cast<int>(i)));
  }
  for (size_t i = chain.size(); i-- > 0;) {
    auto next = ThroughViewForward(g, chain[i], map, extents);
    if (!next) return std::nullopt;
    map = std::move(*next);
  }
  if (!map.guards.empty() || g.type(stored).elements() != g.type(part).elements())
    return std::nullopt;
  const IndexExpr address = Linearize(map.coords, strides);
  if (!address.is_affine() || address.offset() != 0) return std::nullopt;
  Layout layout;
  for (size_t i = 0; i < extents.size(); ++i) {
    const int64_t stride = address.axis_coef(static_cast<int>(i));
    if (stride <= 0 && extents[i] > 1) return std::nullopt;
    layout.strides.push_back(std::max<int64_t>(stride, 1));
  }
  return layout;
}

// Whether every library call that reads the value, through views, can do so under the layout, and
// no sums at indices are added onto it, which lie as their table does.
bool ReadersTake(const BackwardGraph& g, std::vector<Layout>& layouts, ValueId stored,
                 const Layout& layout) {
  Layout& slot = layouts[g.value_index(stored)];
  const Layout before = slot;
  slot = layout;
  bool ok = true;
  std::vector<ValueId> stack = {stored};
  while (!stack.empty() && ok) {
    const ValueId v = stack.back();
    stack.pop_back();
    for (const Use& use : g.uses(v.node)) {
      if (use.result != v.result) continue;
      if (g.pattern(use.user) == Pattern::kView) {
        stack.push_back({use.user, 0});
      } else if (IsLibrary(g, use.user)) {
        ok = ok && LibraryReads(g, layouts, use.user, v);
      } else if (g.pattern(use.user) == Pattern::kScatter && use.operand == 0) {
        ok = false;
      }
    }
  }
  slot = before;
  return ok;
}

class Placer {
 public:
  Placer(const BackwardGraph& g, const Consumers& consumers, std::vector<Layout>& layouts)
      : g_(g), consumers_(consumers), layouts_(layouts) {}

  std::optional<PlacedParts> Place(absl::Span<const ValueId> parts, int64_t axis,
                                   absl::Span<const int64_t> whole_shape) {
    const std::vector<int64_t> strides = DenseStrides(whole_shape);
    PlacedParts placed;
    int64_t start = 0;
    for (ValueId part : parts) {
      const TensorType& type = g_.type(part);
      const ValueId stored = BehindViews(g_, part);
      const int64_t size = SizeBytes(type.dtype);
      const int64_t offset = start * strides[axis];
      if (type.elements() == 0 || offset * size % kStoredAlignment != 0) return std::nullopt;
      if (type.shape[axis] * strides[axis] * size < kLeastRun) return std::nullopt;
      if (!Computes(g_, stored.node) || consumers_.is_output(stored.node) ||
          !WritesAnyStrides(g_, stored.node)) {
        return std::nullopt;
      }
      for (const Alias::Part& other : placed.parts) {
        if (other.value == stored) return std::nullopt;
      }
      auto layout = LayoutBehind(g_, part, strides);
      if (!layout || !ReadersTake(g_, layouts_, stored, *layout)) return std::nullopt;
      if (IsLibrary(g_, stored.node) && !LibraryStores(g_, stored, layout->strides)) {
        return std::nullopt;
      }
      placed.parts.push_back({stored, offset});
      placed.layouts.push_back(std::move(*layout));
      start += type.shape[axis];
    }
    return placed;
  }

  std::vector<Alias> Run() {
    std::vector<Alias> joins;
    absl::flat_hash_set<ValueId> placed;
    for (uint32_t i = 0; i < g_.num_nodes(); ++i) {
      const NodeId id{i};
      if (g_.op(id) != Op::cat || consumers_.is_output(id) || !NothingToCompute(id)) continue;
      if (layouts_[g_.value_index({id, 0})].strides != DenseStrides(g_.type(id).shape)) continue;
      auto parts = Place(g_.operands(id), g_.node(id).attrs.Int("axis"), g_.type(id).shape);
      if (!parts) continue;
      const bool taken = std::any_of(parts->parts.begin(), parts->parts.end(),
                                     [&](const auto& p) { return placed.contains(p.value); });
      if (taken) continue;
      for (size_t p = 0; p < parts->parts.size(); ++p) {
        placed.insert(parts->parts[p].value);
        layouts_[g_.value_index(parts->parts[p].value)] = std::move(parts->layouts[p]);
      }
      joins.push_back({{id, 0}, std::move(parts->parts)});
    }
    return joins;
  }

 private:
  bool NothingToCompute(NodeId cat) const {
    const absl::Span<const NodeId> readers = consumers_.of(cat);
    if (readers.empty()) return false;
    if (std::all_of(readers.begin(), readers.end(), [&](NodeId r) { return IsLibrary(g_, r); }))
      return true;
    const absl::Span<const ValueId> parts = g_.operands(cat);
    return std::all_of(parts.begin(), parts.end(), [&](ValueId v) {
      const NodeId made = BehindViews(g_, v).node;
      return IsLibrary(g_, made) && CallOpOf(g_.op(made)).stores_slices;
    });
  }

  const BackwardGraph& g_;
  const Consumers& consumers_;
  std::vector<Layout>& layouts_;
};

}  // namespace

std::optional<PlacedParts> PlaceParts(const BackwardGraph& graph, const Consumers& consumers,
                                      std::vector<Layout>& layouts, absl::Span<const ValueId> parts,
                                      int64_t axis, absl::Span<const int64_t> whole_shape) {
  return Placer(graph, consumers, layouts).Place(parts, axis, whole_shape);
}

std::vector<Alias> PlaceConcats(const BackwardGraph& graph, const Consumers& consumers,
                                std::vector<Layout>& layouts) {
  return Placer(graph, consumers, layouts).Run();
}

Group AliasGroup(const Alias& join) {
  Group group;
  group.nodes = {join.whole.node};
  for (const Alias::Part& part : join.parts) group.inputs.push_back(part.value);
  std::sort(group.inputs.begin(), group.inputs.end());
  group.outputs = {join.whole};
  group.body = join;
  return group;
}

}  // namespace retrograd
