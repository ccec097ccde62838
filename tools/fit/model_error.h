// How far predicted times are from measured ones.
#ifndef RETROGRAD_TOOLS_FIT_MODEL_ERROR_H_
#define RETROGRAD_TOOLS_FIT_MODEL_ERROR_H_

#include <cstdint>
#include <string>
#include <vector>

namespace retrograd {

// A step of a plan: a kernel or a library call.
struct ModelRow {
  uint32_t group = 0;
  std::string kind, ops, how;
  double predicted_us = 0;
  double alone_us = 0;   // run again and again by itself
  double within_us = 0;  // within a run of the whole; 0: not seen
  int64_t read_bytes = 0, written_bytes = 0;
};

// Short times are launches and noise: only steps that take longer than this count.
inline constexpr double kLeastCountedUs = 10;
// Two steps whose measured times differ by no more are in no order.
inline constexpr double kPairShare = 0.05;

struct ModelError {
  int64_t steps = 0;         // counted
  double mean_absolute = 0;  // of |predicted - measured| / measured
  double mean_signed = 0;    // positive: predicted too long
  int64_t pairs = 0;         // of counted steps that differ
  double right_order = 1;    // share of them whose predictions are in the measured order
};

ModelError ErrorOf(const std::vector<double>& predicted, const std::vector<double>& measured);

}  // namespace retrograd

#endif  // RETROGRAD_TOOLS_FIT_MODEL_ERROR_H_
