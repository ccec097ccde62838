#include "fusion/ops/library_calls.h"

#include <algorithm>
#include <tuple>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "fusion/kernel/build/build.h"
#include "fusion/kernel/ir/access_map.h"
#include "fusion/lower/layouts.h"
#include "fusion/ops/library_cost.h"
#include "graph/base/status.h"

namespace retrograd {
namespace {

class CallMaker {
 public:
  CallMaker(const BackwardGraph& g, absl::Span<const Layout> layouts, const Consumers& consumers,
            const DeviceSpec& device, const AbsorbOptions& options)
      : g_(g), layouts_(layouts), consumers_(consumers), device_(device), options_(options) {}

  absl::StatusOr<Group> MatMul(NodeId id) {
    Group group;
    group.nodes = {id};
    MatMulCall call;
    const Shape& a = g_.type(g_.operands(id)[0]).shape;
    const Shape& d = g_.type(id).shape;
    call.m = d[d.size() - 2];
    call.n = d[d.size() - 1];
    call.k = a.back();
    call.batch.assign(d.begin(), d.end() - 2);
    call.in_dtype = g_.type(g_.operands(id)[0]).dtype;
    call.out_dtype = g_.type(id).dtype;
    auto lhs = AsMatrix(g_, layouts_, g_.operands(id)[0]);
    auto rhs = AsMatrix(g_, layouts_, g_.operands(id)[1]);
    auto out = AsMatrix(g_, layouts_, {id, 0});
    if (!lhs || !rhs || !out) return Unreadable(id);
    call.a = *lhs;
    call.b = *rhs;
    call.d = *out;
    if (options_.casts) AbsorbCast(id, call, group);
    if (options_.accumulates) AbsorbAccumulate(call, group);
    group.inputs = {call.a.value, call.b.value};
    if (call.accumulate) {
      group.inputs.push_back(call.previous);
      group.in_place = {{call.previous, call.d.value}};
    }
    group.outputs = {call.d.value};
    Finish(PriceOf(call), group);
    group.body = std::move(call);
    return group;
  }

  absl::StatusOr<Group> Attention(NodeId id) const {
    Group group;
    group.nodes = {id};
    const Attrs& attrs = g_.node(id).attrs;
    AttentionCall call{.node = id,
                       .dtype = g_.type(g_.operands(id)[0]).dtype,
                       .scale = attrs.Float("scale", 1),
                       .causal = attrs.Int("causal") != 0};
    for (ValueId v : g_.operands(id)) {
      auto view = AsStrided(g_, layouts_, v);
      if (!view) return Unreadable(id);
      call.operands.push_back({view->stored, view->offset, g_.type(v).shape, view->strides});
      group.inputs.push_back(view->stored);
    }
    for (uint32_t r = 0; r < g_.node(id).results.size(); ++r) {
      const ValueId v{id, r};
      call.results.push_back({v, 0, g_.type(v).shape, layouts_[g_.value_index(v)].strides});
      group.outputs.push_back(v);
    }
    Finish(PriceAttention(call, device_, true), group);
    group.body = std::move(call);
    return group;
  }

 private:
  absl::Status Unreadable(NodeId id) const {
    return absl::InternalError(absl::StrCat("%", Index(id), " (", Name(g_.op(id)),
                                            "): an operand or result is no strided matrix; the "
                                            "graph was not legalized"));
  }

  // Layers repeat their matmuls: each is priced and explained once.
  const Price& PriceOf(const MatMulCall& call) {
    auto [at, added] = prices_.try_emplace(PriceKey{
        call.m, call.n, call.k, call.batch, call.in_dtype, call.out_dtype, call.accumulate});
    if (added) at->second = PriceMatMul(call, device_, true);
    return at->second;
  }

  static void Finish(Price price, Group& group) {
    std::sort(group.inputs.begin(), group.inputs.end());
    group.inputs.erase(std::unique(group.inputs.begin(), group.inputs.end()), group.inputs.end());
    group.price_ps = price.ps;
    group.terms = std::move(price.terms);
    group.read_bytes = price.read_bytes;
    group.written_bytes = price.written_bytes;
  }

  // The op that alone reads `value`, with the value's own dims in terms of the reader's result
  // walked in the value's order; reader's shape must be the view's.
  bool OnlyReader(NodeId id, NodeId& reader) const {
    if (consumers_.is_output(id) || consumers_.of(id).size() != 1) return false;
    reader = consumers_.of(id)[0];
    return true;
  }

