#include "runtime/gpu/autotune.h"

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/types/span.h"
#include "graph/base/status.h"
#include "runtime/gpu/measurement.h"

namespace retrograd {
namespace {

// Of the entries on disk: a new one where what they hold means something else.
constexpr absl::string_view kFormat = "retrograd implementation times 1\n";

// As an entry: "12.5 0 13.25\n" and what Serialize made.
std::string Print(const ImplementationTimes& times) {
  const auto number = [](std::string* out, double us) { absl::StrAppendFormat(out, "%.17g", us); };
  return absl::StrCat(absl::StrJoin(times.us, " ", number), "\n", times.chosen);
}

std::optional<ImplementationTimes> Parse(absl::string_view entry) {
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(entry, absl::MaxSplits('\n', 1));
  ImplementationTimes times{.chosen = std::string(parts.second)};
  for (absl::string_view number : absl::StrSplit(parts.first, ' ')) {
    if (!absl::SimpleAtod(number, &times.us.emplace_back())) return std::nullopt;
  }
  return times;
}

// Memory of an implementation's own.
struct OwnMemory {
  std::vector<const void*> operands;
  std::vector<void*> results;
  void* workspace = nullptr;
  CallPointers pointers() { return {operands, absl::MakeSpan(results)}; }
};

absl::StatusOr<OwnMemory> Take(const CallMemory& wanted, int64_t workspace_bytes,
                               MeasurementMemory& memory) {
  OwnMemory taken;
  for (int64_t bytes : wanted.operands) {
    RG_ASSIGN_OR_RETURN(taken.operands.emplace_back(), memory.Take(bytes));
  }
  for (int64_t bytes : wanted.results) {
    RG_ASSIGN_OR_RETURN(taken.results.emplace_back(), memory.Take(bytes));
  }
  RG_ASSIGN_OR_RETURN(taken.workspace, memory.Take(workspace_bytes));
  return taken;
}

// An implementation that takes so many times the fastest, and what the host may need to issue work
// and to see it end, is out of the race: its time need not be exact.
constexpr double kHopeless = 4, kHostUs = 200;

// Leaves the fastest chosen. One that fails here is not the one.
absl::StatusOr<ImplementationTimes> TimeAll(Device& device, const CallMemory& wanted,
                                            Implementations& implementations) {
  MeasurementMemory memory(device);
  RG_ASSIGN_OR_RETURN(OwnMemory own, Take(wanted, implementations.most_workspace_bytes(), memory));
  RG_RETURN_IF_ERROR(implementations.Fill(own.pointers()));
  // The caller's stream may be at work, or be captured.
  RG_RETURN_IF_ERROR(device.UseStream(std::nullopt));
  const auto run = [&] { return implementations.Run(own.pointers(), own.workspace); };
  ImplementationTimes times;
  absl::Status failure = absl::InternalError("there is no implementation");
  int fastest = -1;
  for (int i = 0; i < implementations.count(); ++i) {
    double& us = times.us.emplace_back(0);
    absl::Status status = implementations.Choose(i);
    if (status.ok()) {
      const absl::StatusOr<double> measured =
          fastest < 0 ? MedianTime(device, run)
                      : MedianTime(device, run, kHopeless * times.us[fastest] + kHostUs);
      status = measured.status();
      if (status.ok()) status = implementations.Check(own.pointers());
      if (status.ok()) us = *measured;
    }
    if (!status.ok()) {
      failure = std::move(status);
    } else if (fastest < 0 || us < times.us[fastest]) {
      fastest = i;
    }
  }
  if (fastest < 0) return failure;
  RG_RETURN_IF_ERROR(implementations.Choose(fastest));
  RG_ASSIGN_OR_RETURN(times.us[fastest], TimeInARow(device, run, times.us[fastest]));
  return times;
}

}  // namespace

double ImplementationTimes::least_us() const {
  double least = 0;
  for (double time : us) {
    if (time > 0 && (least == 0 || time < least)) least = time;
  }
  return least;
}

std::optional<ImplementationTimes> RecallTimes(const AutotuneOptions& options,
                                               absl::string_view key) {
  if (!options.time || options.cache == nullptr) return std::nullopt;
  const std::optional<std::string> entry = options.cache->Read(absl::StrCat(kFormat, key));
  if (!entry) return std::nullopt;
  return Parse(*entry);
}

absl::StatusOr<ImplementationTimes> ChooseFastest(Device& device, const AutotuneOptions& options,
                                                  absl::string_view key, const CallMemory& memory,
                                                  Implementations& implementations) {
  absl::StatusOr<ImplementationTimes> times =
      options.time ? TimeAll(device, memory, implementations) : ImplementationTimes{};
  // Without the memory for a measurement the first one does.
  if (!options.time || absl::IsResourceExhausted(times.status())) {
    RG_RETURN_IF_ERROR(implementations.Choose(0));
    return ImplementationTimes{};
  }
  RG_RETURN_IF_ERROR(times.status());
  absl::StatusOr<std::string> chosen = implementations.Serialize();
  if (!chosen.ok()) return times;  // what cannot be written down is timed again the next time
  times->chosen = *std::move(chosen);
  if (options.cache != nullptr) {
    options.cache->Write(absl::StrCat(kFormat, key), Print(*times)).IgnoreError();
  }
  return times;
}

}  // namespace retrograd
