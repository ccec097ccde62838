// The choice among implementations of a call: by time, remembered, and without a fault of one of
// them spoiling the others.
#include "runtime/trials/autotune.h"

#include <chrono>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/catch.h"
#include "tests/support/memory_device.h"

namespace retrograd {
namespace {

// Takes as long as the work says.
class Clock : public MemoryDevice {
 public:
  absl::Status UseStream(std::optional<void*> native) override {
    CHECK_FALSE(native.has_value());
    own_stream = true;
    return absl::OkStatus();
  }
  // The caller's stream may be captured.
  absl::Status CopyIn(void* device, const void* host, int64_t bytes) override {
    CHECK(own_stream);
    return MemoryDevice::CopyIn(device, host, bytes);
  }
  absl::StatusOr<void*> Allocate(int64_t bytes) override {
    if (bytes > most_bytes) return absl::ResourceExhaustedError("no memory");
    ++alive;
    return MemoryDevice::Allocate(bytes);
  }
  void Free(void* data) override {
    --alive;
    MemoryDevice::Free(data);
  }
  absl::Status Synchronize() override { return absl::OkStatus(); }
  absl::StatusOr<TimeSamples> Time(absl::FunctionRef<absl::Status()> work, int repetitions,
                                   bool cold) override {
    CHECK_FALSE(cold);
    TimeSamples samples;
    for (int i = 0; i < repetitions; ++i) {
      const double before = now_us;
      if (const absl::Status status = work(); !status.ok()) return status;
      samples.push_back(now_us - before);
    }
    return samples;
  }

