#include <algorithm>

#include "absl/strings/str_cat.h"
#include "graph/base/malformations.h"
#include "graph/base/status.h"
#include "graph/ir/node_rules.h"
#include "graph/ir/structural_ops.h"
#include "graph/proto/graph.pb.h"
#include "graph/proto/proto.h"
#include "graph/proto/proto_scan.h"
#include "graph/proto/sizes_read.h"
#include "graph/text/text.h"

namespace retrograd {
namespace {

constexpr uint32_t kMaxOrigins = 1u << 17;
constexpr uint32_t kMaxOutputs = 1u << 16;

using V1 = v1::Graph;

// What one walk over the top-level fields finds.
struct Frame {
  uint32_t major = 0;
  uint32_t num_nodes = 0;
  uint32_t num_origins = 0;
  uint32_t num_outputs = 0;
};

// Reads into a message that may have been read into before: what it has allocated serves again.
template <typename Message>
absl::Status ParseMessage(absl::string_view bytes, Message& message) {
  static const MessageFields& fields = FieldsOf(*Message::descriptor());
  RG_RETURN_IF_ERROR(ScanMessage(fields, bytes));
  if (!message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return Malformed(Malformation::kNotAGraph,
                     absl::StrCat("not a graph file: no ", Message::descriptor()->name()));
  }
  return absl::OkStatus();
}

absl::Status ReadType(const v1::TensorType& type, TensorType& result) {
  const int dtype = static_cast<int>(type.dtype());
  if (dtype < v1::DTYPE_BOOL || dtype > v1::DTYPE_FP8_E5M2_FNUZ) {
    return Malformed(Malformation::kUnknownDType, absl::StrCat("dtype ", dtype, " is unknown"));
  }
  result.dtype = static_cast<DType>(dtype);
  result.shape.assign(type.dims().begin(), type.dims().end());
  return CheckShape(result.shape);
}

absl::StatusOr<AttrValue> ReadValue(const v1::Attr& attr) {
  switch (attr.value_case()) {
    case v1::Attr::kI: return AttrValue(static_cast<int64_t>(attr.i()));
    case v1::Attr::kF: return AttrValue(attr.f());
    case v1::Attr::kS: return AttrValue(attr.s());
    case v1::Attr::kInts:
      return AttrValue(
          std::vector<int64_t>(attr.ints().values().begin(), attr.ints().values().end()));
    case v1::Attr::VALUE_NOT_SET: break;
  }
  return Malformed(Malformation::kAttrType,
                   absl::StrCat("attribute ", Quote(attr.name()), " has no value"));
}

absl::StatusOr<Attrs> ReadAttrs(const v1::Node& node) {
  Attrs attrs;
  for (const v1::Attr& attr : node.attrs()) {
    if (attrs.Find(attr.name()) != nullptr) {
      return Malformed(Malformation::kDuplicateAttr,
                       absl::StrCat("attribute ", Quote(attr.name()), " occurs twice"));
    }
    if (attrs.all().size() >= 16) {
      return Malformed(Malformation::kUnknownAttr, "more than 16 attributes; no op takes so many");
    }
    RG_ASSIGN_OR_RETURN(AttrValue value, ReadValue(attr));
    attrs.Set(attr.name(), std::move(value));
  }
  return attrs;
}

InputInfo ReadInput(const v1::InputInfo& input) {
  InputInfo info;
  info.name = input.name();
  const int kind = static_cast<int>(input.kind());
  info.kind = kind < 0 || kind > 255 ? InputKind{0} : static_cast<InputKind>(kind);
  info.strides.assign(input.strides().begin(), input.strides().end());
  info.alignment = input.alignment();
  info.donated = input.donated();
  return info;
}

Origin ReadOrigin(const v1::Origin& origin) {
  return {origin.op(), origin.instance(), origin.module_path(), origin.source(),
          origin.recomputed()};
}

class GraphReader {
 public:
  explicit GraphReader(absl::string_view bytes) : bytes_(bytes) {}

