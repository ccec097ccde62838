// How well prices choose among the schedules of a kernel: what the chosen one takes beside the best
// of those that were timed.
#ifndef RETROGRAD_TOOLS_FIT_SCHEDULE_REGRET_H_
#define RETROGRAD_TOOLS_FIT_SCHEDULE_REGRET_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"

namespace retrograd {

// Schedules of one kernel, each in the same place of both.
struct TimedSchedules {
  std::vector<double> predicted_us, measured_us;
};

// The time of the schedule with the least predicted time, beside the least time: 1 is none lost.
double RegretOf(const TimedSchedules& kernel);

struct RankingError {
  int64_t kernels = 0, schedules = 0;
  double mean_regret = 1, worst_regret = 1;
  int64_t pairs = 0;       // of schedules of one kernel whose times differ by more than kPairShare
  double right_order = 1;  // share of them whose predicted times are in the measured order
  double error = 0;        // mean of |log(predicted / measured)|
};
RankingError RankingErrorOf(absl::Span<const TimedSchedules> kernels);
std::string PrintRankingError(const RankingError& error);

}  // namespace retrograd

#endif  // RETROGRAD_TOOLS_FIT_SCHEDULE_REGRET_H_
