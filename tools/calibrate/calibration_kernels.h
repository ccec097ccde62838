// The kernels whose schedules `retrograd calibrate` times: norms, sums and passes of the sizes of
// transformers' backwards, none of which belongs to one model.
#ifndef RETROGRAD_TOOLS_CALIBRATE_CALIBRATION_KERNELS_H_
#define RETROGRAD_TOOLS_CALIBRATE_CALIBRATION_KERNELS_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "fusion/kernel/templates/schedule.h"
#include "tools/calibrate/calibrate.h"
#include "tools/fit/price_fit.h"

namespace retrograd {

struct CalibrationKernel {
  std::string name;   // "rms_norm 16384x4096"
  std::string graph;  // text form; one kernel makes all of it
};
std::vector<CalibrationKernel> PassKernels(const BenchSizes& sizes);       // pointwise
std::vector<CalibrationKernel> RowKernels(const BenchSizes& sizes);        // sums of rows
std::vector<CalibrationKernel> RowColumnKernels(const BenchSizes& sizes);  // and of columns
std::vector<CalibrationKernel> ColumnKernels(const BenchSizes& sizes);     // sums of columns alone

// A timed schedule of a kernel; `sample.kernel` numbers the kernel among those asked for.
struct ScheduleSample {
  Schedule schedule;
  PricedSample sample;
};
// Times of the schedules of each kernel: those predicted to be fastest of each way to walk, and a
// few others.
absl::StatusOr<std::vector<ScheduleSample>> TimeSchedules(
    absl::Span<const CalibrationKernel> kernels, const CalibrationBench& bench);

}  // namespace retrograd

#endif  // RETROGRAD_TOOLS_CALIBRATE_CALIBRATION_KERNELS_H_
