// Integer arithmetic of prices: parts per million, and products that saturate instead of
// overflowing.
#ifndef RETROGRAD_FUSION_KERNEL_IR_SCALE_H_
#define RETROGRAD_FUSION_KERNEL_IR_SCALE_H_

#include <algorithm>
#include <cstdint>
#include <initializer_list>

#include "absl/numeric/int128.h"

namespace retrograd {

inline constexpr int64_t kPpm = 1'000'000;

// Far beyond any time or count that is ever compared; sums of many stay in range.
inline constexpr int64_t kHuge = int64_t{1} << 56;

inline int64_t Saturated(int64_t a) { return std::min(a, kHuge); }

inline int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// ceil(a * b / c), at most kHuge. None is negative.
inline int64_t MulDiv(int64_t a, int64_t b, int64_t c) {
  int64_t product;
  if (!__builtin_mul_overflow(a, b, &product) && product <= kHuge) {
    return c == 1 ? product : CeilDiv(product, c);
  }
  const absl::uint128 wide = absl::uint128(static_cast<uint64_t>(a)) * static_cast<uint64_t>(b);
  const absl::uint128 quotient = (wide + static_cast<uint64_t>(c) - 1) / static_cast<uint64_t>(c);
  return quotient > absl::uint128(kHuge) ? kHuge : static_cast<int64_t>(quotient);
}

// Parts per million of a, rounded down, at most kHuge where the product would overflow. Neither is
// negative.
inline int64_t Share(int64_t a, int64_t ppm) {
  int64_t product;
  if (!__builtin_mul_overflow(a, ppm, &product)) return product / kPpm;
  const absl::uint128 wide = absl::uint128(static_cast<uint64_t>(a)) * static_cast<uint64_t>(ppm);
  return static_cast<int64_t>(std::min(wide / static_cast<uint64_t>(kPpm), absl::uint128(kHuge)));
}

inline constexpr int64_t kPsPerSecond = 1'000'000'000'000;

// At most kHuge.
inline int64_t Product(std::initializer_list<int64_t> factors) {
  int64_t product = 1;
  for (int64_t f : factors) product = MulDiv(product, f, 1);
  return product;
}

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_KERNEL_IR_SCALE_H_
