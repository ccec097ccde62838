// What an executable tells of itself, as JSON.
#ifndef RETROGRAD_API_DESCRIBE_H_
#define RETROGRAD_API_DESCRIBE_H_

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/executable/executable.h"

namespace retrograd {

// Seconds of each stage of making something, in their order.
class StageSeconds {
 public:
  // Since the last lap, or since this was made.
  void Lap(std::string stage);
  void LapOnce(const std::string& stage);  // nothing if there is such a lap
  const std::vector<std::pair<std::string, double>>& all() const { return all_; }

 private:
  using Clock = std::chrono::steady_clock;
  std::vector<std::pair<std::string, double>> all_;
  Clock::time_point begin_ = Clock::now();
};

// An object with the spec, dtype and elements of each input and output (and below what an input's
// integers are), kernels, predicted time, a digest of what the program does, bytes; of what is
// runnable also which implementation each library call has, and runs and recordings so far.
absl::StatusOr<std::string> Describe(const Executable& executable, bool runnable,
                                     const StageSeconds& seconds);

}  // namespace retrograd

#endif  // RETROGRAD_API_DESCRIBE_H_
