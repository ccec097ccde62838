// The choice among implementations of a call: by time, remembered, and without a fault of one of
// them spoiling the others.
#include "runtime/gpu/autotune.h"

#include <chrono>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "tests/catch.h"
#include "tests/support/reporting_device.h"

namespace retrograd {
namespace {

// Takes as long as the work says.
class Clock : public ReportingDevice {
 public:
  Clock() : ReportingDevice({}) {}
  absl::Status UseStream(std::optional<void*> native) override {
    CHECK_FALSE(native.has_value());
    return absl::OkStatus();
  }
  absl::StatusOr<void*> Allocate(int64_t bytes) override {
    if (bytes > most_bytes) return absl::ResourceExhaustedError("no memory");
    ++alive;
    return ReportingDevice::Allocate(bytes);
  }
  void Free(void* data) override {
    --alive;
    ReportingDevice::Free(data);
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
    if (us_[chosen] < 0) return absl::InternalError("fails");
    clock_.now_us += us_[chosen];
    return absl::OkStatus();
  }
  absl::Status Check(const CallPointers&) override {
    CHECK(runs > 0);
    return chosen == wrong ? absl::UnimplementedError("other numbers") : absl::OkStatus();
  }
  absl::StatusOr<std::string> Serialize() const override {
    return std::string("number\n") + std::to_string(chosen);
  }

  int wrong = -1;  // whose results are not to be used
  int chosen = -1, runs = 0;
  std::vector<int> runs_of;

 private:
  Clock& clock_;
  const std::vector<double> us_;
};

const CallMemory kMemory = {.operands = {128, 256}, .results = {512}};

TEST_CASE("the fastest implementation is chosen, whatever the others do") {
  Clock clock;
  Scripted implementations(clock, {30, 0, 10, -1, 20});
  const auto times = ChooseFastest(clock, {}, "key", kMemory, implementations);
  REQUIRE(times.ok());
  CHECK(implementations.chosen == 2);
  CHECK(times->us == std::vector<double>{30, 0, 10, 0, 20});
  CHECK(times->least_us() == 10);
  CHECK(times->chosen == "number\n2");
  CHECK(clock.alive == 0);
}

TEST_CASE("an implementation that is out of the race is run twice, wherever it stands") {
  Clock clock;
  Scripted behind(clock, {10, 5000, 8});
  const auto times = ChooseFastest(clock, {}, "key", kMemory, behind);
  REQUIRE(times.ok());
  CHECK(behind.chosen == 2);
  CHECK(behind.runs_of[1] == 2);
  CHECK(times->us[1] >= 5000);
  Scripted first(clock, {5000, 10});
  REQUIRE(ChooseFastest(clock, {}, "key", kMemory, first).ok());
  CHECK(first.chosen == 1);
}

TEST_CASE("where none runs the last reason is the answer, and no memory stays taken") {
  Clock clock;
  Scripted implementations(clock, {0, -1});
  const auto times = ChooseFastest(clock, {}, "key", kMemory, implementations);
  CHECK(times.status() == absl::InternalError("fails"));
  CHECK(clock.alive == 0);
}

TEST_CASE("the first of equally fast implementations is chosen, whichever ran last") {
  Clock clock;
  for (const std::vector<double>& us : {std::vector<double>{10, 10}, {10, 10, 10}, {9.95, 10}}) {
    Scripted implementations(clock, us);
    REQUIRE(ChooseFastest(clock, {}, "key", kMemory, implementations).ok());
    CHECK(implementations.chosen == 0);
  }
}

TEST_CASE("an implementation that wrote what it must not is out, fast as it is") {
  Clock clock;
  Scripted implementations(clock, {30, 10});
  implementations.wrong = 1;
  const auto times = ChooseFastest(clock, {}, "key", kMemory, implementations);
  REQUIRE(times.ok());
  CHECK(implementations.chosen == 0);
  CHECK(times->us == std::vector<double>{30, 0});
  Scripted alone(clock, {10});
  alone.wrong = 0;
  CHECK(ChooseFastest(clock, {}, "key", kMemory, alone).status() ==
        absl::UnimplementedError("other numbers"));
  CHECK(clock.alive == 0);
}

TEST_CASE("without timing, or without the memory for it, the first one stays") {
  Clock clock;
  clock.most_bytes = 300;
  for (const bool time : {false, true}) {
    Scripted implementations(clock, {30, 10});
    const auto times = ChooseFastest(clock, {.time = time}, "key", kMemory, implementations);
    REQUIRE(times.ok());
    CHECK(implementations.chosen == 0);
    CHECK(implementations.runs == 0);
    CHECK(times->us.empty());
    CHECK(times->least_us() == 0);
    CHECK(clock.alive == 0);
  }
}

TEST_CASE("times are remembered by their key, in any process, and only where timing is on") {
  const auto directory = WorkDirectory::MakeIn(std::filesystem::temp_directory_path().string());
  REQUIRE(directory.ok());
  const auto cache = ModuleCache::Open(directory->path() + "/cache", int64_t{1} << 30);
  REQUIRE(cache.ok());
  const AutotuneOptions options{.cache = &*cache};
  CHECK_FALSE(RecallTimes(options, "key").has_value());
  Clock clock;
  Scripted implementations(clock, {30.25, 0, 1.0 / 3});
  const auto times = ChooseFastest(clock, options, "key", kMemory, implementations);
  REQUIRE(times.ok());
  const auto known = RecallTimes(options, "key");
  REQUIRE(known.has_value());
  CHECK(known->us == times->us);
  CHECK(known->chosen == "number\n2");
  CHECK_FALSE(RecallTimes(options, "another key").has_value());
  CHECK_FALSE(RecallTimes({.cache = &*cache, .time = false}, "key").has_value());
}

}  // namespace
}  // namespace retrograd
