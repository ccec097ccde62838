#include "runtime/program/stage_seconds.h"

#include <algorithm>

namespace retrograd {

void StageSeconds::Lap(const std::string& stage) {
  const Clock::time_point now = Clock::now();
  Add(stage, std::chrono::duration<double>(now - begin_).count());
  begin_ = now;
}

void StageSeconds::Add(const std::string& stage, double seconds) {
  const auto at =
      std::find_if(all_.begin(), all_.end(), [&](const auto& lap) { return lap.first == stage; });
  if (at == all_.end()) {
    all_.emplace_back(stage, seconds);
  } else {
    at->second += seconds;
  }
}

void StageSeconds::Add(const StageSeconds& other) {
  for (const auto& [stage, seconds] : other.all_) Add(stage, seconds);
}

}  // namespace retrograd