  absl::StatusOr<BackwardGraph> Read() {
    if (bytes_.empty()) return Malformed(Malformation::kEmptyFile, "the file is empty");
    RG_RETURN_IF_ERROR(ReadFrame());
    RG_RETURN_IF_ERROR(ReadHeader());
    uint32_t id = 0;
    RG_RETURN_IF_ERROR(ForEach(V1::kNodesFieldNumber,
                               [&](absl::string_view bytes) { return ReadNode(id++, bytes); }));
    uint32_t output = 0;
    RG_RETURN_IF_ERROR(ForEach(V1::kOutputsFieldNumber, [&](absl::string_view bytes) {
      const uint32_t index = output++;
      absl::Status status = ReadOutput(index, bytes);
      return status.ok() ? builder_->status() : At(absl::StrCat("output ", index), status);
    }));
    RG_ASSIGN_OR_RETURN(BackwardGraph graph, builder_->Build());
    if (sizes_.empty()) return graph;
    RG_ASSIGN_OR_RETURN(const SizeTable table, ReadSizes(sizes_));
    RG_RETURN_IF_ERROR(CheckSizes(graph, table));
    return graph;
  }

 private:
  // The frame of the whole file; no message is opened yet.
  absl::Status ReadFrame() {
    absl::string_view rest = bytes_;
    while (!rest.empty()) {
      WireField field;
      const absl::string_view before = rest;
      RG_RETURN_IF_ERROR(ReadWireField(rest, field));
      const auto* known = V1::descriptor()->FindFieldByNumber(static_cast<int>(field.number));
      if (known == nullptr) {
        absl::StrAppend(&unknown_fields_, before.substr(0, before.size() - rest.size()));
        continue;
      }
      const bool delimited = field.number >= V1::kRequiredFeaturesFieldNumber;
      if (field.wire_type != (delimited ? 2 : 0)) {
        return Malformed(Malformation::kNotAGraph,
                         absl::StrCat("not a graph file: field ", known->name(), " has wire type ",
                                      field.wire_type));
      }
      if (field.number == V1::kSchemaMajorFieldNumber) {
        frame_.major = static_cast<uint32_t>(field.varint);
      }
      if (field.number == V1::kSizesFieldNumber) {  // kept as it lies there: see bind_graph.h
        absl::StrAppend(&unknown_fields_, before.substr(0, before.size() - rest.size()));
        absl::StrAppend(&sizes_, field.payload);
      }
      frame_.num_nodes += field.number == V1::kNodesFieldNumber;
      frame_.num_origins += field.number == V1::kOriginsFieldNumber;
      frame_.num_outputs += field.number == V1::kOutputsFieldNumber;
    }
    if (frame_.major != kSchemaMajor) {
      return Malformed(
          Malformation::kMajorVersion,
          absl::StrCat("schema version ", frame_.major, "; this program reads version ",
                       kSchemaMajor,
                       ": export the graph again for it, or use a Retrograd that reads "
                       "that version"));
    }
    if (frame_.num_nodes == 0) return Malformed(Malformation::kEmptyFile, "the graph has no node");
    if (frame_.num_nodes > kMaxNodes || frame_.num_origins > kMaxOrigins ||
        frame_.num_outputs > kMaxOutputs) {
      return Malformed(
          Malformation::kTooMany,
          absl::StrCat(frame_.num_nodes, " nodes, ", frame_.num_origins, " origins and ",
                       frame_.num_outputs, " outputs; at most ", kMaxNodes, ", ", kMaxOrigins,
                       " and ", kMaxOutputs, " are supported"));
    }
    return absl::OkStatus();
  }

  template <typename Function>
  absl::Status ForEach(int number, Function function) {
    absl::string_view rest = bytes_;
    while (!rest.empty()) {
      WireField field;
      RG_RETURN_IF_ERROR(ReadWireField(rest, field));
      if (static_cast<int>(field.number) == number) RG_RETURN_IF_ERROR(function(field.payload));
    }
    return absl::OkStatus();
  }

