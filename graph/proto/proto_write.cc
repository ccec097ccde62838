#include "graph/proto/graph.pb.h"
#include "graph/proto/proto.h"

namespace retrograd {
namespace {

void Write(const TensorType& type, v1::TensorType* out) {
  out->set_dtype(static_cast<v1::DType>(type.dtype));
  for (int64_t extent : type.shape) out->add_dims(extent);
}

void Write(ValueId v, v1::Value* out) {
  out->set_node(Index(v.node));
  out->set_result(v.result);
}

void Write(absl::string_view name, const AttrValue& value, v1::Attr* out) {
  out->set_name(std::string(name));
  if (const auto* integer = std::get_if<int64_t>(&value)) {
    out->set_i(*integer);
  } else if (const auto* number = std::get_if<double>(&value)) {
    out->set_f(*number);
  } else if (const auto* text = std::get_if<std::string>(&value)) {
    out->set_s(*text);
  } else {
    v1::IntList* list = out->mutable_ints();
    for (int64_t i : std::get<std::vector<int64_t>>(value)) list->add_values(i);
  }
}

void Write(const InputInfo& info, v1::InputInfo* out) {
  out->set_name(info.name);
  out->set_kind(static_cast<v1::InputKind>(info.kind));
  for (int64_t stride : info.strides) out->add_strides(stride);
  out->set_alignment(static_cast<uint32_t>(info.alignment));
  out->set_donated(info.donated);
}

void Write(const Origin& origin, v1::Origin* out) {
  out->set_op(origin.op);
  out->set_instance(origin.instance);
  out->set_module_path(origin.module_path);
  out->set_source(origin.source);
  out->set_recomputed(origin.recomputed);
}

void Write(const GraphOutput& output, v1::Output* out) {
  if (output.value.has_value()) {
    Write(*output.value, out->mutable_value());
  } else {
    out->set_absent(true);
  }
  out->set_name(output.name);
  for (int64_t stride : output.strides) out->add_strides(stride);
}

void Write(const BackwardGraph& graph, NodeId id, v1::Node* out) {
  const Node& node = graph.node(id);
  out->set_id(Index(id));
  out->set_op(std::string(Name(node.op)));
  for (ValueId v : graph.operands(id)) Write(v, out->add_operands());
  for (const TensorType& type : node.results) Write(type, out->add_results());
  for (const auto& [name, value] : node.attrs.all()) Write(name, value, out->add_attrs());
  out->set_origin(static_cast<uint32_t>(node.origin + 1));
  if (node.input != nullptr) Write(*node.input, out->mutable_input());
}

google::protobuf::Message* Owner(const UnknownFields& fields, v1::Graph* out) {
  const int index = static_cast<int>(fields.index);
  switch (fields.of) {
    case UnknownFields::Of::kGraph: return out;
    case UnknownFields::Of::kNumerics: return out->mutable_numerics();
    case UnknownFields::Of::kOrigin: return out->mutable_origins(index);
    case UnknownFields::Of::kNode: return out->mutable_nodes(index);
    case UnknownFields::Of::kInput: return out->mutable_nodes(index)->mutable_input();
    case UnknownFields::Of::kOutput: return out->mutable_outputs(index);
  }
  return out;
}

}  // namespace

std::string SerializeGraph(const BackwardGraph& graph) {
  v1::Graph out;
  out.set_schema_major(kSchemaMajor);
  out.set_schema_minor(kSchemaMinor);
  out.set_name(graph.name());
  v1::Numerics* numerics = out.mutable_numerics();
  numerics->set_allow_tf32(graph.numerics().allow_tf32);
  numerics->set_allow_reduced_precision_reduction(
      graph.numerics().allow_reduced_precision_reduction);
  numerics->set_deterministic(graph.numerics().deterministic);
  numerics->set_framework(graph.numerics().framework);
  for (const Origin& origin : graph.origins()) Write(origin, out.add_origins());
  for (uint32_t i = 0; i < graph.num_nodes(); ++i) Write(graph, NodeId{i}, out.add_nodes());
  for (const GraphOutput& output : graph.outputs()) Write(output, out.add_outputs());
  for (const UnknownFields& fields : graph.unknown_fields()) {
    google::protobuf::Message* owner = Owner(fields, &out);
    owner->GetReflection()->MutableUnknownFields(owner)->ParseFromString(fields.bytes);
  }
  return out.SerializeAsString();
}

}  // namespace retrograd
