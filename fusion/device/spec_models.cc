#include "fusion/device/spec_models.h"

#include <google/protobuf/text_format.h>

#include "absl/strings/str_cat.h"
#include "fusion/device/device_spec.pb.h"

namespace retrograd {

absl::StatusOr<std::vector<std::string>> ParseSpecModels(absl::string_view text,
                                                         absl::string_view where) {
  v1::DeviceSpecProto spec;
  if (!google::protobuf::TextFormat::ParseFromString(std::string(text), &spec)) {
    return absl::InvalidArgumentError(absl::StrCat(where, ": not a device spec"));
  }
  std::vector<std::string> models(spec.models().begin(), spec.models().end());
  for (const std::string& model : models) {
    if (!model.empty()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(where,
                     ": models has an empty name: write what the driver calls the device, "
                     "or leave the line out"));
  }
  return models;
}

}  // namespace retrograd
