#include "runtime/trials/autotune.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <map>
#include <memory>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/types/span.h"
#include "graph/base/status.h"
#include "runtime/trials/agreement.h"
#include "runtime/trials/measurement.h"
#include "runtime/trials/race.h"
#include "runtime/tuning/choices_text.h"

namespace retrograd {
namespace {

// Of the entries on disk: a new one where what they hold means something else.
constexpr absl::string_view kFormat = "retrograd choice 2\n";

std::string EntryOf(const ChoiceKey& key) {
  return absl::StrCat(kFormat, key.kind, "\n", key.device, "\n", key.library, "\n", key.call);
}

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Memory of an implementation's own.
struct OwnMemory {
  std::vector<const void*> operands;
  std::vector<void*> results;
  void* workspace = nullptr;
  CallPointers pointers() { return {operands, absl::MakeSpan(results)}; }
};

absl::StatusOr<OwnMemory> Take(const CallMemory& wanted, int64_t workspace_bytes,
                               MeasurementMemory& memory) {
  OwnMemory taken;
  for (const StoredValues& stored : wanted.operands) {
    RG_ASSIGN_OR_RETURN(taken.operands.emplace_back(), memory.Take(stored.bytes()));
  }
  for (const StoredValues& stored : wanted.results) {
    RG_ASSIGN_OR_RETURN(taken.results.emplace_back(), memory.Take(stored.bytes()));
  }
  RG_ASSIGN_OR_RETURN(taken.workspace, memory.Take(workspace_bytes));
  return taken;
}

// An implementation that takes so many times the fastest, and what the host may need to issue work
// and to see it end, is out of the race: its time need not be exact.
constexpr double kHopeless = 4, kHostUs = 200;
// Another process may have had the device, or the host: what seems to be out runs so often again.
constexpr int kDoubts = 3;

// The implementations of one call on memory of their own.
class Trial {
 public:
  Trial(Device& device, const CallMemory& memory, Implementations& implementations, OwnMemory& own)
      : device_(device), implementations_(implementations), own_(own), results_(device, memory) {}

  // Leaves the fastest chosen. One that fails here is not the one.
  absl::StatusOr<Choice> Run() {
    RG_RETURN_IF_ERROR(TryAll());
    RG_ASSIGN_OR_RETURN(const double alone_us, TimeOf(racing_[0], 1));
    const int runs = RunsInARow(alone_us);
    RG_ASSIGN_OR_RETURN(const RaceResult race, Race(racing_.size(), [&](size_t runner) {
                          return TimeOf(racing_[runner], runs);
                        }));
    for (size_t i = 0; i < racing_.size(); ++i) {
      choice_.candidates[static_cast<size_t>(racing_[i])].us = race.us[i];
    }
    choice_.usual = static_cast<size_t>(racing_[0]);
    choice_.chosen = static_cast<size_t>(racing_[race.winner]);
    RG_RETURN_IF_ERROR(Choose(racing_[race.winner]));
    choice_.state = implementations_.State();
    return choice_;
  }

  // Who is not used for what it made, and why: "a makes other numbers than b".
  const std::vector<std::string>& left_out() const { return left_out_; }

 private:
  // What one run showed of an implementation.
  struct Tried {
    int implementation = 0;
    double us = 0;
  };

  // Runs each of them, and keeps for the race those that work, agree with most and are not out of
  // it.
  absl::Status TryAll() {
    absl::Status failure = absl::InternalError("there is no implementation");
    std::vector<Tried> tried;
    std::vector<MadeNumbers> numbers;
    for (std::string& name : NamesOf(implementations_)) {
      const int i = static_cast<int>(choice_.candidates.size());
      choice_.candidates.push_back({std::move(name)});
      MadeNumbers made{.engine = implementations_.Engine(i), .numbers = {}};
      const absl::StatusOr<double> us = Try(i, made.numbers);
      if (!us.ok()) {
        failure = us.status();
        continue;
      }
      tried.push_back({i, *us});
      numbers.push_back(std::move(made));
    }
    TakeOut(AgreementOf(numbers), tried);
    KeepForRace(tried);
    return racing_.empty() ? failure : absl::OkStatus();
  }

