// Tuning: what the devices of one caller share while they choose implementations: choices that were
// given to them, and the time that may go into making others. For several threads at once.
#ifndef RETROGRAD_RUNTIME_TUNING_TUNING_H_
#define RETROGRAD_RUNTIME_TUNING_TUNING_H_

#include <functional>
#include <mutex>
#include <optional>
#include <set>
#include <string>

#include "runtime/tuning/choice.h"

namespace retrograd {

struct TuningOptions {
  Choices given;           // what is not measured again
  std::string given_name;  // of their file, for messages
  double budget_s = 0;     // seconds for loading what is measured meanwhile; 0: no limit
  // Told each choice that a device has made, or has found made, once for each device. By the thread
  // that loads.
  std::function<void(const ChoiceKey& key, const Choice& choice, bool measured)> found;
};

class Tuning {
 public:
  explicit Tuning(TuningOptions options = {}) : options_(std::move(options)) {}
  Tuning(const Tuning&) = delete;
  Tuning& operator=(const Tuning&) = delete;

  const TuningOptions& options() const { return options_; }
  bool HasTimeLeft() const { return options_.budget_s == 0 || LeftSeconds() > 0; }
  double LeftSeconds() const;  // of the budget
  void Spend(double seconds);

  // What devices have timed, or read from their caches, so that others of them need not; without
  // the calls that they made it for.
  std::optional<Choice> Known(const ChoiceKey& key) const;
  void Know(const ChoiceKey& key, const Choice& choice);

  // Whether nobody has asked so before: what is said to people is said once.
  bool First(const std::string& note);

 private:
  const TuningOptions options_;
  mutable std::mutex mutex_;  // of what follows
  double spent_s_ = 0;
  std::set<std::string> told_;
  Choices known_;
};

}  // namespace retrograd

#endif  // RETROGRAD_RUNTIME_TUNING_TUNING_H_
