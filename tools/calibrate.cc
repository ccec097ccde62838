#include "tools/calibrate.h"

#include <algorithm>
#include <cstdio>
#include <ctime>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "fusion/kernel/device_numbers.h"
#include "fusion/kernel/device_spec.h"
#include "fusion/kernel/interference.h"
#include "graph/status.h"
#include "tools/make_device.h"
#include "tools/text_file.h"

namespace retrograd {
namespace {

struct Part {
  const char* what;
  Calibration measure;
};
// Each builds on the numbers of those before it.
constexpr Part kParts[] = {{"launches", CalibrateLaunches},  {"bandwidth", CalibrateBandwidth},
                           {"arithmetic", CalibrateRates},   {"walks of rows", CalibrateRowWalks},
                           {"scatters", CalibrateScatter},   {"matmuls", CalibrateMatMuls},
                           {"attention", CalibrateAttention}};

std::string Today() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  char text[16] = {};
  if (gmtime_r(&now, &parts) == nullptr) return "?";
  std::strftime(text, sizeof text, "%Y-%m-%d", &parts);
  return text;
}

// Three digits: more would be noise.
double Rounded(double value) {
  double rounded = value;
  return absl::SimpleAtod(absl::StrFormat("%.3g", value), &rounded) ? rounded : value;
}

bool IsCount(absl::string_view field) { return field == "sms" || field == "cache_bytes"; }

double Before(const std::vector<DeviceNumber>& base, absl::string_view field) {
  const auto found = std::find_if(base.begin(), base.end(),
                                  [&](const DeviceNumber& n) { return n.name == field; });
  return found == base.end() ? 0 : found->value;
}

void PrintNumberLine(const SpecNumber& number, double before) {
  std::printf("  %-26s %12s  was %12s  (%+.0f%%)  %s\n", number.field.c_str(),
              PrintNumber(number.value).c_str(), PrintNumber(before).c_str(),
              before == 0 ? 0 : 100 * (number.value / before - 1), number.source.c_str());
}

absl::Status CalibrateDevice(const CalibrateArguments& arguments) {
  RG_ASSIGN_OR_RETURN(const std::unique_ptr<Device> device, MakeDevice(arguments.device, {}));
  const DeviceFacts facts = device->Describe();
  RG_ASSIGN_OR_RETURN(std::string text, ReadDeviceSpec(arguments.base));
  RG_ASSIGN_OR_RETURN(const DeviceSpec base, ParseDeviceSpec(text, arguments.base));
  RG_ASSIGN_OR_RETURN(const std::vector<DeviceNumber> before, DeviceNumbers(text, arguments.base));
  const bool small = device->name() == "host";
  const BenchSizes sizes{.small = small, .repeat = small ? 3 : 20};
  const std::string source = absl::StrCat("measured on ", facts.model, ", ",
                                          arguments.date.empty() ? Today() : arguments.date, ": ");
  Progress progress;
  std::vector<SpecNumber> measured;
  for (const Part& part : kParts) {
    progress.Step(absl::StrCat("measuring ", part.what));
    absl::StatusOr<std::vector<SpecNumber>> numbers = part.measure(text, sizes, device.get());
    if (!numbers.ok()) {
      return absl::Status(numbers.status().code(),
                          absl::StrCat("measuring ", part.what, ": ", numbers.status().message()));
    }
    std::printf("%s, %.1f s\n", part.what, progress.Seconds());
    for (SpecNumber& number : *numbers) {
      if (!IsCount(number.field)) number.value = Rounded(number.value);
      number.source = source + number.source;
      PrintNumberLine(number, Before(before, number.field));
      measured.push_back(std::move(number));
    }
    RG_ASSIGN_OR_RETURN(text, WithSpecNumbers(text, measured, ""));
    RG_RETURN_IF_ERROR(ParseDeviceSpec(text, "the measured spec").status());
  }
  progress.Step("measuring what may run side by side");
  RG_ASSIGN_OR_RETURN(const std::vector<std::string> rows,
                      MeasureInterference(text, source, sizes, device.get()));
  for (const std::string& row : rows) std::printf("  %s\n", row.c_str());
  text = WithInterference(text, rows);
  RG_RETURN_IF_ERROR(ParseInterference(text, "the measured spec").status());
  RG_ASSIGN_OR_RETURN(
      text, WithSpecNumbers(text, measured, absl::StrCat("not measured: as in ", base.name)));
  text = WithSpecName(text, arguments.name.empty() ? base.name : arguments.name, facts.arch);
  RG_RETURN_IF_ERROR(ParseDeviceSpec(text, "the measured spec").status());
  return WriteTextFile(arguments.output, text);
}

}  // namespace

int CalibrateCommand(const CalibrateArguments& arguments) {
  const absl::Status status = CalibrateDevice(arguments);
  return status.ok() ? 0 : Report("retrograd", status);
}

}  // namespace retrograd
