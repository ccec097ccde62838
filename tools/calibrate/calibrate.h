// `retrograd calibrate`: the numbers of a device spec, measured on the device itself.
#ifndef RETROGRAD_TOOLS_CALIBRATE_CALIBRATE_H_
#define RETROGRAD_TOOLS_CALIBRATE_CALIBRATE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "fusion/device/device_spec.h"
#include "runtime/device/device.h"
#include "tools/calibrate/bench_log.h"
#include "tools/calibrate/spec_text.h"
#include "tools/fit/price_fit.h"
#include "tools/support/pipeline.h"

namespace retrograd {

struct CalibrateArguments {
  std::string device = "cuda";  // or "host": a rough spec, to see that it works
  std::string base = "h200";    // the numbers that are not measured come from this spec
  std::string name;             // of the new spec; empty: the base's
  std::string output;           // file to write
  std::string date;             // in the sources; empty: today
  std::string measurements;     // file to write the times to; empty: none
  std::string from;             // file of times that are fitted again, without a device
};

// How much is measured: a GPU's sizes, or such that a processor takes seconds.
struct BenchSizes {
  bool small = false;
  int repeat = 20;
  int64_t Of(int64_t large, int64_t little) const { return small ? little : large; }
};

// Where times come from.
struct CalibrationBench {
  BenchSizes sizes;
  Device* device = nullptr;  // not asked where the log replays
  BenchLog* log = nullptr;
  DeviceSpec base;  // kernels are planned for it, whatever the numbers found so far would plan
};

// What measures some numbers of the spec. `text` is the spec as it stands with all numbers that
// were measured before: later ones build on them.
using Calibration = absl::StatusOr<std::vector<SpecNumber>> (*)(const std::string& text,
                                                                const CalibrationBench& bench);

absl::StatusOr<std::vector<SpecNumber>> CalibrateLaunches(const std::string& text,
                                                          const CalibrationBench& bench);
absl::StatusOr<std::vector<SpecNumber>> CalibrateBandwidth(const std::string& text,
                                                           const CalibrationBench& bench);
absl::StatusOr<std::vector<SpecNumber>> CalibrateRates(const std::string& text,
                                                       const CalibrationBench& bench);
absl::StatusOr<std::vector<SpecNumber>> CalibrateAccesses(const std::string& text,
                                                          const CalibrationBench& bench);
absl::StatusOr<std::vector<SpecNumber>> CalibrateRowWalks(const std::string& text,
                                                          const CalibrationBench& bench);
absl::StatusOr<std::vector<SpecNumber>> CalibrateSorts(const std::string& text,
                                                       const CalibrationBench& bench);
absl::StatusOr<std::vector<SpecNumber>> CalibrateMatMuls(const std::string& text,
                                                         const CalibrationBench& bench);
absl::StatusOr<std::vector<SpecNumber>> CalibrateAttention(const std::string& text,
                                                           const CalibrationBench& bench);

// The numbers that a fit found, of this source: not those that stopped at the range, which stay the
// base spec's. A processor's are far from a GPU's: there all are kept, to see that all of it works.
std::vector<SpecNumber> FoundNumbers(const FittedNumbers& fit, const std::string& how,
                                     const CalibrationBench& bench);

// Rows of the spec's table of what may run side by side; `source` begins what they say of
// themselves.
absl::StatusOr<std::vector<std::string>> MeasureInterference(const std::string& source,
                                                             const CalibrationBench& bench);

// How well a spec's prices choose among the schedules of the kernels that were timed: a line for
// each template.
absl::StatusOr<std::string> CompareSchedules(const std::string& text,
                                             const CalibrationBench& bench);

// Measures, prints each number beside the base's, and writes the spec. The exit status.
int CalibrateCommand(const CalibrateArguments& arguments);

}  // namespace retrograd

#endif  // RETROGRAD_TOOLS_CALIBRATE_CALIBRATE_H_
