#include "runtime/gpu/measurement.h"

#include <algorithm>

#include "graph/base/status.h"

namespace retrograd {
namespace {

constexpr int kTimedRuns = 3;

}  // namespace

MeasurementMemory::~MeasurementMemory() {
  for (void* data : taken_) device_.Free(data);
}

absl::StatusOr<void*> MeasurementMemory::Take(int64_t bytes) {
  RG_ASSIGN_OR_RETURN(void* const data, device_.Allocate(bytes));
  taken_.push_back(data);
  return data;
}

absl::StatusOr<double> MedianTime(Device& device, absl::FunctionRef<absl::Status()> run) {
  RG_ASSIGN_OR_RETURN(TimeSamples samples, device.Time(run, kTimedRuns, /*cold=*/false));
  std::sort(samples.begin(), samples.end());
  return samples[samples.size() / 2];
}

}  // namespace retrograd
