#include "runtime/tuning/extent_class.h"

#include <bit>
#include <numeric>

namespace retrograd {
namespace {

int64_t Octave(int64_t extent) {
  return static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(extent)));
}

}  // namespace

int64_t ExtentOfClass(int64_t extent, int64_t alignment) {
  if (extent < 64) return extent;
  const int64_t eights = extent / 8 * 8;
  const int64_t step = Octave(eights) / 4;
  return (eights + step / 2) / step * step + std::gcd(extent, alignment) % alignment;
}

int64_t LargestOfClass(int64_t extent, int64_t alignment) {
  if (extent < 64) return extent;
  const int64_t odd = std::gcd(extent, alignment) % alignment;
  const int64_t step = Octave(extent - odd) / 8;
  return (extent - odd + step - 1) / step * step + odd;
}

int64_t CountOfClass(int64_t count) {
  if (count < 4) return count;
  const int64_t step = Octave(count) / 2;
  return (count + step / 2) / step * step;
}

}  // namespace retrograd
