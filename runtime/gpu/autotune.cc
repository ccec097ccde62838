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
#include "runtime/gpu/race.h"

namespace retrograd {
namespace {

// Of the entries on disk: a new one where what they hold means something else.
constexpr absl::string_view kFormat = "retrograd implementation times 2\n";

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

// The implementations of one call on memory of their own.
class Trial {
 public:
  Trial(Device& device, Implementations& implementations, OwnMemory& own)
      : device_(device), implementations_(implementations), own_(own) {}

  // Leaves the fastest chosen. One that fails here is not the one.
  absl::StatusOr<ImplementationTimes> Run() {
    RG_RETURN_IF_ERROR(TryAll());
    RG_ASSIGN_OR_RETURN(const double alone_us, TimeOf(racing_[0], 1));
    const int runs = RunsInARow(alone_us);
    RG_ASSIGN_OR_RETURN(const RaceResult race, Race(racing_.size(), [&](size_t runner) {
                          return TimeOf(racing_[runner], runs);
                        }));
    for (size_t i = 0; i < racing_.size(); ++i) {
      times_.us[static_cast<size_t>(racing_[i])] = race.us[i];
    }
    RG_RETURN_IF_ERROR(Choose(racing_[race.winner]));
    return times_;
  }

 private:
  // Runs each of them, and keeps for the race those that work and are not out of it.
  absl::Status TryAll() {
    absl::Status failure = absl::InternalError("there is no implementation");
    double least_us = 0;
    for (int i = 0; i < implementations_.count(); ++i) {
      times_.us.push_back(0);
      const absl::StatusOr<double> us = Try(i);
      if (!us.ok()) {
        failure = us.status();
        continue;
      }
      if (racing_.empty() || *us < least_us) least_us = *us;
      if (*us > kHopeless * least_us + kHostUs) {
        times_.us.back() = *us;
      } else {
        racing_.push_back(i);
      }
    }
    return racing_.empty() ? failure : absl::OkStatus();
  }

  // By the host's clock.
  absl::StatusOr<double> Try(int implementation) {
    RG_RETURN_IF_ERROR(Choose(implementation));
    RG_ASSIGN_OR_RETURN(const double us, HostTime(device_, [&] { return RunChosen(); }));
    RG_RETURN_IF_ERROR(implementations_.Check(own_.pointers()));
    return us;
  }

  absl::StatusOr<double> TimeOf(int implementation, int runs) {
    RG_RETURN_IF_ERROR(Choose(implementation));
    return TimeInARow(
        device_, [&] { return RunChosen(); }, runs);
  }

  absl::Status Choose(int implementation) {
    if (chosen_ == implementation) return absl::OkStatus();
    chosen_ = -1;
    RG_RETURN_IF_ERROR(implementations_.Choose(implementation));
    chosen_ = implementation;
    return absl::OkStatus();
  }

  absl::Status RunChosen() { return implementations_.Run(own_.pointers(), own_.workspace); }

  Device& device_;
  Implementations& implementations_;
  OwnMemory& own_;
  ImplementationTimes times_;
  std::vector<int> racing_;  // the first is the default
  int chosen_ = -1;
};

absl::StatusOr<ImplementationTimes> TimeAll(Device& device, const CallMemory& wanted,
                                            Implementations& implementations) {
  MeasurementMemory memory(device);
  RG_ASSIGN_OR_RETURN(OwnMemory own, Take(wanted, implementations.most_workspace_bytes(), memory));
  RG_RETURN_IF_ERROR(implementations.Fill(own.pointers()));
  // The caller's stream may be at work, or be captured.
  RG_RETURN_IF_ERROR(device.UseStream(std::nullopt));
  return Trial(device, implementations, own).Run();
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
