// StageSeconds: how long each stage of making something took.
#ifndef RETROGRAD_RUNTIME_PROGRAM_STAGE_SECONDS_H_
#define RETROGRAD_RUNTIME_PROGRAM_STAGE_SECONDS_H_

#include <chrono>
#include <string>
#include <utility>
#include <vector>

namespace retrograd {

// Host seconds by stage, in the order in which the stages first ended. A stage that comes again
// adds to what it took before.
class StageSeconds {
 public:
  // Of the time since the last lap, or since this was made or started.
  void Lap(const std::string& stage);
  // What stands between the last lap and this belongs to no stage.
  void Start() { begin_ = Clock::now(); }
  void Add(const std::string& stage, double seconds);
  void Add(const StageSeconds& other);
  const std::vector<std::pair<std::string, double>>& all() const { return all_; }

 private:
  using Clock = std::chrono::steady_clock;
  std::vector<std::pair<std::string, double>> all_;
  Clock::time_point begin_ = Clock::now();
};

}  // namespace retrograd

#endif  // RETROGRAD_RUNTIME_PROGRAM_STAGE_SECONDS_H_