  double now_us = 0;
  int64_t most_bytes = 1 << 20;
  int alive = 0;  // allocations
  bool own_stream = false;
};

// Times of the implementations; 0: it cannot be chosen, below: it fails when run.
class Scripted : public Implementations {
 public:
  Scripted(Clock& clock, std::vector<double> us)
      : runs_of(us.size(), 0), clock_(clock), us_(std::move(us)) {}
  int count() const override { return static_cast<int>(us_.size()); }
  int64_t most_workspace_bytes() const override { return 64; }
  absl::Status Choose(int implementation) override {
    if (us_[implementation] == 0) return absl::UnimplementedError("cannot be had");
    chosen = implementation;
    return absl::OkStatus();
  }
  absl::Status Run(const CallPointers& pointers, void* workspace) override {
    CHECK(pointers.operands.size() == 2);
    CHECK(pointers.results.size() == 1);
    CHECK(workspace != nullptr);
    ++runs;
    ++runs_of[static_cast<size_t>(chosen)];
    if (us_[chosen] >= 1000) {
      std::this_thread::sleep_for(std::chrono::microseconds(static_cast<int64_t>(us_[chosen])));
    }
    if (chosen < static_cast<int>(waits.size()) && waits[chosen] > 0) {
      --waits[chosen];
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    if (us_[chosen] < 0) return absl::InternalError("fails");
    if (chosen < static_cast<int>(writes.size())) Write(writes[chosen], pointers);
    clock_.now_us += us_[chosen];
    return absl::OkStatus();
  }
  absl::Status Check(const CallPointers&) override {
    CHECK(runs > 0);
    return chosen == wrong ? absl::UnimplementedError("other numbers") : absl::OkStatus();
  }
  std::string Name(int implementation) const override {
    return implementation < static_cast<int>(names.size()) ? names[implementation]
                                                           : std::to_string(implementation);
  }
  std::string State() const override { return std::string("state\n\0\xff", 8) + Name(chosen); }

  std::vector<std::string> names;  // in place of their numbers
  std::vector<int> waits;   // whose first runs last milliseconds longer, and how many of them
  std::vector<int> writes;  // who writes what: so many times the operand's numbers; 0: nothing
  int wrong = -1;           // whose results are not to be used
  int chosen = -1, runs = 0;
  std::vector<int> runs_of;

 private:
  static void Write(int times, const CallPointers& pointers) {
    if (times == 0) return;
    const auto* const from = static_cast<const float*>(pointers.operands[0]);
    for (int i = 0; i < 256; ++i) {
      const float number = static_cast<float>(times) * from[i % 32];
      uint32_t bits;
      std::memcpy(&bits, &number, 4);
      static_cast<uint16_t*>(pointers.results[0])[i] = static_cast<uint16_t>(bits >> 16);
    }
  }

  Clock& clock_;
  const std::vector<double> us_;
};

const CallMemory kMemory = {.operands = {{DType::kFp32, 32}, {DType::kBf16, 128}},
                            .results = {{DType::kBf16, 256}}};

// A device with its tuner, which forgets with it.
struct Tuned {
  explicit Tuned(TunerOptions options = {}) : tuner(clock, WithName(std::move(options))) {}
  static TunerOptions WithName(TunerOptions options) {
    if (options.device.empty()) options.device = "a GPU, sm_1, 8 multiprocessors";
    return options;
  }
  ChoiceKey Key(const std::string& call = "call") const {
    return tuner.Key("kind 1", "library 7", call);
  }
  Clock clock;
  Tuner tuner;
};

std::vector<double> TimesOf(const Choice& choice) {
  std::vector<double> us;
  for (const TimedCandidate& c : choice.candidates) us.push_back(c.us);
  return us;
}

// A cache in a folder of its own.
struct Cache {
  Cache() : work(*WorkDirectory::MakeIn(std::filesystem::temp_directory_path().string())) {
    auto opened = ModuleCache::Open(work.path() + "/cache", int64_t{1} << 30);
    REQUIRE(opened.ok());
    cache.emplace(*std::move(opened));
  }
  WorkDirectory work;
  std::optional<ModuleCache> cache;
};

TEST_CASE("the fastest implementation is chosen, whatever the others do") {
  Tuned on;
  Scripted implementations(on.clock, {0, 30, 10, -1, 20});
  const auto choice = on.tuner.ChooseFastest(on.Key(), kMemory, implementations);
  REQUIRE(choice.ok());
  CHECK(implementations.chosen == 2);
  CHECK(TimesOf(*choice) == std::vector<double>{0, 30, 10, 0, 20});
  CHECK(choice->us() == 10);
  CHECK(choice->name() == "2");
  CHECK(choice->usual == 1);  // the first that runs
  CHECK(choice->margin() == Approx(2.0 / 3));
  CHECK(on.clock.alive == 0);
}

TEST_CASE("an implementation that is out of the race is run a few times, wherever it stands") {
  Tuned on;
  Scripted behind(on.clock, {10, 5000, 8});
  const auto choice = on.tuner.ChooseFastest(on.Key(), kMemory, behind);
  REQUIRE(choice.ok());
  CHECK(behind.chosen == 2);
  CHECK(behind.runs_of[1] == 5);  // twice, and three times more before it is out
  CHECK(choice->candidates[1].us >= 5000);
  Scripted first(on.clock, {5000, 10});
  REQUIRE(on.tuner.ChooseFastest(on.Key("another"), kMemory, first).ok());
  CHECK(first.chosen == 1);
}

TEST_CASE("an implementation that had to wait for another process's work is in the race") {
  Tuned on;
  Scripted implementations(on.clock, {10, 8, 30});
  implementations.waits = {0, 3, 0};
  REQUIRE(on.tuner.ChooseFastest(on.Key(), kMemory, implementations).ok());
  CHECK(implementations.chosen == 1);
}

TEST_CASE("where none runs the last reason is the answer, and no memory stays taken") {
  Tuned on;
  Scripted implementations(on.clock, {0, -1});
  const auto choice = on.tuner.ChooseFastest(on.Key(), kMemory, implementations);
  CHECK(choice.status() == absl::InternalError("fails"));
  CHECK(on.clock.alive == 0);
  CHECK(on.tuner.choices().empty());
}

TEST_CASE("the first of equally fast implementations is chosen, whichever ran last") {
  Tuned on;
  for (const std::vector<double>& us : {std::vector<double>{10, 10}, {10, 10, 10}, {9.95, 10}}) {
    Scripted implementations(on.clock, us);
    const auto choice = on.tuner.ChooseFastest(on.Key(), kMemory, implementations);
    REQUIRE(choice.ok());
    CHECK(implementations.chosen == 0);
    CHECK(choice->margin() == 0);
  }
}

TEST_CASE("an implementation that wrote what it must not is out, fast as it is") {
  Tuned on;
  Scripted implementations(on.clock, {30, 10});
  implementations.wrong = 1;
  const auto choice = on.tuner.ChooseFastest(on.Key(), kMemory, implementations);
  REQUIRE(choice.ok());
  CHECK(implementations.chosen == 0);
  CHECK(TimesOf(*choice) == std::vector<double>{30, 0});
  CHECK(on.tuner.TakeNotes() ==
        std::vector<std::string>{"kind 1 by library 7: 1: other numbers, and is not used: call"});
  Scripted alone(on.clock, {10});
  alone.wrong = 0;
  CHECK(on.tuner.ChooseFastest(on.Key(), kMemory, alone).status() ==
        absl::UnimplementedError("other numbers"));
  CHECK(on.clock.alive == 0);
}

TEST_CASE("an implementation that makes other numbers than the rest is out, and a note names it") {
  struct Case {
    std::vector<int> writes;
    int chosen;  // of times 30, 20, 10
    std::vector<std::string> out;
    std::string kept = "0";
  };
  const std::vector<Case> cases = {
      {{1, 1, 1}, 2, {}},         {{1, 1, 2}, 1, {"2"}}, {{1, 1, -1}, 1, {"2"}},
      {{1, 1, 0}, 1, {"2"}},       // what it does not write is not what the one before it wrote
      {{2, 1, 1}, 2, {"0"}, "1"},  // the default, too
      {{1, 2, 3}, 0, {"1", "2"}},  // nobody agrees: the default stays
      {{0, 0, 0}, 2, {}},
  };
  for (const Case& c : cases) {
    CAPTURE(c.writes);
    Tuned on;
    Scripted implementations(on.clock, {30, 20, 10});
    implementations.writes = c.writes;
    const auto choice = on.tuner.ChooseFastest(on.Key(), kMemory, implementations);
    REQUIRE(choice.ok());
    CHECK(implementations.chosen == c.chosen);
    const std::vector<std::string> notes = on.tuner.TakeNotes();
    REQUIRE(notes.size() == c.out.size());
    for (size_t i = 0; i < notes.size(); ++i) {
      CHECK(notes[i] == "kind 1 by library 7: " + c.out[i] + " makes other numbers than " + c.kept +
                            ", and is not used: call");
      CHECK(choice->candidates[std::stoul(c.out[i])].us == 0);
    }
  }
}

TEST_CASE("without timing, or without the memory for it, the first one stays") {
  for (const bool time : {false, true}) {
    Tuned on({.time = time});
    on.clock.most_bytes = 300;
    Scripted implementations(on.clock, {30, 10});
    const auto choice = on.tuner.ChooseFastest(on.Key(), kMemory, implementations);
    REQUIRE(choice.ok());
    CHECK(implementations.chosen == 0);
    CHECK(implementations.runs == 0);
    CHECK_FALSE(choice->timed());
    CHECK(choice->us() == 0);
    CHECK(on.clock.alive == 0);
    CHECK(on.tuner.choices().empty());
  }
}

TEST_CASE("at most eight implementations are run, in their order, unless they ask for more") {
  struct All : Scripted {
    using Scripted::Scripted;
    int most_candidates() const override { return count(); }
  };
  const std::vector<double> us = {30, 30, 30, 30, 30, 30, 30, 20, 10};
  Tuned on;
  Scripted shortlisted(on.clock, us);
  const auto choice = on.tuner.ChooseFastest(on.Key(), kMemory, shortlisted);
  REQUIRE(choice.ok());
  CHECK(choice->candidates.size() == 8);
  CHECK(choice->name() == "7");
  CHECK(shortlisted.runs_of[8] == 0);
  All all(on.clock, us);
  CHECK(on.tuner.ChooseFastest(on.Key(), kMemory, all)->name() == "8");
}

TEST_CASE("implementations of one name are told apart") {
  Tuned on;
  Scripted implementations(on.clock, {30, 20, 10});
  implementations.names = {"same", "same", "same"};
  CHECK(NamesOf(implementations) == std::vector<std::string>{"same", "same #2", "same #3"});
}

TEST_CASE("choices are remembered by their key, in any process, and only where timing is on") {
  const Cache kept;
  Tuned first({.cache = &*kept.cache});
  CHECK_FALSE(first.tuner.Recall(first.Key()).has_value());
  Scripted implementations(first.clock, {30.25, 0, 1.0 / 3});
  const auto choice = first.tuner.ChooseFastest(first.Key(), kMemory, implementations);
  REQUIRE(choice.ok());

  Tuned later({.cache = &*kept.cache});
  const auto known = later.tuner.Recall(later.Key());
  REQUIRE(known.has_value());
  CHECK(known->name() == "2");
  CHECK(known->usual == 0);
  CHECK(known->state == implementations.State());
  REQUIRE(known->candidates.size() == 3);
  CHECK(known->candidates[0] == TimedCandidate{"0", 30.25});
  CHECK(known->candidates[1] == TimedCandidate{"1", 0});
  CHECK(known->candidates[2].us == Approx(1.0 / 3).epsilon(1e-5));
  CHECK_FALSE(Tuned({.cache = &*kept.cache, .time = false}).tuner.Recall(later.Key()).has_value());
}

TEST_CASE("what one device has timed or found serves others of the same tuning, without a cache") {
  const auto tuning = std::make_shared<Tuning>();
  Tuned first({.tuning = tuning});
  Scripted implementations(first.clock, {30, 10});
  first.tuner.Begin("its call");
  REQUIRE(first.tuner.ChooseFastest(first.Key(), kMemory, implementations).ok());
  first.tuner.End();

  Tuned later({.tuning = tuning});
  const auto known = later.tuner.Recall(later.Key());
  REQUIRE(known.has_value());
  CHECK(known->name() == "1");
  CHECK(known->state == implementations.State());
  CHECK(known->uses.empty());  // who it was chosen for is the other device's matter
  CHECK_FALSE(later.tuner.Recall(later.Key("another call")).has_value());
  CHECK_FALSE(Tuned({.time = false, .tuning = tuning}).tuner.Recall(later.Key()).has_value());

  // An entry of the cache is read once for all of them.
  const Cache kept;
  Tuned writer({.cache = &*kept.cache});
  Scripted others(writer.clock, {5, 7});
  REQUIRE(writer.tuner.ChooseFastest(writer.Key("kept"), kMemory, others).ok());
  REQUIRE(Tuned({.cache = &*kept.cache, .tuning = tuning}).tuner.Recall(writer.Key("kept")));
  CHECK(later.tuner.Recall(writer.Key("kept"))->name() == "0");
}

TEST_CASE("each part of a key makes another choice, and so do other candidates") {
  const Cache kept;
  Tuned first({.cache = &*kept.cache});
  Scripted implementations(first.clock, {30, 10});
  REQUIRE(first.tuner.ChooseFastest(first.Key(), kMemory, implementations).ok());
  const auto knows = [&](ChoiceKey key) {
    return Tuned({.cache = &*kept.cache}).tuner.Recall(key).has_value();
  };
  const ChoiceKey key = first.Key();
  CHECK(knows(key));
  CHECK_FALSE(knows({"kind 2", key.device, key.library, key.call}));
  CHECK_FALSE(knows({key.kind, "a GPU, sm_1, 4 multiprocessors", key.library, key.call}));
  CHECK_FALSE(knows({key.kind, key.device, "library 8", key.call}));
  CHECK_FALSE(knows({key.kind, key.device, key.library, "another call"}));
  // A key's parts do not run into each other.
  CHECK_FALSE(knows({key.kind, key.device, "library", "7\ncall"}));

  for (const std::vector<std::string>& names :
       {std::vector<std::string>{"0", "1"}, {"1", "0"}, {"0", "2"}, {"0"}}) {
    Tuned later({.cache = &*kept.cache});
    Scripted others(later.clock, std::vector<double>(names.size(), 5));
    others.names = names;
    REQUIRE(later.tuner.Choose(key, kMemory, others).ok());
    CHECK((others.runs == 0) == (names == std::vector<std::string>{"0", "1"}));
    // What was found among others stands in its place: it is put back.
    Tuned before({.cache = &*kept.cache});
    Scripted again(before.clock, {30, 10});
    REQUIRE(before.tuner.ChooseFastest(key, kMemory, again).ok());
  }
}

TEST_CASE("what is damaged in the cache is measured again") {
  const Cache kept;
  Tuned on({.cache = &*kept.cache});
  const std::string entry =
      "retrograd choice 2\nkind 1\na GPU, sm_1, 8 multiprocessors\n"
      "library 7\ncall";
  for (const char* text : {"", "version: 2", "nonsense {", "version: 1"}) {
    REQUIRE(kept.cache->Write(entry, text).ok());
    Tuned later({.cache = &*kept.cache});
    CHECK_FALSE(later.tuner.Recall(later.Key()).has_value());
  }
}

// A choice of the second of two, as a file has it.
Choices GivenFor(const ChoiceKey& key) {
  return {{key, Choice{.candidates = {{"0", 20}, {"1", 15}}, .usual = 0, .chosen = 1}}};
}

std::shared_ptr<Tuning> Given(Choices given, double budget_s = 0) {
  return std::make_shared<Tuning>(
      TuningOptions{.given = std::move(given), .given_name = "mine", .budget_s = budget_s});
}

TEST_CASE("what was given is taken and not measured, also where timing is off; the rest as ever") {
  const ChoiceKey key = Tuned().Key();
  const Cache kept;
  {  // The cache says otherwise.
    Tuned before({.cache = &*kept.cache});
    Scripted implementations(before.clock, {10, 30});
    REQUIRE(before.tuner.ChooseFastest(key, kMemory, implementations)->name() == "0");
  }
  for (const bool time : {true, false}) {
    Tuned on({.cache = &*kept.cache, .time = time, .tuning = Given(GivenFor(key))});
    Scripted implementations(on.clock, {10, 30});
    const auto choice = on.tuner.Choose(key, kMemory, implementations);
    REQUIRE(choice.ok());
    CHECK(implementations.chosen == 1);
    CHECK(implementations.runs == 0);
    CHECK(choice->us() == 15);
    CHECK(choice->state.empty());  // it is the state of another one
    Scripted others(on.clock, {30, 10});
    REQUIRE(on.tuner.Choose(on.Key("another call"), kMemory, others).ok());
    CHECK(others.chosen == (time ? 1 : 0));
    CHECK((others.runs > 0) == time);
    CHECK(on.tuner.TakeNotes().empty());
  }
}

TEST_CASE("given choices of another device or library are not used, which is said once") {
  const ChoiceKey key = Tuned().Key();
  ChoiceKey other = key;
  other.device = "another GPU, sm_2, 9 multiprocessors";
  std::shared_ptr<Tuning> tuning = Given(GivenFor(other));
  for (const bool first : {true, false}) {
    Tuned on({.tuning = tuning});
    CHECK_FALSE(on.tuner.Recall(key).has_value());
    const std::vector<std::string> notes = on.tuner.TakeNotes();
    REQUIRE(notes.size() == (first ? 1 : 0));
    if (first) {
      CHECK(notes[0] ==
            "mine: its choices are of another GPU, sm_2, 9 multiprocessors, and this is a GPU, "
            "sm_1, 8 multiprocessors: none is used");
    }
  }
  other = key;
  other.library = "library 6";
  Choices both = GivenFor(other);
  other.call = "another call";
  both.merge(GivenFor(other));
  Tuned on({.tuning = Given(both)});
  CHECK_FALSE(on.tuner.Recall(key).has_value());
  CHECK_FALSE(on.tuner.Recall(on.Key("another call")).has_value());
  CHECK(on.tuner.TakeNotes() ==
        std::vector<std::string>{
            "mine: choices of kind 1 with library 6 are not used: this is library 7"});
  CHECK(on.tuner.TakeNotes().empty());
}

TEST_CASE("beyond the budget the default is taken, and nothing is remembered as measured") {
  const Cache kept;
  const auto tuning = Given({}, /*budget_s=*/1e-9);
  Tuned on({.cache = &*kept.cache, .tuning = tuning});
  for (int call = 0; call < 3; ++call) {
    on.tuner.Begin("a call");
    Scripted implementations(on.clock, {30, 10});
    const ChoiceKey key = on.Key(std::to_string(call));
    const auto choice = on.tuner.Choose(key, kMemory, implementations);
    REQUIRE(choice.ok());
    CHECK(choice->timed() == (call == 0));
    CHECK(implementations.chosen == (call == 0 ? 1 : 0));
    on.tuner.End();
    CHECK(Tuned({.cache = &*kept.cache}).tuner.Recall(key).has_value() == (call == 0));
    // A layer like it asks for nothing more.
    CHECK(on.tuner.Recall(key)->timed() == (call == 0));
  }
  CHECK(on.tuner.choices().size() == 1);
  CHECK(on.tuner.TakeNotes() ==
        std::vector<std::string>{
            "the tuning budget of 1e-09 s is used up: 2 kinds of library calls take "
            "the default, untimed"});
  CHECK(on.tuner.TakeNotes().empty());
  // The devices of one caller share it.
  Tuned beside({.tuning = tuning});
  Scripted implementations(beside.clock, {30, 10});
  CHECK_FALSE(beside.tuner.ChooseFastest(on.Key(), kMemory, implementations)->timed());
}

TEST_CASE("a choice tells the plans' calls that it serves") {
  Tuned on;
  on.tuner.Begin("first");
  Scripted implementations(on.clock, {30, 10});
  REQUIRE(on.tuner.Choose(on.Key(), kMemory, implementations).ok());
  on.tuner.End();
  on.tuner.Begin("second");
  on.tuner.Uses(on.Key());
  on.tuner.End();
  on.tuner.Uses(on.Key());  // of no call
  CHECK(on.tuner.choices().at(on.Key()).uses == std::set<std::string>{"first", "second"});
}

// What every device has run so far; past `most` runs none does anything, as of a process that was
// killed.
class Mortal : public Scripted {
 public:
  Mortal(Clock& clock, std::vector<double> us, int* left)
      : Scripted(clock, std::move(us)), left_(left) {}
  absl::Status Run(const CallPointers& pointers, void* workspace) override {
    if (--*left_ < 0) return absl::CancelledError("killed");
    return Scripted::Run(pointers, workspace);
  }

