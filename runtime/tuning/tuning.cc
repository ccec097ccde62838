#include "runtime/tuning/tuning.h"

namespace retrograd {

double Tuning::LeftSeconds() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return options_.budget_s - spent_s_;
}

void Tuning::Spend(double seconds) {
  const std::lock_guard<std::mutex> lock(mutex_);
  spent_s_ += seconds;
}

bool Tuning::First(const std::string& note) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return told_.insert(note).second;
}

}  // namespace retrograd
