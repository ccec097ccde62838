#include "tests/support/graphs/mutation/mend_draft.h"

#include <algorithm>
#include <map>
#include <utility>

#include "graph/base/status.h"
#include "graph/ir/node_rules.h"
#include "graph/ir/structural_ops.h"

namespace retrograd {
namespace {

class Mender {
 public:
  Mender(const BackwardGraph& from, const Draft& draft) : draft_(draft), builder_(from.name()) {
    builder_.SetNumerics(from.numerics());
    for (const Origin& o : from.origins()) builder_.AddOrigin(o);
  }

  BackwardGraph Build() {
    for (const DraftNode& node : draft_.nodes) {
      builder_.SetOriginIndex(node.origin);
      values_.push_back(node.op == Op::input ? AddInput(node) : AddOp(node));
    }
    if (builder_.num_nodes() == 0) builder_.Input({DType::kFp32, {1}}, {});
    for (const GraphOutput& o : draft_.outputs) AddOutput(o);
    absl::StatusOr<BackwardGraph> graph = builder_.Build();
    RG_CHECK(graph.ok());
    return *std::move(graph);
  }

 private:
  using Results = std::vector<ValueId>;  // of one draft node; empty: left out

  Results AddInput(const DraftNode& node) {
    InputInfo info = node.input;
    TensorType type = node.type;
    if (!CheckInput(type, info).ok()) info.strides.clear();
    if (!CheckInput(type, info).ok()) info.alignment = 0;
    if (!CheckInput(type, info).ok()) return {};
    return {builder_.Input(std::move(type), std::move(info))};
  }

  bool Lookup(ValueId v, ValueId& out) const {
    if (Index(v.node) >= values_.size() || values_[Index(v.node)].empty()) return false;
    const Results& results = values_[Index(v.node)];
    out = results[std::min<size_t>(v.result, results.size() - 1)];
    return true;
  }

  absl::StatusOr<std::vector<TensorType>> Infer(const DraftNode& node, const Results& operands) {
    std::vector<const TensorType*> types;
    std::vector<TensorType> copies;
    for (ValueId v : operands) copies.push_back(builder_.type(v));
    for (const TensorType& t : copies) types.push_back(&t);
    return InferTypes(node.op, types, node.attrs);
  }

  Results AddOp(const DraftNode& node) {
    Results operands;
    for (ValueId v : node.operands) {
      ValueId mapped;
      if (Lookup(v, mapped)) operands.push_back(mapped);
    }
    auto types = Infer(node, operands);
    if (!types.ok() && operands.size() > 1) {
      const size_t leader = node.op == Op::where ? 1 : 0;
      const DType dtype = builder_.type(operands[std::min(leader, operands.size() - 1)]).dtype;
      Results cast = operands;
      for (size_t i = leader; i < cast.size(); ++i) {
        if (node.op != Op::index_add || i != 1) cast[i] = builder_.Cast(cast[i], dtype);
      }
      types = Infer(node, cast);
      if (types.ok()) operands = std::move(cast);
    }
    if (types.ok() && node.op == Op::segment_add && !IsSorted(node, operands)) {
      return {operands[0]};
    }
    if (!types.ok()) return operands.empty() ? Results{} : Results{operands[0]};
    const ValueId first = builder_.Add(node.op, operands, node.attrs);
    if (node.op == Op::sort_indices) sorted_rows_[first.node] = node.attrs.Int("rows");
    Results results;
    for (uint32_t r = 0; r < types->size(); ++r) results.push_back({first.node, r});
    return results;
  }

  // Whether a segment_add's indices are those of a sort_indices into as many rows as its base has.
  bool IsSorted(const DraftNode& node, const Results& operands) const {
    const auto sorted = sorted_rows_.find(operands[1].node);
    return sorted != sorted_rows_.end() &&
           sorted->second == builder_.type(operands[0]).shape[node.attrs.Int("axis")];
  }

  void AddOutput(const GraphOutput& o) {
    if (!o.value.has_value()) return builder_.AbsentOutput(o.name);
    ValueId v;
    if (!Lookup(*o.value, v)) return;
    std::vector<int64_t> strides = o.strides;
    if (!CheckStrides(builder_.type(v).shape, strides, /*distinct=*/true).ok()) strides.clear();
    builder_.Output(v, o.name, std::move(strides));
  }

  const Draft& draft_;
  GraphBuilder builder_;
  std::vector<Results> values_;            // by draft node
  std::map<NodeId, int64_t> sorted_rows_;  // of each sort_indices
};

}  // namespace

BackwardGraph MendDraft(const BackwardGraph& from, const Draft& draft) {
  return Mender(from, draft).Build();
}

}  // namespace retrograd
