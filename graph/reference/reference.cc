#include "graph/reference/reference.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "graph/base/malformations.h"
#include "graph/base/rounding.h"
#include "graph/base/status.h"
#include "graph/ir/composites.h"
#include "graph/ir/node_rules.h"
#include "graph/ir/structural_ops.h"
#include "graph/reference/library_reference.h"

namespace retrograd {
namespace {

constexpr int64_t kMaxTensor = int64_t{1} << 28;

double Identity(const double* x) { return x[0]; }

// Rounds what is exact in every mode: integers and bools.
void WrapIntegers(const TensorType& type, Values& values) {
  if (!IsFloat(type.dtype)) RoundTo(type.dtype, absl::MakeSpan(values));
}

absl::Status CheckSize(const TensorType& type) {
  if (type.elements() <= kMaxTensor) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(
      "the reference evaluator takes tensors of at most 2^28 elements, not ", type.Print()));
}

absl::StatusOr<std::vector<Values>> EvaluateOp(Op op, const Attrs& attrs,
                                               absl::Span<const DenseTensor> operands,
                                               absl::Span<const TensorType> results,
                                               absl::Span<const uint32_t> order);

// A composite primitive by primitive; `round` rounds every one of them.
absl::StatusOr<std::vector<Values>> EvaluateComposite(Op op, absl::Span<const DenseTensor> operands,
                                                      bool round) {
  std::vector<std::unique_ptr<TensorType>> types;
  std::vector<std::unique_ptr<Values>> values;  // null for operands
  std::vector<DenseTensor> tensors;
  std::vector<ValueId> ids;
  const auto append = [&](const TensorType& type, const double* data,
                          std::unique_ptr<Values> owned) {
    types.push_back(std::make_unique<TensorType>(type));
    values.push_back(std::move(owned));
    tensors.push_back({types.back().get(), data});
    return ValueId{NodeId{static_cast<uint32_t>(tensors.size()) - 1}, 0};
  };
  for (const DenseTensor& x : operands) ids.push_back(append(*x.type, x.data, nullptr));
  const auto add = [&](Op step, absl::Span<const ValueId> args,
                       const Attrs& attrs) -> absl::StatusOr<ValueId> {
    std::vector<DenseTensor> inputs;
    std::vector<const TensorType*> input_types;
    for (ValueId arg : args) {
      inputs.push_back(tensors[Index(arg.node)]);
      input_types.push_back(inputs.back().type);
    }
    RG_ASSIGN_OR_RETURN(const std::vector<TensorType> result, InferTypes(step, input_types, attrs));
    RG_ASSIGN_OR_RETURN(std::vector<Values> out, EvaluateOp(step, attrs, inputs, result, {}));
    if (round) RoundTo(result[0].dtype, absl::MakeSpan(out[0]));
    auto owned = std::make_unique<Values>(std::move(out[0]));
    const double* data = owned->data();
    return append(result[0], data, std::move(owned));
  };
  const auto type = [&](ValueId v) -> const TensorType& { return *types[Index(v.node)]; };
  RG_ASSIGN_OR_RETURN(const std::vector<ValueId> results,
                      WalkDefinition(DefinitionOf(op), ids, add, type));
  std::vector<Values> out;
  for (ValueId v : results) {
    const DenseTensor& x = tensors[Index(v.node)];
    out.emplace_back(x.data, x.data + x.type->elements());
  }
  return out;
}

absl::StatusOr<std::vector<Values>> EvaluateOp(Op op, const Attrs& attrs,
                                               absl::Span<const DenseTensor> operands,
                                               absl::Span<const TensorType> results,
                                               absl::Span<const uint32_t> order) {
  const OpInfo& info = Info(op);
  if (info.pattern == Pattern::kComposite) return EvaluateComposite(op, operands, false);
  std::vector<Values> out;
  for (const TensorType& type : results) {
    RG_RETURN_IF_ERROR(CheckSize(type));
    out.emplace_back(type.elements());
  }
  if (info.pattern == Pattern::kLibrary) {
    std::vector<double*> data;
    for (Values& values : out) data.push_back(values.data());
    RG_RETURN_IF_ERROR(EvaluateLibrary({op, attrs, operands, operands, results}, data));
  } else if (info.pattern != Pattern::kPointwise) {
    RG_RETURN_IF_ERROR(EvaluateLinear(op, attrs, operands, results[0], order, out[0].data()));
  } else if (info.type_rule == TypeRule::kConstant) {
    EvaluateConstant(op, attrs, results[0], out[0].data());
  } else {
    const ReferenceFn f = op == Op::cast ? Identity : info.reference;
    RG_CHECK(f != nullptr);
    EvaluatePointwise(operands, results[0], f, out[0].data());
  }
  for (size_t r = 0; r < results.size(); ++r) WrapIntegers(results[r], out[r]);
  return out;
}

class Evaluator {
 public:
  Evaluator(const BackwardGraph& graph, const ReferenceOptions& options)
      : graph_(graph), options_(options), values_(graph.num_values()) {}

