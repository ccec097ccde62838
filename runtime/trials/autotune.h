// Which implementation of a library call is the fastest on a device: found by running each of them
// for every kind of call (race.h), and remembered with the times. The one mechanism of all
// libraries and all ops.
#ifndef RETROGRAD_RUNTIME_TRIALS_AUTOTUNE_H_
#define RETROGRAD_RUNTIME_TRIALS_AUTOTUNE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/compiler/module_cache.h"
#include "runtime/device/device.h"
#include "runtime/trials/call_memory.h"
#include "runtime/tuning/choice.h"
#include "runtime/tuning/tuning.h"

namespace retrograd {

// Of one call, by default: the first so many, as the library or our model orders them.
inline constexpr int kMostCandidates = 8;

// The implementations of one call, one of which is chosen at any time.
class Implementations {
 public:
  virtual ~Implementations() = default;
  virtual int count() const = 0;
  // How many of them may be run; the others are not looked at.
  virtual int most_candidates() const { return kMostCandidates; }
  virtual std::string Name(int implementation) const = 0;
  // Implementations of one engine count once where most decide (agreement.h).
  virtual std::string Engine(int implementation) const { return Name(implementation); }
  virtual int64_t most_workspace_bytes() const = 0;  // that any of them wants
  // An error where this one cannot be had here. What an earlier one has issued into a recording can
  // still be replayed.
  virtual absl::Status Choose(int implementation) = 0;
  // Issues the chosen one on stream 0. The workspace suffices for any.
  virtual absl::Status Run(const CallPointers& pointers, void* workspace) = 0;
  // What brings the chosen one back sooner than its name, for an equal call on an equal device and
  // library; empty: nothing does.
  virtual std::string State() const { return ""; }
  // Before they are timed, when operands hold drawn numbers (agreement.h): what they hold instead
  // if time or result depends on it.
  virtual absl::Status Fill(const CallPointers&) { return absl::OkStatus(); }
  // After the chosen one has run: an error if it must not be used for what it has written.
  virtual absl::Status Check(const CallPointers&) { return absl::OkStatus(); }
};

// Of those that may be run, in their order; a name that was there before gets a number.
std::vector<std::string> NamesOf(const Implementations& implementations);

struct TunerOptions {
  std::string device;                  // ChoiceKey::device
  const ModuleCache* cache = nullptr;  // where choices are remembered; null: nowhere
  bool time = true;                // else the first implementation is taken, unless one is given
  std::shared_ptr<Tuning> tuning;  // null: of its own
};

// Chooses for one device, and knows what it has chosen.
class Tuner {
 public:
  Tuner(Device& device, TunerOptions options);
  Tuner(const Tuner&) = delete;
  Tuner& operator=(const Tuner&) = delete;

  // Of a call of a plan, by its CallKey: the choices between both are made for it.
  void Begin(std::string call_key);
  void End();

  ChoiceKey Key(std::string kind, std::string library, std::string call) const {
    return {std::move(kind), options_.device, std::move(library), std::move(call)};
  }

  // What was chosen before: on this device; in the choices that were given, which come before all
  // that other processes have measured; in the cache. What does not fit is as if it were not there.
  // A choice without candidates: the default is taken, untimed.
  std::optional<Choice> Recall(
      const ChoiceKey& key,
      absl::FunctionRef<bool(const Choice&)> fits = [](const Choice&) { return true; });
  // Runs the implementations on memory of their own, chooses the fastest of those that agree
  // (agreement.h) and remembers it. Waits for the device. Chooses the first where timing is off,
  // its budget spent or there is no memory for it: a choice without candidates, which the cache
  // does not remember. An error if none runs.
  absl::StatusOr<Choice> ChooseFastest(const ChoiceKey& key, const CallMemory& memory,
                                       Implementations& implementations);
  // Whether it is worth the time to compile kernels only to time them.
  bool TimesTiles() const { return tuning_->options().of_tiles; }
  // Both, for implementations that are at hand: leaves one of them chosen.
  absl::StatusOr<Choice> Choose(const ChoiceKey& key, const CallMemory& memory,
                                Implementations& implementations);
  // That a call is made by what was chosen for an earlier one.
  void Uses(const ChoiceKey& key);

  // Those that were timed, by this device or others, and are in use here.
  const Choices& choices() const { return choices_; }

  // Lines for people about what was said since the last time.
  std::vector<std::string> TakeNotes();

 private:
  std::optional<Choice> Given(const ChoiceKey& key);
  std::optional<Choice> Cached(const ChoiceKey& key) const;
  bool MayMeasure() const { return options_.time && tuning_->HasTimeLeft(); }
  const Choice& Keep(const ChoiceKey& key, Choice choice, bool measured);
  const Choice& KeepUntimed(const ChoiceKey& key);
  void Note(std::string note);

  Device& device_;
  const TunerOptions options_;
  const std::shared_ptr<Tuning> tuning_;
  Choices choices_;
  std::set<ChoiceKey> untimed_;
  std::string use_;            // the call that is being loaded
  double begun_s_ = 0;         // when its loading began
  bool measured_ = false;      // anything for it
  int64_t beyond_budget_ = 0;  // choices that took their default, since the last TakeNotes
  std::vector<std::string> notes_;
};

}  // namespace retrograd

#endif  // RETROGRAD_RUNTIME_TRIALS_AUTOTUNE_H_
