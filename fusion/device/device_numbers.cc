// Fields are found by name in the protobuf's own description, so that a number that is added there
// can be asked about without a line here.
#include "fusion/device/device_numbers.h"

#include <google/protobuf/text_format.h>

#include <cmath>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "fusion/device/device_spec.pb.h"
#include "graph/base/near_names.h"
#include "graph/base/status.h"

namespace retrograd {
namespace {

using google::protobuf::FieldDescriptor;

bool IsNumber(const FieldDescriptor& field) {
  return field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE && !field.is_repeated() &&
         field.message_type() == v1::Number::descriptor();
}

std::vector<const FieldDescriptor*> NumberFields() {
  std::vector<const FieldDescriptor*> fields;
  const auto* message = v1::DeviceSpecProto::descriptor();
  for (int i = 0; i < message->field_count(); ++i) {
    if (IsNumber(*message->field(i))) fields.push_back(message->field(i));
  }
  return fields;
}

absl::StatusOr<v1::DeviceSpecProto> Parse(absl::string_view text, absl::string_view where) {
  v1::DeviceSpecProto spec;
  if (!google::protobuf::TextFormat::ParseFromString(std::string(text), &spec)) {
    return absl::InvalidArgumentError(absl::StrCat(where, ": not a device spec"));
  }
  return spec;
}

absl::StatusOr<const FieldDescriptor*> FindNumber(const std::string& name) {
  std::vector<absl::string_view> names;
  for (const FieldDescriptor* field : NumberFields()) {
    if (field->name() == name) return field;
    names.push_back(field->name());
  }
  const std::vector<absl::string_view> near = NearNames(name, names);
  return absl::InvalidArgumentError(
      near.empty() ? absl::StrCat("no number of a device is called ", name, "; there are ",
                                  absl::StrJoin(names, ", "))
                   : absl::StrCat("no number of a device is called ", name, "; did you mean ",
                                  absl::StrJoin(near, ", "), "?"));
}

}  // namespace

absl::StatusOr<std::vector<DeviceNumber>> DeviceNumbers(absl::string_view text,
                                                        absl::string_view where) {
  RG_ASSIGN_OR_RETURN(const v1::DeviceSpecProto spec, Parse(text, where));
  std::vector<DeviceNumber> numbers;
  for (const FieldDescriptor* field : NumberFields()) {
    const auto& number =
        static_cast<const v1::Number&>(spec.GetReflection()->GetMessage(spec, field));
    numbers.push_back({std::string(field->name()), number.value()});
  }
  return numbers;
}

absl::StatusOr<std::string> WithDeviceNumbers(absl::string_view text, absl::string_view where,
                                              absl::Span<const DeviceNumber> numbers) {
  RG_ASSIGN_OR_RETURN(v1::DeviceSpecProto spec, Parse(text, where));
  std::vector<std::string> changes;
  for (const DeviceNumber& n : numbers) {
    RG_ASSIGN_OR_RETURN(const FieldDescriptor* field, FindNumber(n.name));
    auto* number = static_cast<v1::Number*>(spec.GetReflection()->MutableMessage(&spec, field));
    number->set_value(n.value);
    number->set_source("given for a question");
    changes.push_back(absl::StrCat(n.name, "=", PrintNumber(n.value)));
  }
  if (!changes.empty()) {
    spec.set_name(absl::StrCat(spec.name(), " with ", absl::StrJoin(changes, ", ")));
  }
  std::string changed;
  google::protobuf::TextFormat::PrintToString(spec, &changed);
  return changed;
}

absl::StatusOr<DeviceNumber> ParseDeviceNumber(absl::string_view text) {
  DeviceNumber number;
  const size_t equals = text.find('=');
  if (equals != absl::string_view::npos && equals > 0 &&
      absl::SimpleAtod(text.substr(equals + 1), &number.value) && std::isfinite(number.value)) {
    number.name = std::string(text.substr(0, equals));
    return number;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "'", text, "' is no number of a device: write NAME=VALUE, as in max_registers=128"));
}

std::string PrintNumber(double value) {
  for (int digits = 1; digits < 17; ++digits) {
    const std::string text = absl::StrFormat("%.*g", digits, value);
    double back = 0;
    if (absl::SimpleAtod(text, &back) && back == value) {
      // "320" and not "3.2e+02".
      const std::string plain = absl::StrFormat("%.0f", value);
      return std::abs(value) < 1e9 && value == std::floor(value) ? plain : text;
    }
  }
  return absl::StrFormat("%.17g", value);
}

}  // namespace retrograd
