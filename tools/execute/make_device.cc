#include "tools/execute/make_device.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace retrograd {
namespace {

// Whether the name is the kind's, alone or with ":N" behind it.
bool Takes(absl::string_view name, absl::string_view kind, int* ordinal) {
  if (!absl::ConsumePrefix(&name, kind)) return false;
  return name.empty() || (absl::ConsumePrefix(&name, ":") && absl::SimpleAtoi(name, ordinal));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Device>> MakeDevice(absl::string_view name, DeviceChoices choices) {
  if (name == "host") return MakeHostDevice(choices.host);
  if (Takes(name, "cuda", &choices.cuda.ordinal)) return MakeCudaDevice(choices.cuda);
  if (Takes(name, "hip", &choices.hip.ordinal)) return MakeHipDevice(choices.hip);
  return absl::InvalidArgumentError(
      absl::StrCat("device \"", name, "\": there are host, cuda, cuda:N, hip and hip:N"));
}

}  // namespace retrograd
