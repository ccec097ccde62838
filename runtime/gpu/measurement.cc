#include "runtime/gpu/measurement.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "graph/base/status.h"

namespace retrograd {
namespace {

constexpr int kTimedRuns = 3;
constexpr double kRowUs = 100, kMostInARow = 16;

}  // namespace

MeasurementMemory::~MeasurementMemory() {
  for (void* data : taken_) device_.Free(data);
}

absl::StatusOr<void*> MeasurementMemory::Take(int64_t bytes) {
  RG_ASSIGN_OR_RETURN(void* const data, device_.Allocate(bytes));
  taken_.push_back(data);
  return data;
}

namespace {

// By the host's clock, of a second run: the first may prepare things.
absl::StatusOr<double> HostTime(Device& device, absl::FunctionRef<absl::Status()> run) {
  double us = 0;
  for (int i = 0; i < 2; ++i) {
    const auto start = std::chrono::steady_clock::now();
    RG_RETURN_IF_ERROR(run());
    RG_RETURN_IF_ERROR(device.Synchronize());
    us =
        std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
  }
  return us;
}

}  // namespace

absl::StatusOr<double> MedianTime(Device& device, absl::FunctionRef<absl::Status()> run,
                                  double hopeless_us) {
  if (std::isfinite(hopeless_us)) {
    RG_ASSIGN_OR_RETURN(const double us, HostTime(device, run));
    if (us > hopeless_us) return us;
  }
  RG_ASSIGN_OR_RETURN(TimeSamples samples, device.Time(run, kTimedRuns, /*cold=*/false));
  std::sort(samples.begin(), samples.end());
  return samples[samples.size() / 2];
}

absl::StatusOr<double> TimeInARow(Device& device, absl::FunctionRef<absl::Status()> run,
                                  double alone_us) {
  const int runs = static_cast<int>(std::clamp(kRowUs / std::max(alone_us, 1.0), 1.0, kMostInARow));
  if (runs == 1) return alone_us;
  const auto row = [&]() -> absl::Status {
    for (int i = 0; i < runs; ++i) RG_RETURN_IF_ERROR(run());
    return absl::OkStatus();
  };
  RG_ASSIGN_OR_RETURN(const double us, MedianTime(device, row));
  return us / runs;
}

}  // namespace retrograd