  void TakeOut(const Agreement& agreement, std::vector<Tried>& tried) {
    const auto name = [&](size_t place) {
      return choice_.candidates[static_cast<size_t>(tried[place].implementation)].name;
    };
    for (const size_t place : agreement.disagreeing) {
      left_out_.push_back(
          absl::StrCat(name(place), " makes other numbers than ", name(agreement.kept)));
    }
    for (auto place = agreement.disagreeing.rbegin(); place != agreement.disagreeing.rend();
         ++place) {
      tried.erase(tried.begin() + static_cast<ptrdiff_t>(*place));
    }
  }

  void KeepForRace(const std::vector<Tried>& tried) {
    double least_us = std::numeric_limits<double>::infinity();
    for (Tried one : tried) {
      const auto is_out = [&] { return one.us > kHopeless * least_us + kHostUs; };
      for (int doubt = 0; doubt < kDoubts && is_out(); ++doubt) {
        const absl::StatusOr<double> us = UsAgain(one.implementation);
        if (!us.ok()) break;
        one.us = std::min(one.us, *us);
      }
      least_us = std::min(least_us, one.us);
      if (is_out()) {
        choice_.candidates[static_cast<size_t>(one.implementation)].us = one.us;
      } else {
        racing_.push_back(one.implementation);
      }
    }
  }

  absl::StatusOr<double> UsAgain(int implementation) {
    RG_RETURN_IF_ERROR(Choose(implementation));
    return HostTime(
        device_, [&] { return RunChosen(); }, /*runs=*/1);
  }

  // By the host's clock; and what it made, in part.
  absl::StatusOr<double> Try(int implementation, std::vector<float>& made) {
    RG_RETURN_IF_ERROR(Choose(implementation));
    RG_RETURN_IF_ERROR(results_.Clear(own_.pointers()));
    RG_ASSIGN_OR_RETURN(const double us, HostTime(device_, [&] { return RunChosen(); }));
    if (absl::Status fault = implementations_.Check(own_.pointers()); !fault.ok()) {
      left_out_.push_back(absl::StrCat(choice_.candidates[static_cast<size_t>(implementation)].name,
                                       ": ", fault.message()));
      return fault;
    }
    RG_ASSIGN_OR_RETURN(made, results_.Read(own_.pointers()));
    return us;
  }

  // In a recording, as the implementation will run; what cannot be recorded is issued.
  absl::StatusOr<double> TimeOf(int implementation, int runs) {
    const auto run = [&] { return RunChosen(); };
    const auto key = std::pair(implementation, runs);
    auto row = rows_.find(key);
    if (row == rows_.end()) {
      RG_RETURN_IF_ERROR(Choose(implementation));
      row = rows_.emplace(key, RecordRow(device_, run, runs)).first;
    }
    if (row->second != nullptr) return TimeRecorded(device_, *row->second, runs);
    RG_RETURN_IF_ERROR(Choose(implementation));
    return TimeInARow(device_, run, runs);
  }

  absl::Status Choose(int implementation) {
    if (chosen_ == implementation) return absl::OkStatus();
    chosen_ = -1;
    RG_RETURN_IF_ERROR(implementations_.Choose(implementation));
    chosen_ = implementation;
    return absl::OkStatus();
  }

  absl::Status RunChosen() { return implementations_.Run(own_.pointers(), own_.workspace); }

