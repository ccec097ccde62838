#include "tests/support/golden/golden_run.h"

#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "fusion/device/device_numbers.h"
#include "graph/base/status.h"
#include "tests/support/plans/matmul_epilogues.h"

namespace retrograd {
namespace {

// "%2,%5": these two ops must share a kernel.
absl::StatusOr<PairChoice> ParseTogether(absl::string_view text) {
  const std::vector<absl::string_view> ids = absl::StrSplit(text, ',');
  uint32_t id[2] = {};
  for (size_t i = 0; i < 2; ++i) {
    if (ids.size() == 2 && absl::SimpleAtoi(absl::StripPrefix(ids[i], "%"), &id[i])) continue;
    return absl::InvalidArgumentError(absl::StrCat("together=", text, ": want %a,%b"));
  }
  return PairChoice{.a = NodeId{id[0]}, .b = NodeId{id[1]}, .together = true};
}

// The device of the flags device, set and epilogues.
struct DeviceFlags {
  std::string name = "h200";
  std::vector<DeviceNumber> numbers;
  bool free_epilogues = false;  // any matmul of bf16 may have any epilogue, for nothing
};

absl::StatusOr<DeviceSpec> DeviceOf(const DeviceFlags& flags) {
  if (flags.free_epilogues) return EagerEpilogues({DType::kBf16});
  if (flags.numbers.empty()) return LoadDeviceSpec(flags.name);
  RG_ASSIGN_OR_RETURN(const std::string text, ReadDeviceSpec(flags.name));
  RG_ASSIGN_OR_RETURN(const std::string changed,
                      WithDeviceNumbers(text, flags.name, flags.numbers));
  return ParseDeviceSpec(changed, flags.name);
}

absl::Status ReadFlag(absl::string_view word, GoldenRun& run, DeviceFlags& device) {
  const std::pair<std::string, std::string> flag = absl::StrSplit(word, absl::MaxSplits('=', 1));
  const auto& [name, value] = flag;
  if (name == "device") {
    device.name = value;
  } else if (name == "set") {
    RG_ASSIGN_OR_RETURN(device.numbers.emplace_back(), ParseDeviceNumber(value));
  } else if (word == "epilogues=free") {
    device.free_epilogues = true;
  } else if (name == "disable") {
    run.options.disable.insert(value);
  } else if (name == "tighten") {
    run.options.tighten.insert(value);
  } else if (name == "together") {
    RG_ASSIGN_OR_RETURN(run.options.pairs.emplace_back(), ParseTogether(value));
  } else if (word == "merging=always") {
    run.options.merging = PlanOptions::Merging::kAlways;
  } else if (name == "limit") {
    run.limit = value;
  } else if (name == "max-memory" && absl::SimpleAtoi(value, &run.options.max_memory_bytes)) {
  } else if (name == "streams" && absl::SimpleAtoi(value, &run.streams)) {
  } else if (name == "schedule") {
    run.schedule = absl::StrSplit(value, ',');
  } else if (word == "implementation=tensor_cores") {
    run.implementation = value;
  } else {
    return absl::InvalidArgumentError(absl::StrCat("there is no flag '", word, "'"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<GoldenRun> ParseGoldenRun(absl::string_view flags) {
  GoldenRun run;
  DeviceFlags device;
  for (absl::string_view word : absl::StrSplit(flags, ' ', absl::SkipEmpty())) {
    if (run.stage.empty()) {
      run.stage = std::string(word);
      continue;
    }
    RG_RETURN_IF_ERROR(ReadFlag(word, run, device));
  }
  RG_ASSIGN_OR_RETURN(run.device, DeviceOf(device));
  return run;
}

}  // namespace retrograd
