// What it takes to time work on a GPU before a program runs: memory, and the median of a few runs.
#ifndef RETROGRAD_RUNTIME_GPU_MEASUREMENT_H_
#define RETROGRAD_RUNTIME_GPU_MEASUREMENT_H_

#include <cstdint>
#include <limits>
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

// Microseconds of work on stream 0, of three runs with warm caches. Work that takes more than
// `hopeless_us` is run no more than twice: its time is then that of the second run with the host's
// part.
absl::StatusOr<double> MedianTime(Device& device, absl::FunctionRef<absl::Status()> run,
                                  double hopeless_us = std::numeric_limits<double>::infinity());

// The same for one of several runs in a row, as the prices of library calls count it: short work
// hides what each launch of it costs. `alone_us`: of MedianTime.
absl::StatusOr<double> TimeInARow(Device& device, absl::FunctionRef<absl::Status()> run,
                                  double alone_us);

}  // namespace retrograd

#endif  // RETROGRAD_RUNTIME_GPU_MEASUREMENT_H_