  absl::StatusOr<std::vector<Values>> Run(absl::Span<const Values> inputs) {
    RG_RETURN_IF_ERROR(SetInputs(inputs));
    CountReaders();
    for (uint32_t i = 0; i < graph_.num_nodes(); ++i) {
      const NodeId id{i};
      if (graph_.op(id) != Op::input) {
        absl::Status status = EvaluateNode(id);
        if (!status.ok()) return At(NodeName(i, Name(graph_.op(id))), status);
      }
      ReleaseOperands(id);
    }
    return std::move(values_);
  }

 private:
  absl::Status SetInputs(absl::Span<const Values> inputs) {
    const std::vector<NodeId> nodes = InputNodes(graph_);
    if (nodes.size() != inputs.size()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the graph has ", nodes.size(), " inputs, values are given for ", inputs.size()));
    }
    for (size_t i = 0; i < nodes.size(); ++i) {
      const TensorType& type = graph_.type(nodes[i]);
      if (static_cast<int64_t>(inputs[i].size()) != type.elements()) {
        return absl::InvalidArgumentError(absl::StrCat("input %", Index(nodes[i]), " is ",
                                                       type.Print(), ", values are given for ",
                                                       inputs[i].size(), " elements"));
      }
      values_[graph_.value_index({nodes[i], 0})] = inputs[i];
    }
    return absl::OkStatus();
  }

  // Uses that are still to come; outputs and keep_all count as one that never comes.
  void CountReaders() {
    readers_.assign(graph_.num_values(), options_.keep_all ? 1 : 0);
    for (uint32_t i = 0; i < graph_.num_nodes(); ++i) {
      for (ValueId v : graph_.operands(NodeId{i})) ++readers_[graph_.value_index(v)];
    }
    for (const GraphOutput& output : graph_.outputs()) {
      if (output.value.has_value()) ++readers_[graph_.value_index(*output.value)];
    }
  }

  void ReleaseOperands(NodeId id) {
    for (ValueId v : graph_.operands(id)) {
      const size_t index = graph_.value_index(v);
      if (--readers_[index] == 0) Values().swap(values_[index]);
    }
    for (uint32_t r = 0; r < graph_.node(id).results.size(); ++r) {
      const size_t index = graph_.value_index({id, r});
      if (readers_[index] == 0) Values().swap(values_[index]);  // nobody will read it
    }
  }

  bool RoundsResult(NodeId id, uint32_t result) const {
    switch (options_.mode) {
      case ReferenceOptions::kFloat64: return false;
      case ReferenceOptions::kRoundEveryOp: return true;
      case ReferenceOptions::kRoundGiven: break;
    }
    const size_t index = graph_.value_index({id, result});
    const bool given = index < options_.rounded.size() && options_.rounded[index];
    return given || graph_.op(id) == Op::cast;
  }

