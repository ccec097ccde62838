// The decision rule among implementations, against simulated noisy timers.
#include "runtime/gpu/race.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "tests/catch.h"

namespace retrograd {
namespace {

// A device whose speed drifts, whose times scatter, and which is disturbed from time to time.
class NoisyTimer {
 public:
  NoisyTimer(std::mt19937_64& random, std::vector<double> us)
      : random_(random),
        us_(std::move(us)),
        scatter_(Uniform(0.001, 0.04)),
        disturbed_(Uniform(0, 0.1)),
        drift_(Uniform(0, 0.01)),
        tick_(Uniform(0, 0.05) * us_[0]) {}

  double operator()(size_t runner) {
    speed_ += std::normal_distribution<double>(0, drift_)(random_) - 0.05 * speed_;
    double us = us_[runner] * std::exp(speed_ + scatter_ * normal_(random_));
    if (Uniform(0, 1) < disturbed_) us *= Uniform(1.05, 3);
    return tick_ > 0 ? std::round(us / tick_) * tick_ : us;
  }

 private:
  double Uniform(double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(random_);
  }

  std::mt19937_64& random_;
  const std::vector<double> us_;
  std::normal_distribution<double> normal_;
  double scatter_, disturbed_, drift_, tick_, speed_ = 0;
};

RaceResult RaceOf(NoisyTimer& timer, size_t runners, int* samples = nullptr) {
  const auto result = Race(runners, [&](size_t runner) -> absl::StatusOr<double> {
    if (samples != nullptr) ++*samples;
    return timer(runner);
  });
  REQUIRE(result.ok());
  return *result;
}

// How far the others' times are from the default's: as parts of it.
std::vector<double> TimesOf(std::mt19937_64& random, double nearest, double spread) {
  std::uniform_real_distribution<double> uniform(0, 1);
  std::vector<double> us = {std::exp(std::log(2000) * uniform(random))};
  const int others = std::uniform_int_distribution<int>(1, 8)(random);
  for (int i = 0; i < others; ++i) us.push_back(us[0] * (1 + nearest + spread * uniform(random)));
  return us;
}

TEST_CASE("of 10,000 shapes fewer than 10 get an implementation slower than the default by 1%") {
  const uint64_t seed = std::random_device()();
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  constexpr int kShapes = 10000;
  int slower = 0;
  for (int shape = 0; shape < kShapes; ++shape) {
    // All others slower by little more than what counts: the hardest; and some of them faster.
    const bool hardest = shape % 2 == 0;
    const std::vector<double> us = TimesOf(random, hardest ? 0.0101 : -0.1, hardest ? 0.02 : 0.3);
    NoisyTimer timer(random, us);
    slower += us[RaceOf(timer, us.size()).winner] > 1.01 * us[0];
  }
  CHECK(slower < kShapes / 1000);
}

TEST_CASE("what is chosen is within 2% of the best on average") {
  const uint64_t seed = std::random_device()();
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  constexpr int kShapes = 2000;
  double regret = 0;
  for (int shape = 0; shape < kShapes; ++shape) {
    const std::vector<double> us = TimesOf(random, -0.3, 0.6);
    NoisyTimer timer(random, us);
    regret += us[RaceOf(timer, us.size()).winner] / *std::min_element(us.begin(), us.end()) - 1;
  }
  CHECK(regret / kShapes < 0.02);
}

TEST_CASE("what is plain takes few times, and what nobody can tell apart stays with the default") {
  std::mt19937_64 random(7);
  NoisyTimer slow(random, {100, 150, 200, 300});
  int samples = 0;
  CHECK(RaceOf(slow, 4, &samples).winner == 0);
  CHECK(samples <= 4 * 8);
  NoisyTimer equal(random, {100, 100, 100});
  CHECK(RaceOf(equal, 3).winner == 0);
  NoisyTimer alone(random, {100});
  samples = 0;
  CHECK(RaceOf(alone, 1, &samples).winner == 0);
  CHECK(samples == 3);
}

TEST_CASE("times are each runner's median, also of one that is out early") {
  double now = 0;
  const auto result = Race(2, [&](size_t runner) -> absl::StatusOr<double> {
    now += 1;
    return runner == 0 ? 100 + now / 10 : 500;
  });
  REQUIRE(result.ok());
  CHECK(result->us[1] == 500);
  CHECK(result->us[0] > 100);
  CHECK(result->us[0] < 101);
}

TEST_CASE("an error of a timer ends the race") {
  int calls = 0;
  const auto result = Race(3, [&](size_t) -> absl::StatusOr<double> {
    if (++calls == 5) return absl::InternalError("device lost");
    return 1;
  });
  CHECK(result.status() == absl::InternalError("device lost"));
  CHECK(calls == 5);
}

TEST_CASE("the error of a rank sum is that of all orders counted") {
  CHECK(RankSumError(1, 0) == 0.5);
  CHECK(RankSumError(2, 0) == Approx(1.0 / 6));
  CHECK(RankSumError(3, 1) == Approx(2.0 / 20));
  CHECK(RankSumError(4, 16) == Approx(1));
  CHECK(RankSumError(8, 0) == Approx(1.0 / 12870));
  // By hand: of 4 against 4, 0 to 3 inversions have 1, 1, 2 and 3 orders.
  CHECK(RankSumError(4, 3) == Approx(7.0 / 70));
}

}  // namespace
}  // namespace retrograd
