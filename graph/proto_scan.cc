#include "graph/proto_scan.h"

#include <google/protobuf/descriptor.h>

#include "absl/strings/str_cat.h"
#include "graph/malformations.h"
#include "graph/node_rules.h"
#include "graph/status.h"
#include "graph/tensor_type.h"

namespace retrograd {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;

constexpr uint64_t kMaxLength = uint64_t{1} << 31;

absl::Status NotAGraph(absl::string_view what) {
  return Malformed(Malformation::kNotAGraph, absl::StrCat("not a graph file: ", what));
}

absl::Status ReadVarint(absl::string_view& bytes, uint64_t& value) {
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

absl::Status Take(absl::string_view& bytes, uint64_t length, absl::string_view& out) {
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

absl::Status ScanPacked(const FieldDescriptor& field, absl::string_view payload, uint32_t& count) {
  const uint32_t limit = field.name() == "dims" ? kMaxRank : kMaxIntsPerList;
  while (!payload.empty()) {
    uint64_t value;
    RG_RETURN_IF_ERROR(ReadVarint(payload, value));
    if (++count > limit) {
      return Malformed(limit == kMaxRank ? Malformation::kRankTooLarge : Malformation::kTooMany,
                       absl::StrCat("field ", field.name(), " has more than ", limit, " numbers"));
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

absl::Status ScanMessage(const Descriptor& descriptor, absl::string_view bytes) {
  uint32_t fields = 0;
  uint32_t ints = 0;
  while (!bytes.empty()) {
    WireField wire;
    RG_RETURN_IF_ERROR(ReadWireField(bytes, wire));
    if (++fields > kMaxFieldsPerMessage) {
      return Malformed(Malformation::kTooMany,
                       absl::StrCat("a ", descriptor.name(), " has more than ",
                                    kMaxFieldsPerMessage, " fields"));
    }
    const FieldDescriptor* field = descriptor.FindFieldByNumber(static_cast<int>(wire.number));
    if (field == nullptr) continue;
    if (field->is_packable() && wire.wire_type == 2) {
      RG_RETURN_IF_ERROR(ScanPacked(*field, wire.payload, ints));
      continue;
    }
    if (wire.wire_type != WireType(*field)) {
      return NotAGraph(
          absl::StrCat("field ", field->full_name(), " has wire type ", wire.wire_type));
    }
    if (field->type() == FieldDescriptor::TYPE_STRING) {
      RG_RETURN_IF_ERROR(CheckString(wire.payload, absl::StrCat("field ", field->full_name())));
    } else if (field->type() == FieldDescriptor::TYPE_MESSAGE) {
      RG_RETURN_IF_ERROR(ScanMessage(*field->message_type(), wire.payload));
    }
  }
  return absl::OkStatus();
}

}  // namespace retrograd