  // The matrix of `reader`'s storage that the matmul's result becomes, if the reader takes the
  // whole result through views that only rearrange it.
  std::optional<MatrixOperand> ThroughReader(NodeId id, NodeId reader, ValueId operand) const {
    std::vector<NodeId> chain;
    for (ValueId v = operand; g_.pattern(v.node) == Pattern::kView; v = g_.operands(v.node)[0]) {
      chain.push_back(v.node);
    }
    if (BehindViews(g_, operand) != ValueId{id, 0}) return std::nullopt;
    if (g_.type(operand).shape != g_.type(reader).shape) return std::nullopt;
    const Shape& extents = g_.type(id).shape;
    AccessMap map;
    for (size_t i = 0; i < extents.size(); ++i)
      map.coords.push_back(IndexExpr::Axis(static_cast<int>(i)));
    for (size_t i = chain.size(); i-- > 0;) {
      auto next = ThroughViewForward(g_, chain[i], map, extents);
      if (!next) return std::nullopt;
      map = std::move(*next);
    }
    const std::vector<int64_t>& strides = layouts_[g_.value_index({reader, 0})].strides;
    const IndexExpr address = Linearize(map.coords, strides);
    if (!address.is_affine() || address.offset() != 0) return std::nullopt;
    MatrixOperand m{.value = {reader, 0}};
    const int rank = static_cast<int>(extents.size());
    for (int i = 0; i < rank - 2; ++i) m.batch_strides.push_back(address.axis_coef(i));
    m.row_stride = address.axis_coef(rank - 2);
    m.col_stride = address.axis_coef(rank - 1);
    const int64_t rows = extents[rank - 2], cols = extents[rank - 1];
    if (cols == 1) m.col_stride = m.row_stride == 1 && rows > 1 ? rows : 1;
    if (rows == 1) m.row_stride = m.col_stride == 1 ? std::max<int64_t>(cols, 1) : 1;
    const bool row_major = m.col_stride == 1 && m.row_stride >= cols;
    const bool col_major = m.row_stride == 1 && m.col_stride >= rows;
    if (!row_major && !col_major) return std::nullopt;
    return m;
  }

  void AbsorbCast(NodeId id, MatMulCall& call, Group& group) const {
    NodeId reader;
    if (!OnlyReader(id, reader) || g_.op(reader) != Op::cast) return;
    if (call.out_dtype != DType::kBf16 && call.out_dtype != DType::kFp16) return;
    if (g_.type(reader).dtype != DType::kFp32) return;
    // Read by kernels, the narrow result is the cheaper one: they widen it for nothing.
    if (!consumers_.is_output(reader)) return;
    auto m = ThroughReader(id, reader, g_.operands(reader)[0]);
    if (!m) return;
    call.d = *m;
    call.out_dtype = DType::kFp32;
    group.nodes.push_back(reader);
  }

  // accumulate(previous, product), both over the whole tensor, in previous's own storage.
  void AbsorbAccumulate(MatMulCall& call, Group& group) const {
    const NodeId last = group.nodes.back();
    NodeId reader;
    if (!OnlyReader(last, reader) || g_.op(reader) != Op::accumulate) return;
    absl::Span<const ValueId> operands = g_.operands(reader);
    if (operands.size() != 2) return;
    const int mine = BehindViews(g_, operands[0]) == ValueId{last, 0} ? 0 : 1;
    const ValueId previous = operands[1 - mine];
    if (!Computes(g_, previous.node)) return;  // a view, or the host's own memory
    if (previous.node >= last) return;         // of two matmuls the later one adds
    const size_t index = g_.value_index(previous);
    const bool whole = g_.type(previous).shape == g_.type(reader).shape;
    if (!whole || consumers_.is_output(previous.node) || consumers_.of(previous.node).size() != 1 ||
        g_.node(previous.node).results.size() != 1 ||
        layouts_[index] != layouts_[g_.value_index({reader, 0})] ||
        g_.type(previous).dtype != call.out_dtype || g_.type(reader).dtype != call.out_dtype) {
      return;
    }
    auto m = ThroughReader(last, reader, operands[mine]);
    if (!m || last != group.nodes.front()) return;
    call.d = *m;
    call.accumulate = true;
    call.previous = previous;
    group.nodes.push_back(reader);
  }

  const BackwardGraph& g_;
  absl::Span<const Layout> layouts_;
  const Consumers& consumers_;
  const DeviceSpec& device_;
  AbsorbOptions options_;
  // All that the price of a matmul depends on.
  using PriceKey = std::tuple<int64_t, int64_t, int64_t, std::vector<int64_t>, DType, DType, bool>;
  absl::flat_hash_map<PriceKey, Price> prices_;
};

}  // namespace

absl::StatusOr<std::vector<Group>> MakeLibraryGroups(const BackwardGraph& graph,
                                                     absl::Span<const Layout> layouts,
                                                     const Consumers& consumers,
                                                     const DeviceSpec& device,
                                                     const AbsorbOptions& options) {
  CallMaker maker(graph, layouts, consumers, device, options);
  std::vector<Group> groups;
  for (uint32_t i = 0; i < graph.num_nodes(); ++i) {
    const NodeId id{i};
    if (graph.op(id) == Op::matmul) {
      RG_ASSIGN_OR_RETURN(Group group, maker.MatMul(id));
      groups.push_back(std::move(group));
    } else if (graph.op(id) == Op::attention_backward) {
      RG_ASSIGN_OR_RETURN(Group group, maker.Attention(id));
      groups.push_back(std::move(group));
    }
  }
  return groups;
}

}  // namespace retrograd
