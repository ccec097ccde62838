// The C interface's graphs made by hand.
#include <string>
#include <utility>
#include <vector>

#include "api/graph.h"
#include "api/guard.h"
#include "api/handles.h"
#include "graph/base/status.h"

namespace retrograd {
namespace {

// The builder, where it takes nodes.
absl::StatusOr<GraphBuilder*> OpenBuilder(rg_builder* builder) {
  RG_RETURN_IF_ERROR(NotNull(builder, "builder"));
  if (builder->builder == nullptr) {
    return absl::FailedPreconditionError("the builder is finished: create another one");
  }
  return builder->builder.get();
}

absl::StatusOr<TensorType> TypeOf(const rg_tensor& tensor) {
  const auto known = [&](DType dtype) { return static_cast<rg_dtype>(dtype) == tensor.dtype; };
  if (std::none_of(std::begin(kAllDTypes), std::end(kAllDTypes), known)) {
    return absl::InvalidArgumentError(absl::StrCat("tensor.dtype ", tensor.dtype, " is none"));
  }
  if (tensor.rank > RG_MAX_RANK) {
    return absl::InvalidArgumentError(
        absl::StrCat("tensor.rank is ", tensor.rank, ", the most is ", RG_MAX_RANK));
  }
  return TensorType{static_cast<DType>(tensor.dtype),
                    Shape(tensor.shape, tensor.shape + tensor.rank)};
}

absl::StatusOr<InputInfo> InfoOf(const rg_tensor& tensor) {
  if (tensor.kind < RG_SAVED || tensor.kind > RG_CONSTANT) {
    return absl::InvalidArgumentError(absl::StrCat("tensor.kind ", tensor.kind, " is none"));
  }
  InputInfo info{.name = tensor.name == nullptr ? "" : tensor.name,
                 .kind = static_cast<InputKind>(tensor.kind),
                 .alignment = tensor.alignment};
  info.strides.assign(tensor.strides, tensor.strides + tensor.rank);
  const bool unset = std::all_of(info.strides.begin(), info.strides.end(),
                                 [](int64_t stride) { return stride == 0; });
  if (unset) info.strides.clear();
  return info;
}

absl::StatusOr<AttrValue> ValueOf(const rg_attribute& attribute) {
  switch (attribute.kind) {
    case RG_ATTRIBUTE_INT: return AttrValue(attribute.int_value);
    case RG_ATTRIBUTE_FLOAT: return AttrValue(attribute.float_value);
    case RG_ATTRIBUTE_STRING:
      RG_RETURN_IF_ERROR(NotNull(attribute.string_value, "attribute.string_value"));
      return AttrValue(std::string(attribute.string_value));
    case RG_ATTRIBUTE_INTS:
      if (attribute.num_ints > 0) RG_RETURN_IF_ERROR(NotNull(attribute.ints, "attribute.ints"));
      return AttrValue(std::vector<int64_t>(attribute.ints, attribute.ints + attribute.num_ints));
    default:
      return absl::InvalidArgumentError(
          absl::StrCat("attribute ", attribute.name, ": there is no kind ", attribute.kind));
  }
}

absl::StatusOr<Attrs> AttrsOf(const rg_attribute* attributes, size_t count) {
  Attrs attrs;
  if (count > 0) RG_RETURN_IF_ERROR(NotNull(attributes, "attributes"));
  for (size_t i = 0; i < count; ++i) {
    RG_RETURN_IF_ERROR(NotNull(attributes[i].name, "attribute.name"));
    RG_ASSIGN_OR_RETURN(AttrValue value, ValueOf(attributes[i]));
    attrs.Set(attributes[i].name, std::move(value));
  }
  return attrs;
}

absl::StatusOr<ValueId> Known(const GraphBuilder& builder, rg_value value) {
  const ValueId id{NodeId{value.node}, value.result};
  if (builder.HasValue(id)) return id;
  return absl::InvalidArgumentError(
      absl::StrCat("%", value.node, ".", value.result, " is no value of this builder"));
}

absl::Status AddNode(rg_builder* handle, const char* op_name, const rg_value* operands,
                     size_t num_operands, const rg_attribute* attributes, size_t num_attributes,
                     rg_value* value) {
  RG_ASSIGN_OR_RETURN(GraphBuilder* const builder, OpenBuilder(handle));
  RG_RETURN_IF_ERROR(NotNull(op_name, "op"));
  RG_RETURN_IF_ERROR(NotNull(value, "value"));
  const std::optional<Op> op = OpByName(op_name);
  if (!op || *op == Op::input) {
    return absl::NotFoundError(
        absl::StrCat("there is no op \"", op_name, "\"; near it: ", NearOpNames(op_name)));
  }
  if (num_operands > 0) RG_RETURN_IF_ERROR(NotNull(operands, "operands"));
  std::vector<ValueId> ids;
  for (size_t i = 0; i < num_operands; ++i) {
    RG_ASSIGN_OR_RETURN(ids.emplace_back(), Known(*builder, operands[i]));
  }
  RG_ASSIGN_OR_RETURN(Attrs attrs, AttrsOf(attributes, num_attributes));
  const ValueId added = builder->Add(*op, ids, std::move(attrs));
  RG_RETURN_IF_ERROR(builder->status());
  *value = {Index(added.node), added.result};
  return absl::OkStatus();
}

}  // namespace
}  // namespace retrograd

