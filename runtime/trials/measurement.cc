#include "runtime/trials/measurement.h"

#include <algorithm>
#include <chrono>

#include "graph/base/status.h"

namespace retrograd {
namespace {

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

absl::StatusOr<double> HostTime(Device& device, absl::FunctionRef<absl::Status()> run, int runs) {
  double us = 0;
  for (int i = 0; i < runs; ++i) {
    const auto start = std::chrono::steady_clock::now();
    RG_RETURN_IF_ERROR(run());
    RG_RETURN_IF_ERROR(device.Synchronize());
    us =
        std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
  }
  return us;
}

std::unique_ptr<Recording> RecordRow(Device& device, absl::FunctionRef<absl::Status()> run,
                                     int runs) {
  if (!device.records() || !device.BeginRecording().ok()) return nullptr;
  absl::Status issued;
  for (int i = 0; i < runs && issued.ok(); ++i) issued = run();
  absl::StatusOr<std::unique_ptr<Recording>> recording = device.EndRecording(nullptr);
  return issued.ok() && recording.ok() ? *std::move(recording) : nullptr;
}

absl::StatusOr<double> TimeRecorded(Device& device, Recording& row, int runs) {
  const auto replay = [&] { return device.Replay(row); };
  RG_ASSIGN_OR_RETURN(const TimeSamples samples, device.Time(replay, 1, /*cold=*/false));
  return samples[0] / runs;
}

absl::StatusOr<double> TimeInARow(Device& device, absl::FunctionRef<absl::Status()> run, int runs) {
  const auto row = [&]() -> absl::Status {
    for (int i = 0; i < runs; ++i) RG_RETURN_IF_ERROR(run());
    return absl::OkStatus();
  };
  RG_ASSIGN_OR_RETURN(const TimeSamples samples, device.Time(row, 1, /*cold=*/false));
  return samples[0] / runs;
}

int RunsInARow(double us) {
  return static_cast<int>(std::clamp(kRowUs / std::max(us, 1.0), 1.0, kMostInARow));
}

}  // namespace retrograd
