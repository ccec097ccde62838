#include "graph/proto/proto_scan.h"

#include <google/protobuf/descriptor.h>

#include "absl/strings/str_cat.h"
#include "graph/base/malformations.h"
#include "graph/base/status.h"
#include "graph/base/tensor_type.h"
#include "graph/ir/node_rules.h"

namespace retrograd {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;

constexpr uint64_t kMaxLength = uint64_t{1} << 31;

absl::Status NotAGraph(absl::string_view what) {
  return Malformed(Malformation::kNotAGraph, absl::StrCat("not a graph file: ", what));
}

absl::Status ReadLongVarint(absl::string_view& bytes, uint64_t& value) {
  value = 0;
  for (int i = 0; i < 10; ++i) {
    if (static_cast<size_t>(i) == bytes.size()) {
      return Malformed(Malformation::kTruncated, "the file ends inside a number");
    }
    const auto byte = static_cast<unsigned char>(bytes[i]);
    value |= static_cast<uint64_t>(byte & 0x7F) << (7 * i);
    if (byte < 0x80) {
      bytes.remove_prefix(i + 1);
      return absl::OkStatus();
    }
  }
  return NotAGraph("a number has more than ten bytes");
}

inline absl::Status ReadVarint(absl::string_view& bytes, uint64_t& value) {
  if (bytes.empty() || static_cast<unsigned char>(bytes[0]) >= 0x80) {
    return ReadLongVarint(bytes, value);
  }
  value = static_cast<unsigned char>(bytes[0]);
  bytes.remove_prefix(1);
  return absl::OkStatus();
}

inline absl::Status Take(absl::string_view& bytes, uint64_t length, absl::string_view& out) {
  if (length > kMaxLength) {
    return Malformed(Malformation::kLengthClaim,
                     absl::StrCat("a field claims ", length, " bytes; a file has at most 2 GiB"));
  }
  if (length > bytes.size()) {
    return Malformed(Malformation::kTruncated,
                     absl::StrCat("a field of ", length, " bytes begins ", bytes.size(),
                                  " bytes before the end; is the file truncated?"));
  }
  out = bytes.substr(0, length);
  bytes.remove_prefix(length);
  return absl::OkStatus();
}

// The wire type of one value of the field that is not packed.
int WireType(const FieldDescriptor& field) {
  switch (field.type()) {
    case FieldDescriptor::TYPE_DOUBLE: return 1;
    case FieldDescriptor::TYPE_STRING:
    case FieldDescriptor::TYPE_MESSAGE: return 2;
    default: return 0;
  }
}

MessageFields::Kind KindOf(const FieldDescriptor& field) {
  switch (field.type()) {
    case FieldDescriptor::TYPE_STRING: return MessageFields::kString;
    case FieldDescriptor::TYPE_MESSAGE: return MessageFields::kMessage;
    default: return MessageFields::kNumber;
  }
}

absl::Status ScanPacked(const MessageFields::Field& field, absl::string_view payload,
                        uint32_t& count) {
  while (!payload.empty()) {
    uint64_t value;
    RG_RETURN_IF_ERROR(ReadVarint(payload, value));
    if (++count > field.max_numbers) {
      return Malformed(
          field.max_numbers == kMaxRank ? Malformation::kRankTooLarge : Malformation::kTooMany,
          absl::StrCat(field.what, " has more than ", field.max_numbers, " numbers"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ReadWireField(absl::string_view& bytes, WireField& field) {
  uint64_t tag;
  RG_RETURN_IF_ERROR(ReadVarint(bytes, tag));
  field.number = static_cast<uint32_t>(tag >> 3);
  field.wire_type = static_cast<int>(tag & 7);
  if (field.number == 0 || (tag >> 3) >= (1u << 29)) {
    return NotAGraph(absl::StrCat("a field has the number ", tag >> 3));
  }
  absl::string_view skipped;
  switch (field.wire_type) {
    case 0: return ReadVarint(bytes, field.varint);
    case 1: return Take(bytes, 8, skipped);
    case 5: return Take(bytes, 4, skipped);
    case 2: {
      uint64_t length;
      RG_RETURN_IF_ERROR(ReadVarint(bytes, length));
      return Take(bytes, length, field.payload);
    }
    default:
      return NotAGraph(absl::StrCat("field ", field.number, " has wire type ", field.wire_type));
  }
}

const MessageFields& FieldsOf(const Descriptor& descriptor) {
  auto* message = new MessageFields{descriptor.name(), {}};
  for (int i = 0; i < descriptor.field_count(); ++i) {
    const FieldDescriptor& from = *descriptor.field(i);
    const auto number = static_cast<size_t>(from.number());
    if (message->fields.size() <= number) message->fields.resize(number + 1);
    MessageFields::Field& field = message->fields[number];
    field.kind = KindOf(from);
    field.wire_type = WireType(from);
    field.packable = from.is_packable();
    field.max_numbers = from.name() == "dims" ? kMaxRank : kMaxIntsPerList;
    field.what = absl::StrCat("field ", from.full_name());
    if (field.kind == MessageFields::kMessage) field.message = &FieldsOf(*from.message_type());
  }
  return *message;
}

absl::Status ScanMessage(const MessageFields& message, absl::string_view bytes) {
  uint32_t fields = 0;
  uint32_t numbers = 0;
  while (!bytes.empty()) {
    WireField wire;
    RG_RETURN_IF_ERROR(ReadWireField(bytes, wire));
    if (++fields > kMaxFieldsPerMessage) {
      return Malformed(Malformation::kTooMany, absl::StrCat("a ", message.name, " has more than ",
                                                            kMaxFieldsPerMessage, " fields"));
    }
    if (wire.number >= message.fields.size()) continue;
    const MessageFields::Field& field = message.fields[wire.number];
    if (field.kind == MessageFields::kUnknown) continue;
    if (field.packable && wire.wire_type == 2) {
      RG_RETURN_IF_ERROR(ScanPacked(field, wire.payload, numbers));
      continue;
    }
    if (wire.wire_type != field.wire_type) {
      return NotAGraph(absl::StrCat(field.what, " has wire type ", wire.wire_type));
    }
    if (field.kind == MessageFields::kString) {
      RG_RETURN_IF_ERROR(CheckString(wire.payload, field.what));
    } else if (field.kind == MessageFields::kMessage) {
      RG_RETURN_IF_ERROR(ScanMessage(*field.message, wire.payload));
    }
  }
  return absl::OkStatus();
}

}  // namespace retrograd