 private:
  int* const left_;
};

TEST_CASE(
    "killed at any moment, it measures nothing again that it had found, and chooses the same") {
  const std::vector<std::vector<double>> calls = {{30, 10}, {10, 30, 20}, {7}, {9, 9, 5}};
  // The choices of a process that may run so many times; false where it was killed.
  const auto tune = [&](const ModuleCache* cache, int most, std::vector<std::string>* chosen,
                        std::vector<int>* runs) {
    Tuned on({.cache = cache});
    for (size_t call = 0; call < calls.size(); ++call) {
      Mortal implementations(on.clock, calls[call], &most);
      const auto choice = on.tuner.Choose(on.Key(std::to_string(call)), kMemory, implementations);
      runs->push_back(implementations.runs);
      if (!choice.ok() || most < 0) return false;
      chosen->push_back(choice->name());
    }
    return true;
  };
  std::vector<std::string> whole;
  std::vector<int> all_runs;
  REQUIRE(tune(nullptr, 1 << 30, &whole, &all_runs));
  CHECK(whole == std::vector<std::string>{"1", "0", "0", "2"});
  int total = 0;
  for (const int runs : all_runs) total += runs;
  for (int most = 0; most <= total; ++most) {
    const Cache kept;
    std::vector<std::string> chosen;
    std::vector<int> before, after;
    const bool ended = tune(&*kept.cache, most, &chosen, &before);
    CHECK(ended == (most == total));
    const size_t found = chosen.size();
    chosen.clear();
    REQUIRE(tune(&*kept.cache, 1 << 30, &chosen, &after));
    CHECK(chosen == whole);
    for (size_t call = 0; call < calls.size(); ++call) {
      CHECK((after[call] == 0) == (call < found));
    }
  }
}

}  // namespace
}  // namespace retrograd