  absl::Status ReadHeader() {
    RG_RETURN_IF_ERROR(
        ForEach(V1::kRequiredFeaturesFieldNumber, [&](absl::string_view feature) -> absl::Status {
          RG_RETURN_IF_ERROR(CheckString(feature, "a required feature"));
          return Malformed(Malformation::kRequiredFeature,
                           absl::StrCat("the file needs the feature ", Quote(feature),
                                        ", which this version does not know; update it"));
        }));
    std::string name;
    RG_RETURN_IF_ERROR(ForEach(V1::kNameFieldNumber, [&](absl::string_view text) {
      absl::Status status = CheckString(text, "the graph's name");
      if (status.ok()) name = std::string(text);
      return status;
    }));
    builder_ = std::make_unique<GraphBuilder>(std::move(name));
    builder_->Reserve(frame_.num_nodes);
    if (!unknown_fields_.empty()) {
      builder_->KeepUnknownFields({UnknownFields::Of::kGraph, 0, std::move(unknown_fields_)});
    }
    RG_RETURN_IF_ERROR(
        ForEach(V1::kNumericsFieldNumber, [&](absl::string_view bytes) -> absl::Status {
          v1::Numerics n;
          RG_RETURN_IF_ERROR(ParseMessage(bytes, n));
          KeepUnknown(n, UnknownFields::Of::kNumerics, 0);
          builder_->SetNumerics({n.allow_tf32(), n.allow_reduced_precision_reduction(),
                                 n.deterministic(), n.framework()});
          return absl::OkStatus();
        }));
    uint32_t index = 0;
    RG_RETURN_IF_ERROR(
        ForEach(V1::kOriginsFieldNumber, [&](absl::string_view bytes) -> absl::Status {
          absl::Status status = ParseMessage(bytes, origin_);
          if (!status.ok()) return At(absl::StrCat("origin ", index), status);
          KeepUnknown(origin_, UnknownFields::Of::kOrigin, index);
          ++index;
          builder_->AddOrigin(ReadOrigin(origin_));
          return absl::OkStatus();
        }));
    return builder_->status();
  }

  template <typename Message>
  void KeepUnknown(const Message& message, UnknownFields::Of of, uint32_t index) {
    const auto& unknown = message.GetReflection()->GetUnknownFields(message);
    if (unknown.empty()) return;
    std::string bytes;
    unknown.SerializeToString(&bytes);
    builder_->KeepUnknownFields({of, index, std::move(bytes)});
  }

  absl::Status ReadNode(uint32_t id, absl::string_view bytes) {
    absl::Status status = ParseMessage(bytes, node_);
    if (!status.ok()) return At(absl::StrCat("node %", id), status);
    KeepUnknown(node_, UnknownFields::Of::kNode, id);
    if (node_.has_input()) KeepUnknown(node_.input(), UnknownFields::Of::kInput, id);
    const std::optional<Op> op = OpByName(node_.op());
    status = op.has_value() ? CheckNode(id, node_) : UnknownOp(node_.op());
    // The builder names the node itself.
    if (status.ok()) {
      builder_->SetOriginIndex(static_cast<int>(node_.origin()) - 1);
      absl::StatusOr<Attrs> attrs = Prepare(node_);
      status = attrs.status();
      if (status.ok()) return AddNode(*op, *std::move(attrs));
    }
    return At(op.has_value() ? NodeName(id, node_.op()) : absl::StrCat("node %", id), status);
  }

  absl::Status UnknownOp(const std::string& name) {
    const std::string near = NearOpNames(name);
    return Malformed(Malformation::kUnknownOp,
                     absl::StrCat("op ", Quote(name), " is unknown",
                                  near.empty() ? "" : absl::StrCat("; near it: ", near)));
  }

