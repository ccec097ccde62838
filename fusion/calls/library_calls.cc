#include "fusion/calls/library_calls.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "fusion/kernel/build/build.h"
#include "fusion/kernel/ir/access_map.h"
#include "fusion/lower/layouts/layouts.h"
#include "fusion/ops/call_op.h"
#include "fusion/plan/call_key.h"
#include "graph/base/status.h"

namespace retrograd {
namespace {

class CallMaker {
 public:
  CallMaker(const BackwardGraph& g, absl::Span<const Layout> layouts, const Consumers& consumers,
            const DeviceSpec& device, const DeviceReport& report, const AbsorbOptions& options)
      : g_(g),
        layouts_(layouts),
        consumers_(consumers),
        device_(device),
        report_(report),
        options_(options) {}

  absl::StatusOr<Group> Make(NodeId id) {
    const CallOp& row = CallOpOf(g_.op(id));
    Group group;
    group.nodes = {id};
    Call call{.node = id,
              .op = g_.op(id),
              .attributes = g_.node(id).attrs,
              .tf32 = g_.numerics().allow_tf32};
    for (ValueId v : g_.operands(id)) {
      std::optional<CallTensor> operand = TensorOf(row, v);
      if (!operand || !row.reads(operand->shape, operand->strides)) return Unreadable(id);
      call.operands.push_back(*std::move(operand));
    }
    for (uint32_t r = 0; r < g_.node(id).results.size(); ++r) {
      std::optional<CallTensor> result = TensorOf(row, {id, r});
      if (!result || !row.stores(result->shape, result->strides)) return Unreadable(id);
      call.results.push_back(*std::move(result));
    }
    if (row.widens && options_.casts) AbsorbCast(row, id, call, group);
    if (row.adds && options_.accumulates) AbsorbAccumulate(row, call, group);
    for (const CallTensor& operand : call.operands) group.inputs.push_back(operand.value);
    for (const CallTensor& result : call.results) group.outputs.push_back(result.value);
    if (call.previous) {
      group.inputs.push_back(*call.previous);
      group.in_place = {{*call.previous, call.results[0].value}};
    }
    Finish(PriceOf(row, call), group);
    group.body = std::move(call);
    return group;
  }

 private:
  absl::Status Unreadable(NodeId id) const {
    return absl::InternalError(absl::StrCat("%", Index(id), " (", Name(g_.op(id)),
                                            "): an operand or result lies as its library does not "
                                            "take it; the graph was not legalized"));
  }

  std::optional<CallTensor> TensorOf(const CallOp& row, ValueId v) const {
    std::optional<StridedView> view = AsStrided(g_, layouts_, v);
    if (!view) return std::nullopt;
    const TensorType& type = g_.type(v);
    if (row.normalize != nullptr) row.normalize(type.shape, view->strides);
    return CallTensor{view->stored, view->offset, type.shape, std::move(view->strides), type.dtype};
  }

  // Layers repeat their calls: each is priced and explained once.
  const Price& PriceOf(const CallOp& row, const Call& call) {
    auto [at, added] = prices_.try_emplace(CallKey(call));
    if (!added) return at->second;
    Price& price = at->second;
    price = row.price(call, device_, true);
    if (const auto measured = report_.calls.find(at->first); measured != report_.calls.end()) {
      price.ps = measured->second;
      price.terms = {{"measured", price.ps, true, "on the device"}};
    }
    return price;
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

  // Where in `reader`'s storage the call's result lies, if the reader takes the whole result
  // through views that only rearrange it, and the call can store it there.
  std::optional<CallTensor> ThroughReader(const CallOp& row, NodeId id, NodeId reader,
                                          ValueId operand) const {
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
    CallTensor result{.value = {reader, 0}, .shape = extents, .dtype = g_.type(reader).dtype};
    for (size_t i = 0; i < extents.size(); ++i) {
      result.strides.push_back(address.axis_coef(static_cast<int>(i)));
    }
    if (row.normalize != nullptr) row.normalize(extents, result.strides);
    if (!row.stores(extents, result.strides)) return std::nullopt;
    return result;
  }

  void AbsorbCast(const CallOp& row, NodeId id, Call& call, Group& group) const {
    NodeId reader;
    if (!OnlyReader(id, reader) || g_.op(reader) != Op::cast) return;
    const DType narrow = call.results[0].dtype;
    if (narrow != DType::kBf16 && narrow != DType::kFp16) return;
    if (g_.type(reader).dtype != DType::kFp32) return;
    // Read by kernels, the narrow result is the cheaper one: they widen it for nothing.
    if (!consumers_.is_output(reader)) return;
    std::optional<CallTensor> result = ThroughReader(row, id, reader, g_.operands(reader)[0]);
    if (!result || !KeepsOrder(row, call.results[0], *result)) return;
    call.results[0] = *std::move(result);
    group.nodes.push_back(reader);
  }

  // Whether a result that takes an operand's memory order keeps it when it is stored as `other`.
  static bool KeepsOrder(const CallOp& row, const CallTensor& result, const CallTensor& other) {
    if (row.result_like(0) < 0) return true;
    for (size_t i = 0; i < result.shape.size(); ++i) {
      if (result.shape[i] > 1 && result.strides[i] != other.strides[i]) return false;
    }
    return true;
  }

  // accumulate(previous, product), both over the whole tensor, in previous's own storage.
  void AbsorbAccumulate(const CallOp& row, Call& call, Group& group) const {
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
        g_.type(previous).dtype != call.results[0].dtype ||
        g_.type(reader).dtype != call.results[0].dtype) {
      return;
    }
    std::optional<CallTensor> result = ThroughReader(row, last, reader, operands[mine]);
    if (!result || last != group.nodes.front()) return;
    call.results[0] = *std::move(result);
    call.previous = previous;
    group.nodes.push_back(reader);
  }

  const BackwardGraph& g_;
  absl::Span<const Layout> layouts_;
  const Consumers& consumers_;
  const DeviceSpec& device_;
  const DeviceReport& report_;
  AbsorbOptions options_;
  absl::flat_hash_map<std::string, Price> prices_;  // by CallKey
};

}  // namespace

absl::StatusOr<std::vector<Group>> MakeLibraryGroups(
    const BackwardGraph& graph, absl::Span<const Layout> layouts, const Consumers& consumers,
    const DeviceSpec& device, const DeviceReport& report, const AbsorbOptions& options) {
  CallMaker maker(graph, layouts, consumers, device, report, options);
  std::vector<Group> groups;
  for (uint32_t i = 0; i < graph.num_nodes(); ++i) {
    if (!IsLibrary(graph, NodeId{i})) continue;
    RG_ASSIGN_OR_RETURN(Group group, maker.Make(NodeId{i}));
    groups.push_back(std::move(group));
  }
  return groups;
}

}  // namespace retrograd
