#include "graph/ir/backward_graph.h"

#include <algorithm>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "graph/base/malformations.h"
#include "graph/base/status.h"
#include "graph/ir/node_rules.h"
#include "graph/ir/sorted_indices.h"
#include "graph/ir/structural_ops.h"

namespace retrograd {
namespace {

std::shared_ptr<const GraphStorage> EmptyStorage() {
  static const auto& empty = *[] {
    auto storage = std::make_shared<GraphStorage>();
    storage->operand_begin = storage->use_begin = storage->value_begin = {0};
    storage->origins = std::make_shared<const std::vector<Origin>>();
    return new std::shared_ptr<const GraphStorage>(std::move(storage));
  }();
  return empty;
}

absl::Status VerifyNode(const BackwardGraph& graph, NodeId id) {
  const Node& node = graph.node(id);
  absl::InlinedVector<const TensorType*, 8> types;
  for (ValueId v : graph.operands(id)) {
    if (v.node >= id) {
      return Malformed(Malformation::kForwardOperand,
                       absl::StrCat("operand %", Index(v.node), " does not come before it"));
    }
    if (v.result >= graph.node(v.node).results.size()) {
      return Malformed(Malformation::kOperandResult,
                       absl::StrCat("operand %", Index(v.node), ".", v.result, " does not exist"));
    }
    types.push_back(&graph.type(v));
  }
  if ((node.op == Op::input) != (node.input != nullptr)) {
    return Malformed(Malformation::kInputInfo, "inputs, and no other nodes, describe an input");
  }
  if (node.origin < -1 || node.origin >= static_cast<int>(graph.origins().size())) {
    return Malformed(Malformation::kOriginIndex,
                     absl::StrCat("origin ", node.origin, " is not in", " the table of origins"));
  }
  if (node.op == Op::input) return CheckInput(node.results[0], *node.input);
  RG_ASSIGN_OR_RETURN(const std::vector<TensorType> inferred,
                      InferTypes(node.op, types, node.attrs));
  if (inferred != node.results) {
    return Malformed(Malformation::kDeclaredType, "result types are not the inferred ones");
  }
  if (node.op != Op::segment_add) return absl::OkStatus();
  return CheckSorted(node.attrs, *types[0], graph.node(graph.operands(id)[1].node));
}

absl::Status VerifyOutput(const BackwardGraph& graph, const GraphOutput& output) {
  RG_RETURN_IF_ERROR(CheckString(output.name, "the output's name"));
  if (!output.value.has_value()) return absl::OkStatus();
  if (Index(output.value->node) >= graph.num_nodes() ||
      output.value->result >= graph.node(output.value->node).results.size()) {
    return Malformed(Malformation::kOutputValue, "its value does not exist");
  }
  return CheckStrides(graph.type(*output.value).shape, output.strides, /*distinct=*/true);
}

bool SameNode(const Node& a, const Node& b) {
  if (&a == &b) return true;
  if (a.op != b.op || a.origin != b.origin || a.results != b.results || a.attrs != b.attrs) {
    return false;
  }
  if ((a.input == nullptr) != (b.input == nullptr)) return false;
  return a.input == b.input || *a.input == *b.input;
}

}  // namespace

BackwardGraph::BackwardGraph() : storage_(EmptyStorage()) {}

const Origin* BackwardGraph::origin(NodeId id) const {
  const int index = node(id).origin;
  return index < 0 ? nullptr : &(*storage_->origins)[index];
}

absl::Status BackwardGraph::Verify() const {
  RG_RETURN_IF_ERROR(CheckString(name(), "the graph's name"));
  for (const Origin& origin : origins()) RG_RETURN_IF_ERROR(CheckOrigin(origin));
  for (uint32_t i = 0; i < num_nodes(); ++i) {
    absl::Status status = VerifyNode(*this, NodeId{i});
    if (!status.ok()) return At(NodeName(i, Name(op(NodeId{i}))), status);
  }
  for (size_t i = 0; i < outputs().size(); ++i) {
    absl::Status status = VerifyOutput(*this, outputs()[i]);
    if (!status.ok()) return At(absl::StrCat("output ", i), status);
  }
  return absl::OkStatus();
}

bool operator==(const BackwardGraph& a, const BackwardGraph& b) {
  if (a.storage_ == b.storage_) return true;
  const GraphStorage &x = *a.storage_, &y = *b.storage_;
  if (x.name != y.name || x.operand_begin != y.operand_begin || x.operands != y.operands ||
      x.outputs != y.outputs || *x.origins != *y.origins || x.numerics != y.numerics ||
      x.unknown_fields != y.unknown_fields) {
    return false;
  }
  for (uint32_t i = 0; i < a.num_nodes(); ++i) {
    if (!SameNode(a.node(NodeId{i}), b.node(NodeId{i}))) return false;
  }
  return true;
}

}  // namespace retrograd