  absl::Status EvaluateNode(NodeId id) {
    const Node& node = graph_.node(id);
    const bool comparison = Info(node.op).type_rule == TypeRule::kCompare &&
                            options_.mode == ReferenceOptions::kRoundGiven;
    std::vector<DenseTensor> operands;
    std::vector<Values> rounded;  // the operands of a comparison
    rounded.reserve(graph_.operands(id).size());
    for (ValueId v : graph_.operands(id)) {
      const Values* values = &values_[graph_.value_index(v)];
      if (comparison) {
        rounded.push_back(*values);
        RoundTo(graph_.type(v).dtype, absl::MakeSpan(rounded.back()));
        values = &rounded.back();
      }
      operands.push_back({&graph_.type(v), values->data()});
    }
    auto order = options_.accumulate_order.find(Index(id));
    const absl::Span<const uint32_t> terms =
        order == options_.accumulate_order.end() ? absl::Span<const uint32_t>() : order->second;
    if (!terms.empty()) RG_RETURN_IF_ERROR(CheckOrder(terms, operands.size()));
    absl::StatusOr<std::vector<Values>> results =
        graph_.pattern(id) == Pattern::kComposite
            ? EvaluateComposite(node.op, operands, options_.mode == ReferenceOptions::kRoundEveryOp)
            : EvaluateOp(node.op, node.attrs, operands, node.results, terms);
    RG_RETURN_IF_ERROR(results.status());
    for (uint32_t r = 0; r < node.results.size(); ++r) {
      Values& values = (*results)[r];
      if (RoundsResult(id, r)) RoundTo(node.results[r].dtype, absl::MakeSpan(values));
      values_[graph_.value_index({id, r})] = std::move(values);
    }
    return absl::OkStatus();
  }

  static absl::Status CheckOrder(absl::Span<const uint32_t> order, size_t count) {
    std::vector<bool> seen(count);
    bool legal = order.size() == count;
    for (uint32_t term : order) {
      legal = legal && term < count && !seen[term];
      if (!legal) break;
      seen[term] = true;
    }
    if (legal) return absl::OkStatus();
    return absl::InvalidArgumentError("the order of an accumulate does not hold each term once");
  }

  const BackwardGraph& graph_;
  const ReferenceOptions& options_;
  std::vector<Values> values_;
  std::vector<int64_t> readers_;
};

}  // namespace

std::vector<NodeId> InputNodes(const BackwardGraph& graph) {
  std::vector<NodeId> inputs;
  for (uint32_t i = 0; i < graph.num_nodes(); ++i) {
    if (graph.op(NodeId{i}) == Op::input) inputs.push_back(NodeId{i});
  }
  return inputs;
}

absl::StatusOr<std::vector<Values>> Evaluate(const BackwardGraph& graph,
                                             absl::Span<const Values> inputs,
                                             const ReferenceOptions& options) {
  return Evaluator(graph, options).Run(inputs);
}

absl::StatusOr<std::vector<Values>> EvaluateNode(const BackwardGraph& graph, NodeId id,
                                                 absl::Span<const Values* const> operands) {
  const Node& node = graph.node(id);
  if (operands.size() != graph.operands(id).size() || node.op == Op::input) {
    return absl::InvalidArgumentError("EvaluateNode takes an op and as many operands as it has");
  }
  std::vector<DenseTensor> tensors;
  for (size_t i = 0; i < operands.size(); ++i) {
    const TensorType& type = graph.type(graph.operands(id)[i]);
    if (static_cast<int64_t>(operands[i]->size()) != type.elements()) {
      return absl::InvalidArgumentError(absl::StrCat("operand ", i, " is ", type.Print(),
                                                     " and has ", operands[i]->size(), " values"));
    }
    tensors.push_back({&type, operands[i]->data()});
  }
  return EvaluateOp(node.op, node.attrs, tensors, node.results, {});
}

}  // namespace retrograd
