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

std::optional<Choice> Tuning::Known(const ChoiceKey& key) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto known = known_.find(key);
  if (known == known_.end()) return std::nullopt;
  return known->second;
}

void Tuning::Know(const ChoiceKey& key, const Choice& choice) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Choice& known = known_[key] = choice;
  known.uses.clear();
}

bool Tuning::First(const std::string& note) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return told_.insert(note).second;
}

}  // namespace retrograd
