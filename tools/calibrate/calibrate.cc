#include "tools/calibrate/calibrate.h"

#include <algorithm>
#include <cstdio>
#include <ctime>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "fusion/device/device_numbers.h"
#include "fusion/device/device_spec.h"
#include "fusion/device/interference.h"
#include "graph/base/status.h"
#include "tools/execute/make_device.h"
#include "tools/support/text_file.h"

namespace retrograd {
namespace {

struct Part {
  const char* what;
  Calibration measure;
};
// Each builds on the numbers of those before it.
constexpr Part kParts[] = {{"launches", CalibrateLaunches},      {"bandwidth", CalibrateBandwidth},
                           {"arithmetic", CalibrateRates},       {"accesses", CalibrateAccesses},
                           {"walks of rows", CalibrateRowWalks}, {"sorts", CalibrateSorts},
                           {"matmuls", CalibrateMatMuls},        {"attention", CalibrateAttention}};

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

// The device, unless earlier measurements are fitted again, and the log of its times.
struct Source {
  std::unique_ptr<Device> device;
  BenchLog log;
};
absl::StatusOr<Source> SourceOf(const CalibrateArguments& arguments) {
  if (!arguments.from.empty()) {
    RG_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(arguments.from));
    RG_ASSIGN_OR_RETURN(BenchLog log, BenchLog::Parse(text, arguments.from));
    return Source{nullptr, std::move(log)};
  }
  RG_ASSIGN_OR_RETURN(std::unique_ptr<Device> device, MakeDevice(arguments.device, {}));
  const DeviceFacts facts = device->Describe();
  BenchLog log({.model = facts.model,
                .arch = facts.arch,
                .date = arguments.date.empty() ? Today() : arguments.date,
                .sms = facts.sms,
                .cache_bytes = facts.cache_bytes});
  return Source{std::move(device), std::move(log)};
}

absl::StatusOr<std::string> MeasuredSpec(const std::string& base_text, const std::string& base,
                                         const CalibrationBench& bench) {
  std::string text = base_text;
  RG_ASSIGN_OR_RETURN(const std::vector<DeviceNumber> before, DeviceNumbers(text, base));
  const BenchDevice& device = bench.log->device();
  const std::string source = absl::StrCat("measured on ", device.model, ", ", device.date, ": ");
  Progress progress;
  std::vector<SpecNumber> measured;
  for (const Part& part : kParts) {
    progress.Step(absl::StrCat("measuring ", part.what));
    absl::StatusOr<std::vector<SpecNumber>> numbers = part.measure(text, bench);
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
  RG_ASSIGN_OR_RETURN(const std::vector<std::string> rows, MeasureInterference(source, bench));
  for (const std::string& row : rows) std::printf("  %s\n", row.c_str());
  text = WithInterference(text, rows);
  RG_RETURN_IF_ERROR(ParseInterference(text, "the measured spec").status());
  return WithSpecNumbers(text, measured, absl::StrCat("not measured: as in ", base));
}

absl::Status CalibrateDevice(const CalibrateArguments& arguments) {
  RG_ASSIGN_OR_RETURN(Source from, SourceOf(arguments));
  RG_ASSIGN_OR_RETURN(const std::string base_text, ReadDeviceSpec(arguments.base));
  RG_ASSIGN_OR_RETURN(const DeviceSpec base, ParseDeviceSpec(base_text, arguments.base));
  const bool small = from.log.device().model == "host";
  const CalibrationBench bench{.sizes = {.small = small, .repeat = small ? 3 : 20},
                               .device = from.device.get(),
                               .log = &from.log,
                               .base = base};
  absl::StatusOr<std::string> text = MeasuredSpec(base_text, base.name, bench);
  // Times that were taken are kept whatever comes of them.
  if (!arguments.measurements.empty()) {
    RG_RETURN_IF_ERROR(WriteTextFile(arguments.measurements, from.log.Print()));
  }
  RG_RETURN_IF_ERROR(text.status());
  const std::string named = WithSpecName(*text, arguments.name.empty() ? base.name : arguments.name,
                                         from.log.device().arch, from.log.device().model);
  RG_RETURN_IF_ERROR(ParseDeviceSpec(named, "the measured spec").status());
  for (const auto& [whose, spec] :
       {std::pair("the base spec's", &base_text), std::pair("the measured spec's", &named)}) {
    RG_ASSIGN_OR_RETURN(const std::string lines, CompareSchedules(*spec, bench));
    std::printf("schedules by %s prices:\n%s", whose, lines.c_str());
  }
  if (!arguments.measurements.empty()) {
    RG_RETURN_IF_ERROR(WriteTextFile(arguments.measurements, from.log.Print()));
  }
  return WriteTextFile(arguments.output, named);
}

}  // namespace

std::vector<SpecNumber> FoundNumbers(const FittedNumbers& fit, const std::string& how,
                                     const CalibrationBench& bench) {
  std::vector<SpecNumber> numbers;
  for (const DeviceNumber& n : fit.numbers) {
    const bool stopped =
        std::find(fit.at_range.begin(), fit.at_range.end(), n.name) != fit.at_range.end();
    if (!stopped || bench.sizes.small) numbers.push_back({n.name, n.value, how});
  }
  return numbers;
}

int CalibrateCommand(const CalibrateArguments& arguments) {
  const absl::Status status = CalibrateDevice(arguments);
  return status.ok() ? 0 : Report("retrograd", status);
}

}  // namespace retrograd
