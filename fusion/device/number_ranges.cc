// Fields are walked by the protobuf's own description: a number that is added to a table without a
// range is refused by name, and tests/prices/number_ranges_test.cc asks each for one.
#include "fusion/device/number_ranges.h"

#include <google/protobuf/message.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "fusion/device/device_numbers.h"
#include "fusion/device/device_spec.pb.h"
#include "graph/base/status.h"

namespace retrograd {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

constexpr NumberRange kRanges[] = {
#define RG_NUMBER(MEMBER, FIELD, SCALE, LEAST, MOST) {"DeviceSpecProto", #FIELD, LEAST, MOST},
#define RG_COLUMN(MESSAGE, FIELD, LEAST, MOST) {#MESSAGE, #FIELD, LEAST, MOST},
#include "fusion/device/number_ranges.def"
};

absl::Status CheckValue(const FieldDescriptor& field, double value, absl::string_view where,
                        absl::string_view path) {
  const NumberRange* range = FindNumberRange(field.containing_type()->name(), field.name());
  if (range == nullptr) {
    return absl::InternalError(absl::StrCat(where, ": ", path, " has no range"));
  }
  if (value >= range->least && value <= range->most) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(where, ": ", path, " is ", PrintNumber(value),
                                                 ": a number from ", PrintNumber(range->least),
                                                 " to ", PrintNumber(range->most), " is needed"));
}

absl::Status CheckRows(const Message& row, absl::string_view where, const std::string& path) {
  const google::protobuf::Reflection& values = *row.GetReflection();
  for (int f = 0; f < row.GetDescriptor()->field_count(); ++f) {
    const FieldDescriptor* field = row.GetDescriptor()->field(f);
    const std::string name = absl::StrCat(path, ".", field->name());
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_DOUBLE) {
      RG_RETURN_IF_ERROR(CheckValue(*field, values.GetDouble(row, field), where, name));
    }
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_INT32) {
      RG_RETURN_IF_ERROR(CheckValue(*field, values.GetInt32(row, field), where, name));
    }
    if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) continue;
    for (int i = 0; i < values.FieldSize(row, field); ++i) {
      RG_RETURN_IF_ERROR(CheckRows(values.GetRepeatedMessage(row, field, i), where,
                                   absl::StrCat(name, "[", i, "]")));
    }
  }
  return absl::OkStatus();
}

// Whether a spec without the number is whole: see number_ranges.def.
bool MayBeLeftOut(const v1::DeviceSpecProto& spec, absl::string_view name) {
  static constexpr absl::string_view kStaged[] = {
#define RG_NUMBER(MEMBER, FIELD, SCALE, LEAST, MOST)
#define RG_CHOICE(MEMBER, FIELD, SCALE, LEAST, MOST)
#define RG_STAGED(MEMBER, FIELD, SCALE, LEAST, MOST) #FIELD,
#include "fusion/device/number_ranges.def"
  };
  static constexpr absl::string_view kChoices[] = {
#define RG_NUMBER(MEMBER, FIELD, SCALE, LEAST, MOST)
#define RG_CHOICE(MEMBER, FIELD, SCALE, LEAST, MOST) #FIELD,
#define RG_STAGED(MEMBER, FIELD, SCALE, LEAST, MOST)
#include "fusion/device/number_ranges.def"
  };
  const bool staged = std::find(std::begin(kStaged), std::end(kStaged), name) != std::end(kStaged);
  if (staged) return !spec.has_staged_bytes_per_block();
  return std::find(std::begin(kChoices), std::end(kChoices), name) != std::end(kChoices);
}

absl::Status CheckNumber(const v1::DeviceSpecProto& spec, const FieldDescriptor& field,
                         absl::string_view where) {
  const google::protobuf::Reflection& values = *spec.GetReflection();
  if (!values.HasField(spec, &field) && MayBeLeftOut(spec, field.name())) return absl::OkStatus();
  const auto& number = static_cast<const v1::Number&>(values.GetMessage(spec, &field));
  RG_RETURN_IF_ERROR(CheckValue(field, number.value(), where, field.name()));
  if (!number.source().empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(where, ": ", field.name(), " has no source: say where the number comes from"));
}

}  // namespace

absl::Span<const NumberRange> NumberRanges() { return kRanges; }

const NumberRange* FindNumberRange(absl::string_view message, absl::string_view field) {
  for (const NumberRange& range : kRanges) {
    if (range.message == message && range.field == field) return &range;
  }
  return nullptr;
}

absl::Status CheckNumberRanges(const v1::DeviceSpecProto& spec, absl::string_view where) {
  const google::protobuf::Descriptor* type = spec.GetDescriptor();
  for (int f = 0; f < type->field_count(); ++f) {
    const FieldDescriptor& field = *type->field(f);
    if (field.cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) continue;
    if (!field.is_repeated()) {
      RG_RETURN_IF_ERROR(CheckNumber(spec, field, where));
      continue;
    }
    for (int i = 0; i < spec.GetReflection()->FieldSize(spec, &field); ++i) {
      RG_RETURN_IF_ERROR(CheckRows(spec.GetReflection()->GetRepeatedMessage(spec, &field, i), where,
                                   absl::StrCat(field.name(), "[", i, "]")));
    }
  }
  return absl::OkStatus();
}

}  // namespace retrograd
