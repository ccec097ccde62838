// The decision rule among implementations, against simulated noisy timers.
#include "runtime/trials/race.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "tests/catch.h"

namespace retrograd {
namespace {

// What disturbs the times of a device.
enum class Noise {
  kMixed,       // scatter, a speed that wanders, disturbances, a clock with steps: all a little
  kHeavyTails,  // most times are good, and some are longer by any factor
  kDrift,       // the speed falls or rises all the time, by half or more in a race
  kThrottling,  // the speed jumps between two, and stays for a while
};

class NoisyTimer {
 public:
  NoisyTimer(std::mt19937_64& random, std::vector<double> us, Noise noise = Noise::kMixed)
      : random_(random),
        us_(std::move(us)),
        noise_(noise),
        scatter_(Uniform(0.001, 0.04)),
        disturbed_(Uniform(0, 0.1)),
        drift_(Uniform(0, 0.01)),
        tick_(Uniform(0, 0.05) * us_[0]),
        slope_(Uniform(-1, 1) / (32 * static_cast<double>(us_.size()))) {}

  double operator()(size_t runner) {
    double us = us_[runner] * std::exp(scatter_ * normal_(random_));
    switch (noise_) {
      case Noise::kMixed:
        speed_ += std::normal_distribution<double>(0, drift_)(random_) - 0.05 * speed_;
        if (Uniform(0, 1) < disturbed_) us *= Uniform(1.05, 3);
        break;
      case Noise::kHeavyTails:  // Pareto's distribution, without a variance
        us *= 1 + 0.01 * std::pow(Uniform(1e-9, 1), -1 / 1.1);
        break;
      case Noise::kDrift: speed_ += slope_; break;
      case Noise::kThrottling:
        if (Uniform(0, 1) < 0.05) speed_ = speed_ == 0 ? 0.3 : 0;
        break;
    }
    us *= std::exp(speed_);
    return tick_ > 0 && noise_ == Noise::kMixed ? std::round(us / tick_) * tick_ : us;
  }

 private:
  double Uniform(double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(random_);
  }

  std::mt19937_64& random_;
  const std::vector<double> us_;
  const Noise noise_;
  std::normal_distribution<double> normal_;
  double scatter_, disturbed_, drift_, tick_, slope_, speed_ = 0;
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
  const Noise noise =
      GENERATE(Noise::kMixed, Noise::kHeavyTails, Noise::kDrift, Noise::kThrottling);
  const uint64_t seed = std::random_device()();
  INFO("noise " << static_cast<int>(noise) << ", seed " << seed);
  std::mt19937_64 random(seed);
  constexpr int kShapes = 10000;
  int slower = 0;
  for (int shape = 0; shape < kShapes; ++shape) {
    // All others slower by little more than what counts: the hardest; and some of them faster.
    const bool hardest = shape % 2 == 0;
    const std::vector<double> us = TimesOf(random, hardest ? 0.0101 : -0.1, hardest ? 0.02 : 0.3);
    NoisyTimer timer(random, us, noise);
    slower += us[RaceOf(timer, us.size()).winner] > 1.01 * us[0];
  }
  CHECK(slower < kShapes / 1000);
}

TEST_CASE("of 10,000 shapes of equally fast implementations 9,900 keep the default") {
  const Noise noise =
      GENERATE(Noise::kMixed, Noise::kHeavyTails, Noise::kDrift, Noise::kThrottling);
  const uint64_t seed = std::random_device()();
  INFO("noise " << static_cast<int>(noise) << ", seed " << seed);
  std::mt19937_64 random(seed);
  constexpr int kShapes = 10000;
  int kept = 0;
  for (int shape = 0; shape < kShapes; ++shape) {
    const std::vector<double> us(std::uniform_int_distribution<size_t>(2, 8)(random), 100);
    NoisyTimer timer(random, us, noise);
    kept += RaceOf(timer, us.size()).winner == 0;
  }
  CHECK(kept >= kShapes - kShapes / 100);
}

TEST_CASE("a candidate that takes half the time is found through any noise") {
  const Noise noise =
      GENERATE(Noise::kMixed, Noise::kHeavyTails, Noise::kDrift, Noise::kThrottling);
  const uint64_t seed = std::random_device()();
  INFO("noise " << static_cast<int>(noise) << ", seed " << seed);
  std::mt19937_64 random(seed);
  int found = 0;
  for (int shape = 0; shape < 1000; ++shape) {
    NoisyTimer timer(random, {100, 100, 50}, noise);
    found += RaceOf(timer, 3).winner == 2;
  }
  CHECK(found >= 990);
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

TEST_CASE("what wins less than 3% does not count, and what wins 5% is found") {
  const uint64_t seed = std::random_device()();
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  int small = 0, large = 0;
  for (int shape = 0; shape < 1000; ++shape) {
    const auto by = [&](double us) {
      std::normal_distribution<double> scatter(0, 0.003);
      const auto result = Race(2, [&](size_t runner) -> absl::StatusOr<double> {
        return (runner == 0 ? 100 : us) * std::exp(scatter(random));
      });
      REQUIRE(result.ok());
      return result->winner == 1;
    };
    small += by(98);
    large += by(95);
  }
  CHECK(small == 0);
  CHECK(large >= 990);
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
