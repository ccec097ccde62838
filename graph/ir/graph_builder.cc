// GraphBuilder: nodes collect in a plain vector, checked one by one; Build lays out the storage.
#include <algorithm>

#include "absl/container/flat_hash_set.h"
#include "absl/hash/hash.h"
#include "absl/strings/str_cat.h"
#include "graph/base/malformations.h"
#include "graph/base/status.h"
#include "graph/ir/backward_graph.h"
#include "graph/ir/node_rules.h"
#include "graph/ir/sorted_indices.h"
#include "graph/ir/structural_ops.h"

namespace retrograd {
namespace {

// Places in a table of origins, hashed and compared as the origins that lie there, so that an
// origin is found without a copy of it.
struct OriginHash {
  using is_transparent = void;
  const std::vector<Origin>* table;
  size_t operator()(const Origin& o) const {
    return absl::HashOf(o.op, o.instance, o.module_path, o.source, o.recomputed);
  }
  size_t operator()(int place) const { return (*this)((*table)[place]); }
};
struct OriginEqual {
  using is_transparent = void;
  const std::vector<Origin>* table;
  const Origin& At(const Origin& o) const { return o; }
  const Origin& At(int place) const { return (*table)[place]; }
  template <typename A, typename B>
  bool operator()(const A& a, const B& b) const {
    return At(a) == At(b);
  }
};

const TensorType& NoType() {
  static const auto& type = *new TensorType;
  return type;
}

// Fills uses and use_begin from the operands, by counting.
void LayOutUses(GraphStorage& storage, size_t num_nodes) {
  storage.use_begin.assign(num_nodes + 1, 0);
  for (ValueId v : storage.operands) ++storage.use_begin[Index(v.node) + 1];
  for (size_t i = 0; i < num_nodes; ++i) storage.use_begin[i + 1] += storage.use_begin[i];
  std::vector<uint32_t> next(storage.use_begin.begin(), storage.use_begin.end() - 1);
  storage.uses.resize(storage.operands.size());
  for (uint32_t user = 0; user < num_nodes; ++user) {
    const uint32_t begin = storage.operand_begin[user];
    for (uint32_t i = begin; i < storage.operand_begin[user + 1]; ++i) {
      const ValueId v = storage.operands[i];
      storage.uses[next[Index(v.node)]++] = Use{NodeId{user}, i - begin, v.result};
    }
  }
}

}  // namespace

struct GraphBuilder::Impl {
  std::string name;
  std::vector<std::shared_ptr<const Node>> nodes;
  std::vector<Op> ops;  // of the nodes
  std::vector<uint32_t> operand_begin = {0};
  std::vector<ValueId> operands;
  std::vector<GraphOutput> outputs;
  // One table of origins: another graph's until one is added, then the builder's own.
  std::shared_ptr<const std::vector<Origin>> shared_origins;
  std::vector<Origin> own_origins;
  absl::flat_hash_set<int, OriginHash, OriginEqual> origin_index{0, OriginHash{&own_origins},
                                                                 OriginEqual{&own_origins}};
  int origin = -1;  // of the nodes to come
  Numerics numerics;
  std::vector<UnknownFields> unknown_fields;
  absl::Status status;
  std::vector<const TensorType*> types;  // scratch of Append

