// What it takes to time work on a GPU before a program runs: memory, and times of single runs and
// of rows.
#ifndef RETROGRAD_RUNTIME_TRIALS_MEASUREMENT_H_
#define RETROGRAD_RUNTIME_TRIALS_MEASUREMENT_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "runtime/device/device.h"

namespace retrograd {

// Memory for a measurement, given back in the end.
class MeasurementMemory {
 public:
  explicit MeasurementMemory(Device& device) : device_(device) {}
  ~MeasurementMemory();
  MeasurementMemory(const MeasurementMemory&) = delete;
  MeasurementMemory& operator=(const MeasurementMemory&) = delete;
  absl::StatusOr<void*> Take(int64_t bytes);

 private:
  Device& device_;
  std::vector<void*> taken_;
};

// Microseconds until work on stream 0 has ended, by the host's clock, of the last of some runs: the
// first may prepare things.
absl::StatusOr<double> HostTime(Device& device, absl::FunctionRef<absl::Status()> run,
                                int runs = 2);

// Microseconds of work on stream 0, with warm caches: of one of `runs` in a row, as the prices of
// library calls count it. Short work hides what each launch of it costs, and its row is long beside
// the clock's steps.
absl::StatusOr<double> TimeInARow(Device& device, absl::FunctionRef<absl::Status()> run, int runs);

// Such a row as a recording, to be timed again and again; null where the device records nothing, or
// not this work.
std::unique_ptr<Recording> RecordRow(Device& device, absl::FunctionRef<absl::Status()> run,
                                     int runs);
absl::StatusOr<double> TimeRecorded(Device& device, Recording& row, int runs);

// How many runs of work that takes so long are timed in a row.
int RunsInARow(double us);

}  // namespace retrograd

#endif  // RETROGRAD_RUNTIME_TRIALS_MEASUREMENT_H_
