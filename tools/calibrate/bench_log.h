// The times that a calibration takes, by name: written to a file, they let its numbers be fitted
// again without the device.
#ifndef RETROGRAD_TOOLS_CALIBRATE_BENCH_LOG_H_
#define RETROGRAD_TOOLS_CALIBRATE_BENCH_LOG_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace retrograd {

// What a device says of itself.
struct BenchDevice {
  std::string model, arch;  // "NVIDIA H200", "sm_90"
  std::string date;         // of the measurements, "2026-11-22"
  int64_t sms = 0, cache_bytes = 0;
};

class BenchLog {
 public:
  explicit BenchLog(BenchDevice device) : device_(std::move(device)) {}
  // Of a log's text form, whose times take the place of measuring; `where` leads error messages.
  static absl::StatusOr<BenchLog> Parse(absl::string_view text, absl::string_view where);
  std::string Print() const;

  const BenchDevice& device() const { return device_; }
  bool replays() const { return replays_; }
  bool Holds(const std::string& name) const { return us_.count(name) > 0; }

  // Microseconds of what `name` says, measured unless the log holds them. One that replays refuses
  // names that it does not hold.
  absl::StatusOr<double> Us(const std::string& name,
                            absl::FunctionRef<absl::StatusOr<double>()> measure);
  void Add(const std::string& name, double us);

 private:
  BenchDevice device_;
  bool replays_ = false;
  std::map<std::string, double> us_;
  std::vector<std::string> order_;  // of their measurement
};

}  // namespace retrograd

#endif  // RETROGRAD_TOOLS_CALIBRATE_BENCH_LOG_H_