using retrograd::Guarded;
using retrograd::NotNull;

rg_code rg_builder_create(const char* name, rg_builder** builder) {
  return Guarded([&]() -> absl::Status {
    RG_RETURN_IF_ERROR(NotNull(name, "name"));
    RG_RETURN_IF_ERROR(NotNull(builder, "builder"));
    *builder = new rg_builder{std::make_unique<retrograd::GraphBuilder>(name)};
    return absl::OkStatus();
  });
}

rg_code rg_builder_input(rg_builder* builder, const rg_tensor* tensor, rg_value* value) {
  return Guarded([&]() -> absl::Status {
    RG_ASSIGN_OR_RETURN(retrograd::GraphBuilder* const open, retrograd::OpenBuilder(builder));
    RG_RETURN_IF_ERROR(NotNull(tensor, "tensor"));
    RG_RETURN_IF_ERROR(NotNull(value, "value"));
    RG_ASSIGN_OR_RETURN(const rg_tensor taken, retrograd::Taken(tensor, "rg_tensor"));
    RG_ASSIGN_OR_RETURN(retrograd::TensorType type, retrograd::TypeOf(taken));
    RG_ASSIGN_OR_RETURN(retrograd::InputInfo info, retrograd::InfoOf(taken));
    const retrograd::ValueId added = open->Input(std::move(type), std::move(info));
    RG_RETURN_IF_ERROR(open->status());
    *value = {retrograd::Index(added.node), added.result};
    return absl::OkStatus();
  });
}

rg_code rg_builder_add(rg_builder* builder, const char* op, const rg_value* operands,
                       size_t num_operands, const rg_attribute* attributes, size_t num_attributes,
                       rg_value* value) {
  return Guarded([&] {
    return retrograd::AddNode(builder, op, operands, num_operands, attributes, num_attributes,
                              value);
  });
}

rg_code rg_builder_type(const rg_builder* builder, rg_value value, rg_tensor* tensor) {
  return Guarded([&]() -> absl::Status {
    RG_ASSIGN_OR_RETURN(retrograd::GraphBuilder* const open,
                        retrograd::OpenBuilder(const_cast<rg_builder*>(builder)));
    RG_ASSIGN_OR_RETURN(const retrograd::ValueId id, retrograd::Known(*open, value));
    return retrograd::Give(retrograd::TensorOf(open->type(id), {}), tensor, "tensor");
  });
}

rg_code rg_builder_output(rg_builder* builder, rg_value value, const char* name,
                          const int64_t* strides) {
  return Guarded([&]() -> absl::Status {
    RG_ASSIGN_OR_RETURN(retrograd::GraphBuilder* const open, retrograd::OpenBuilder(builder));
    RG_RETURN_IF_ERROR(NotNull(name, "name"));
    RG_ASSIGN_OR_RETURN(const retrograd::ValueId id, retrograd::Known(*open, value));
    std::vector<int64_t> given;
    if (strides != nullptr) given.assign(strides, strides + open->type(id).rank());
    open->Output(id, name, std::move(given));
    return open->status();
  });
}

rg_code rg_builder_finish(rg_builder* builder, rg_graph** graph) {
  return Guarded([&]() -> absl::Status {
    RG_ASSIGN_OR_RETURN(retrograd::GraphBuilder* const open, retrograd::OpenBuilder(builder));
    RG_RETURN_IF_ERROR(NotNull(graph, "graph"));
    RG_ASSIGN_OR_RETURN(retrograd::BackwardGraph built, open->Build());
    builder->builder.reset();
    *graph = retrograd::NewGraph(std::move(built));
    return absl::OkStatus();
  });
}

void rg_builder_destroy(rg_builder* builder) { delete builder; }
