// Which of several ways to do the same work is the fastest, by repeated times that are noisy. The
// first way is the default: another one is taken only where the times leave no doubt.
#ifndef RETROGRAD_RUNTIME_TRIALS_RACE_H_
#define RETROGRAD_RUNTIME_TRIALS_RACE_H_

#include <cstddef>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"

namespace retrograd {

struct RaceOptions {
  // Of taking a runner that is not faster than the default, for each test of one.
  double error = 1e-4;
  // What a runner must win, as a part of the default's time. What a call takes in a row of its own
  // need not be what it takes in a backward: on an H100 a choice that won 2.7% alone made a
  // backward 2.5% slower (docs/decisions/039-measured-calls.md).
  double least_win = 0.03;
  // A runner that was slower than the leader by this part in each of the first rounds is out.
  double hopeless = 0.10;
  int most_rounds = 32;
};

struct RaceResult {
  size_t winner = 0;
  std::vector<double> us;  // the median of each runner's times
};

// `sample` gives one time of a runner, in microseconds, under equal conditions each time. Runners
// take turns, so that slow changes of the device's speed meet all of them alike. An error of
// `sample` ends the race.
absl::StatusOr<RaceResult> Race(size_t runners,
                                absl::FunctionRef<absl::StatusOr<double>(size_t runner)> sample,
                                const RaceOptions& options = {});

// The probability that two samples of equally fast runners, of n times each, have at most
// `inversions` pairs in which the one of the first runner is not the shorter one (Mann and Whitney,
// On a test of whether one of two random variables is stochastically larger than the other, 1947).
double RankSumError(int n, int inversions);

}  // namespace retrograd

#endif  // RETROGRAD_RUNTIME_TRIALS_RACE_H_