  absl::Status CheckNode(uint32_t id, const v1::Node& node) const {
    if (node.id() != id) {
      return Malformed(node.id() < id ? Malformation::kDuplicateId : Malformation::kIdOrder,
                       absl::StrCat("its id is ", node.id(), " and its position ", id));
    }
    if (node.origin() > frame_.num_origins) {
      return Malformed(Malformation::kOriginIndex,
                       absl::StrCat("origin ", node.origin(), " of ", frame_.num_origins));
    }
    for (const v1::Value& v : node.operands()) {
      if (v.node() >= frame_.num_nodes) {
        return Malformed(
            Malformation::kDanglingOperand,
            absl::StrCat("operand %", v.node(), " is none of the ", frame_.num_nodes, " nodes"));
      }
    }
    const bool is_input = node.op() == Name(Op::input);
    if (is_input != node.has_input()) {
      return Malformed(Malformation::kInputInfo, is_input
                                                     ? "an input without a description"
                                                     : "a description of an input on another op");
    }
    if (!is_input) return absl::OkStatus();
    if (node.operands_size() != 0) {
      return Malformed(Malformation::kOperandCount, "an input has no operands");
    }
    if (node.attrs_size() != 0) {
      return Malformed(Malformation::kUnknownAttr, "an input takes no attributes");
    }
    if (node.results_size() != 1) {
      return Malformed(Malformation::kResultCount,
                       absl::StrCat("an input has one result, not ", node.results_size()));
    }
    return absl::OkStatus();
  }

  // Fills results_ and operands_; returns the attributes.
  absl::StatusOr<Attrs> Prepare(const v1::Node& node) {
    if (node.results_size() > 8) {
      return Malformed(Malformation::kResultCount,
                       absl::StrCat(node.results_size(), " results; no op has so many"));
    }
    results_.resize(node.results_size());
    for (int i = 0; i < node.results_size(); ++i) {
      RG_RETURN_IF_ERROR(ReadType(node.results(i), results_[i]));
    }
    RG_ASSIGN_OR_RETURN(Attrs attrs, ReadAttrs(node));
    operands_.clear();
    for (const v1::Value& v : node.operands()) operands_.push_back({NodeId{v.node()}, v.result()});
    return attrs;
  }

  absl::Status AddNode(Op op, Attrs attrs) {
    if (op == Op::input) {
      builder_->Input(results_[0], ReadInput(node_.input()));
    } else {
      RG_RETURN_IF_ERROR(builder_->AddNode(op, operands_, std::move(attrs), results_).status());
    }
    return builder_->status();
  }

  absl::Status ReadOutput(uint32_t index, absl::string_view bytes) {
    v1::Output output;
    RG_RETURN_IF_ERROR(ParseMessage(bytes, output));
    KeepUnknown(output, UnknownFields::Of::kOutput, index);
    if (output.kind_case() == v1::Output::kAbsent && output.absent()) {
      if (output.strides_size() != 0) {
        return Malformed(Malformation::kStrideRank, "an absent output has strides");
      }
      builder_->AbsentOutput(output.name());
      return absl::OkStatus();
    }
    if (output.kind_case() != v1::Output::kValue) {
      return Malformed(Malformation::kOutputValue, "it is neither a value nor absent");
    }
    const ValueId v = {NodeId{output.value().node()}, output.value().result()};
    if (!builder_->HasValue(v)) {
      return Malformed(Malformation::kOutputValue,
                       absl::StrCat("value %", Index(v.node), ".", v.result, " does not exist"));
    }
    builder_->Output(v, output.name(), {output.strides().begin(), output.strides().end()});
    return absl::OkStatus();
  }

  absl::string_view bytes_;
  Frame frame_;
  std::string unknown_fields_;  // of the graph itself
  std::string sizes_;           // a message Sizes
  std::unique_ptr<GraphBuilder> builder_;
  // Read into again and again, so that most nodes allocate nothing but themselves.
  v1::Origin origin_;
  v1::Node node_;
  std::vector<TensorType> results_;  // as declared
  std::vector<ValueId> operands_;
};

}  // namespace

absl::StatusOr<BackwardGraph> ParseGraphProto(absl::string_view bytes) {
  return GraphReader(bytes).Read();
}

}  // namespace retrograd