  Device& device_;
  Implementations& implementations_;
  OwnMemory& own_;
  ResultSample results_;
  Choice choice_;
  std::vector<std::string> left_out_;
  std::vector<int> racing_;  // the first is the default
  // By implementation and runs; null: it is not recorded.
  std::map<std::pair<int, int>, std::unique_ptr<Recording>> rows_;
  int chosen_ = -1;
};

// `left_out`: as Trial has it.
absl::StatusOr<Choice> TimeAll(Device& device, const CallMemory& wanted,
                               Implementations& implementations,
                               std::vector<std::string>& left_out) {
  MeasurementMemory memory(device);
  RG_ASSIGN_OR_RETURN(OwnMemory own, Take(wanted, implementations.most_workspace_bytes(), memory));
  // The caller's stream may be at work, or be captured.
  RG_RETURN_IF_ERROR(device.UseStream(std::nullopt));
  RG_RETURN_IF_ERROR(DrawOperands(device, wanted, own.pointers()));
  RG_RETURN_IF_ERROR(implementations.Fill(own.pointers()));
  Trial trial(device, wanted, implementations, own);
  absl::StatusOr<Choice> choice = trial.Run();
  left_out = trial.left_out();
  return choice;
}

}  // namespace

std::vector<std::string> NamesOf(const Implementations& implementations) {
  const int most = implementations.most_candidates();
  const int count = most > 0 ? std::min(implementations.count(), most) : implementations.count();
  std::vector<std::string> names;
  for (int i = 0; i < count; ++i) {
    std::string name = implementations.Name(i);
    for (int n = 2; absl::c_linear_search(names, name); ++n) {
      name = absl::StrCat(implementations.Name(i), " #", n);
    }
    names.push_back(std::move(name));
  }
  return names;
}

Tuner::Tuner(Device& device, TunerOptions options)
    : device_(device),
      options_(std::move(options)),
      tuning_(options_.tuning != nullptr ? options_.tuning : std::make_shared<Tuning>()) {
  const TuningOptions& shared = tuning_->options();
  const auto is_of_here = [&](const auto& entry) { return entry.first.device == options_.device; };
  if (shared.given.empty() || absl::c_any_of(shared.given, is_of_here)) return;
  Note(absl::StrCat(shared.given_name, ": its choices are of ", shared.given.begin()->first.device,
                    ", and this is ", options_.device, ": none is used"));
}

void Tuner::Begin(std::string call_key) {
  use_ = std::move(call_key);
  begun_s_ = Now();
  measured_ = false;
}

void Tuner::End() {
  if (measured_) tuning_->Spend(Now() - begun_s_);
  use_.clear();
}

std::optional<Choice> Tuner::Given(const ChoiceKey& key) {
  const TuningOptions& shared = tuning_->options();
  const auto given = shared.given.find(key);
  if (given != shared.given.end()) return given->second;
  for (const auto& [other, choice] : shared.given) {
    const bool by_another_library =
        other.kind == key.kind && other.device == key.device && other.call == key.call;
    if (!by_another_library) continue;
    if (tuning_->First(key.kind)) {  // one call stands for all
      Note(absl::StrCat(shared.given_name, ": choices of ", other.kind, " with ", other.library,
                        " are not used: this is ", key.library));
    }
    break;
  }
  return std::nullopt;
}

std::optional<Choice> Tuner::Cached(const ChoiceKey& key) const {
  if (!options_.time) return std::nullopt;
  if (std::optional<Choice> known = tuning_->Known(key)) return known;
  if (options_.cache == nullptr) return std::nullopt;
  const std::optional<std::string> entry = options_.cache->Read(EntryOf(key));
  if (!entry) return std::nullopt;
  absl::StatusOr<Choices> choices = ParseChoices(*entry, "the cache");
  if (!choices.ok() || choices->count(key) == 0) return std::nullopt;
  tuning_->Know(key, choices->at(key));
  return std::move(choices->at(key));
}

std::optional<Choice> Tuner::Recall(const ChoiceKey& key,
                                    absl::FunctionRef<bool(const Choice&)> fits) {
  if (untimed_.count(key) > 0) return Choice{};
  const auto known = choices_.find(key);
  if (known != choices_.end() && fits(known->second)) {
    Uses(key);
    return known->second;
  }
  std::optional<Choice> given = Given(key);
  if (given && !fits(*given)) given.reset();
  std::optional<Choice> cached = Cached(key);
  if (cached && !fits(*cached)) cached.reset();
  if (given) {
    // The state of the same implementation.
    if (cached && cached->name() == given->name()) given->state = cached->state;
    return Keep(key, *std::move(given), /*measured=*/false);
  }
  if (!cached) return std::nullopt;
  return Keep(key, *std::move(cached), /*measured=*/false);
}

absl::StatusOr<Choice> Tuner::ChooseFastest(const ChoiceKey& key, const CallMemory& memory,
                                            Implementations& implementations) {
  const bool may = MayMeasure();
  if (!may && options_.time) ++beyond_budget_;
  std::vector<std::string> left_out;
  absl::StatusOr<Choice> choice =
      may ? TimeAll(device_, memory, implementations, left_out) : absl::StatusOr<Choice>(Choice{});
  for (const std::string& why : left_out) {
    Note(absl::StrCat(key.kind, " by ", key.library, ": ", why, ", and is not used: ", key.call));
  }
  // Without the memory for a measurement the first one does.
  if (!may || absl::IsResourceExhausted(choice.status())) {
    RG_RETURN_IF_ERROR(implementations.Choose(0));
    return KeepUntimed(key);
  }
  RG_RETURN_IF_ERROR(choice.status());
  measured_ = true;
  tuning_->Know(key, *choice);
  if (options_.cache != nullptr) {
    const std::string entry = PrintChoices({{key, *choice}}, /*state=*/true);
    options_.cache->Write(EntryOf(key), entry).IgnoreError();
  }
  return Keep(key, *std::move(choice), /*measured=*/true);
}

absl::StatusOr<Choice> Tuner::Choose(const ChoiceKey& key, const CallMemory& memory,
                                     Implementations& implementations) {
  const std::vector<std::string> names = NamesOf(implementations);
  const std::optional<Choice> known =
      Recall(key, [&](const Choice& choice) { return choice.HasNames(names); });
  const int chosen = known && known->timed() ? static_cast<int>(known->chosen) : 0;
  if (known && implementations.Choose(chosen).ok()) return *known;
  return ChooseFastest(key, memory, implementations);
}

const Choice& Tuner::Keep(const ChoiceKey& key, Choice choice, bool measured) {
  if (!use_.empty()) choice.uses.insert(use_);
  untimed_.erase(key);
  Choice& kept = choices_[key] = std::move(choice);
  if (tuning_->options().found) tuning_->options().found(key, kept, measured);
  return kept;
}

const Choice& Tuner::KeepUntimed(const ChoiceKey& key) {
  static const Choice& untimed = *new Choice;
  choices_.erase(key);
  untimed_.insert(key);
  return untimed;
}

void Tuner::Uses(const ChoiceKey& key) {
  const auto known = choices_.find(key);
  if (known == choices_.end() || use_.empty()) return;
  if (!known->second.uses.insert(use_).second || !tuning_->options().found) return;
  tuning_->options().found(key, known->second, /*measured=*/false);
}

void Tuner::Note(std::string note) {
  if (tuning_->First(note)) notes_.push_back(std::move(note));
}

std::vector<std::string> Tuner::TakeNotes() {
  std::vector<std::string> notes = std::exchange(notes_, {});
  const int64_t beyond = std::exchange(beyond_budget_, 0);
  if (beyond == 0) return notes;
  notes.push_back(
      absl::StrFormat("the tuning budget of %g s is used up: %d %s the default, untimed",
                      tuning_->options().budget_s, beyond,
                      beyond == 1 ? "kind of library call takes" : "kinds of library calls take"));
  return notes;
}

}  // namespace retrograd