  absl::Status CheckOperands(absl::Span<const ValueId> values);
  absl::StatusOr<NodeId> Append(Op op, absl::Span<const ValueId> values, Attrs attrs,
                                const absl::Span<const TensorType>* declared);
  NodeId Push(std::shared_ptr<const Node> node, absl::Span<const ValueId> values);
  const std::vector<Origin>& Origins() const {
    return shared_origins != nullptr ? *shared_origins : own_origins;
  }
  std::vector<Origin>& OwnOrigins() {
    if (shared_origins != nullptr) own_origins = *std::exchange(shared_origins, nullptr);
    return own_origins;
  }
  void Fail(absl::Status error) {
    if (status.ok()) status = std::move(error);
  }
  bool Exists(ValueId v) const {
    return Index(v.node) < nodes.size() && v.result < nodes[Index(v.node)]->results.size();
  }
};

absl::Status GraphBuilder::Impl::CheckOperands(absl::Span<const ValueId> values) {
  if (nodes.size() >= kMaxNodes || values.size() > kMaxOperands - operands.size()) {
    return Malformed(
        Malformation::kTooMany,
        absl::StrCat("a graph has at most ", kMaxNodes, " nodes and ", kMaxOperands, " operands"));
  }
  types.clear();
  for (size_t i = 0; i < values.size(); ++i) {
    const ValueId v = values[i];
    if (Index(v.node) >= nodes.size()) {
      return Malformed(
          Malformation::kForwardOperand,
          absl::StrCat("operand ", i, " is %", Index(v.node), ", which does not come before it"));
    }
    const std::vector<TensorType>& results = nodes[Index(v.node)]->results;
    if (v.result >= results.size()) {
      return Malformed(Malformation::kOperandResult,
                       absl::StrCat("operand ", i, " is result ", v.result, " of %", Index(v.node),
                                    ", which has ", results.size()));
    }
    types.push_back(&results[v.result]);
  }
  return absl::OkStatus();
}

absl::StatusOr<NodeId> GraphBuilder::Impl::Append(Op op, absl::Span<const ValueId> values,
                                                  Attrs attrs,
                                                  const absl::Span<const TensorType>* declared) {
  RG_RETURN_IF_ERROR(CheckOperands(values));
  for (const auto& [key, value] : attrs.all()) {
    const std::string* text = std::get_if<std::string>(&value);
    if (text == nullptr || CheckString(*text, key).ok()) continue;
    return CheckString(*text, absl::StrCat("attribute ", key));
  }
  RG_ASSIGN_OR_RETURN(std::vector<TensorType> inferred, InferTypes(op, types, attrs));
  if (declared != nullptr) {
    if (declared->size() != inferred.size()) {
      return Malformed(
          Malformation::kResultCount,
          absl::StrCat(declared->size(), " results are declared; the op has ", inferred.size()));
    }
    for (size_t i = 0; i < inferred.size(); ++i) {
      if ((*declared)[i] == inferred[i]) continue;
      return Malformed(Malformation::kDeclaredType,
                       absl::StrCat("result ", i, " is declared as ", (*declared)[i].Print(),
                                    " and inferred as ", inferred[i].Print()));
    }
  }
  if (op == Op::segment_add) {
    RG_RETURN_IF_ERROR(CheckSorted(attrs, *types[0], *nodes[Index(values[1].node)]));
  }
  auto node = std::make_shared<Node>();
  node->op = op;
  node->results = std::move(inferred);
  node->attrs = std::move(attrs);
  node->origin = origin;
  return Push(std::move(node), values);
}

NodeId GraphBuilder::Impl::Push(std::shared_ptr<const Node> node,
                                absl::Span<const ValueId> values) {
  ops.push_back(node->op);
  nodes.push_back(std::move(node));
  operands.insert(operands.end(), values.begin(), values.end());
  operand_begin.push_back(static_cast<uint32_t>(operands.size()));
  return NodeId{static_cast<uint32_t>(nodes.size()) - 1};
}

GraphBuilder::GraphBuilder(std::string name) : impl_(std::make_unique<Impl>()) {
  impl_->Fail(CheckString(name, "the graph's name"));
  impl_->name = std::move(name);
}

GraphBuilder::~GraphBuilder() = default;

ValueId GraphBuilder::Input(TensorType type, InputInfo info) {
  if (!impl_->status.ok()) return {};
  absl::Status status = impl_->CheckOperands({});
  if (status.ok()) status = CheckInput(type, info);
  if (!status.ok()) {
    impl_->Fail(At(NodeName(impl_->nodes.size(), "input"), status));
    return {};
  }
  auto node = std::make_shared<Node>();
  node->op = Op::input;
  node->results.push_back(std::move(type));
  node->origin = impl_->origin;
  node->input = std::make_shared<const InputInfo>(std::move(info));
  return {impl_->Push(std::move(node), {}), 0};
}

ValueId GraphBuilder::Add(Op op, absl::Span<const ValueId> operands, Attrs attrs) {
  if (!impl_->status.ok()) return {};
  absl::StatusOr<NodeId> id = impl_->Append(op, operands, std::move(attrs), nullptr);
  if (id.ok()) return {*id, 0};
  impl_->Fail(At(NodeName(impl_->nodes.size(), Name(op)), id.status()));
  return {};
}

absl::StatusOr<NodeId> GraphBuilder::AddNode(Op op, absl::Span<const ValueId> operands, Attrs attrs,
                                             absl::Span<const TensorType> declared) {
  RG_RETURN_IF_ERROR(impl_->status);
  absl::StatusOr<NodeId> id = impl_->Append(op, operands, std::move(attrs), &declared);
  if (!id.ok()) impl_->Fail(At(NodeName(impl_->nodes.size(), Name(op)), id.status()));
  RG_RETURN_IF_ERROR(impl_->status);
  return id;
}

NodeId GraphBuilder::AddShared(std::shared_ptr<const Node> node,
                               absl::Span<const ValueId> operands) {
  if (!impl_->status.ok()) return {};
  absl::Status status = impl_->CheckOperands(operands);
  if (status.ok()) return impl_->Push(std::move(node), operands);
  impl_->Fail(At(NodeName(impl_->nodes.size(), Name(node->op)), status));
  return {};
}

void GraphBuilder::Output(ValueId value, std::string name, std::vector<int64_t> strides) {
  if (!impl_->status.ok()) return;
  absl::Status status = CheckString(name, "the output's name");
  if (status.ok() && !impl_->Exists(value)) {
    status = Malformed(Malformation::kOutputValue, absl::StrCat("value %", Index(value.node), ".",
                                                                value.result, " does not exist"));
  }
  if (status.ok()) status = CheckStrides(type(value).shape, strides, /*distinct=*/true);
  if (!status.ok()) impl_->Fail(At(absl::StrCat("output ", impl_->outputs.size()), status));
  impl_->outputs.push_back({value, std::move(name), std::move(strides)});
}

void GraphBuilder::AbsentOutput(std::string name) {
  absl::Status status = CheckString(name, "the output's name");
  if (!status.ok()) impl_->Fail(At(absl::StrCat("output ", impl_->outputs.size()), status));
  impl_->outputs.push_back({std::nullopt, std::move(name), {}});
}

ValueId GraphBuilder::Full(double value, DType dtype, Shape shape) {
  return Add(Op::full, {},
             {{"dtype", std::string(Name(dtype))}, {"shape", std::move(shape)}, {"value", value}});
}

ValueId GraphBuilder::Cast(ValueId v, DType dtype) {
  if (type(v).dtype == dtype) return v;
  return Add(Op::cast, {v}, {{"dtype", std::string(Name(dtype))}});
}

ValueId GraphBuilder::Reshape(ValueId v, Shape shape) {
  return Add(Op::reshape, {v}, {{"shape", std::move(shape)}});
}

ValueId GraphBuilder::Permute(ValueId v, std::vector<int64_t> perm) {
  return Add(Op::permute, {v}, {{"perm", std::move(perm)}});
}

ValueId GraphBuilder::Expand(ValueId v, Shape shape) {
  return Add(Op::expand, {v}, {{"shape", std::move(shape)}});
}

ValueId GraphBuilder::Slice(ValueId v, int64_t axis, int64_t start, int64_t stop, int64_t step) {
  const Shape& shape = type(v).shape;
  const bool exists = axis >= 0 && axis < static_cast<int64_t>(shape.size());
  if (exists && start == 0 && stop == shape[axis] && step == 1) return v;
  return Add(Op::slice, {v}, {{"axis", axis}, {"start", start}, {"step", step}, {"stop", stop}});
}

ValueId GraphBuilder::Cat(absl::Span<const ValueId> parts, int64_t axis) {
  return parts.size() == 1 ? parts[0] : Add(Op::cat, parts, {{"axis", axis}});
}

ValueId GraphBuilder::Sum(ValueId v, std::vector<int64_t> axes, bool keep) {
  Attrs attrs = {{"axes", std::move(axes)}};
  if (keep) attrs.Set("keep", int64_t{1});
  return Add(Op::sum, {v}, std::move(attrs));
}

ValueId GraphBuilder::MatMul(ValueId a, ValueId b) { return Add(Op::matmul, {a, b}); }

void GraphBuilder::SetOrigin(std::optional<Origin> origin) {
  impl_->origin = -1;
  if (!origin.has_value()) return;
  RG_CHECK(impl_->shared_origins == nullptr);
  const auto found = impl_->origin_index.find(*origin);
  impl_->origin = found != impl_->origin_index.end() ? *found : AddOrigin(*std::move(origin));
  impl_->origin_index.insert(impl_->origin);
}

void GraphBuilder::ShareOrigins(const BackwardGraph& graph) {
  RG_CHECK(impl_->Origins().empty());
  impl_->shared_origins = graph.storage_->origins;
}

int GraphBuilder::AddOrigin(Origin origin) {
  absl::Status status = CheckOrigin(origin);
  if (!status.ok()) impl_->Fail(At(absl::StrCat("origin ", impl_->Origins().size()), status));
  std::vector<Origin>& origins = impl_->OwnOrigins();
  origins.push_back(std::move(origin));
  return static_cast<int>(origins.size()) - 1;
}

void GraphBuilder::SetOriginIndex(int index) {
  if (index < -1 || index >= static_cast<int>(impl_->Origins().size())) {
    impl_->Fail(At(
        absl::StrCat("node %", impl_->nodes.size()),
        Malformed(Malformation::kOriginIndex, absl::StrCat("origin ", index, " is not among the ",
                                                           impl_->Origins().size(), " origins"))));
    return;
  }
  impl_->origin = index;
}

void GraphBuilder::SetNumerics(Numerics numerics) {
  impl_->Fail(CheckString(numerics.framework, "the framework"));
  impl_->numerics = std::move(numerics);
}

void GraphBuilder::KeepUnknownFields(UnknownFields fields) {
  impl_->unknown_fields.push_back(std::move(fields));
}

const TensorType& GraphBuilder::type(ValueId v) const {
  return impl_->Exists(v) ? impl_->nodes[Index(v.node)]->results[v.result] : NoType();
}

void GraphBuilder::Reserve(size_t num_nodes, size_t num_operands) {
  impl_->nodes.reserve(num_nodes);
  impl_->ops.reserve(num_nodes);
  impl_->operand_begin.reserve(num_nodes + 1);
  impl_->operands.reserve(num_operands);
}

bool GraphBuilder::HasValue(ValueId v) const { return impl_->Exists(v); }
size_t GraphBuilder::num_nodes() const { return impl_->nodes.size(); }
const absl::Status& GraphBuilder::status() const { return impl_->status; }

absl::StatusOr<BackwardGraph> GraphBuilder::Build() {
  std::unique_ptr<Impl> impl = std::exchange(impl_, std::make_unique<Impl>());
  RG_RETURN_IF_ERROR(impl->status);
  auto storage = std::make_shared<GraphStorage>();
  const size_t num_nodes = impl->nodes.size();
  storage->name = std::move(impl->name);
  storage->nodes = std::move(impl->nodes);
  storage->ops = std::move(impl->ops);
  storage->operand_begin = std::move(impl->operand_begin);
  storage->operands = std::move(impl->operands);
  storage->outputs = std::move(impl->outputs);
  storage->origins =
      impl->shared_origins != nullptr
          ? std::move(impl->shared_origins)
          : std::make_shared<const std::vector<Origin>>(std::move(impl->own_origins));
  storage->numerics = std::move(impl->numerics);
  storage->unknown_fields = std::move(impl->unknown_fields);
  LayOutUses(*storage, num_nodes);
  storage->value_begin.resize(num_nodes + 1);
  for (size_t i = 0; i < num_nodes; ++i) {
    storage->value_begin[i + 1] =
        storage->value_begin[i] + static_cast<uint32_t>(storage->nodes[i]->results.size());
  }
  BackwardGraph graph;
  graph.storage_ = std::move(storage);
  return graph;
}

}  // namespace retrograd
