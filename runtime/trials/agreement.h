// Whether the implementations of a library call make the same numbers. A library's implementation
// that computes something else returns no error: only the others tell.
#ifndef RETROGRAD_RUNTIME_TRIALS_AGREEMENT_H_
#define RETROGRAD_RUNTIME_TRIALS_AGREEMENT_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "runtime/device/device.h"
#include "runtime/trials/call_memory.h"

namespace retrograd {

// Gives floating operands numbers of [-1, 1), the same for each trial and others for each operand,
// or the one that they hold in a trial; and operands of other types zeros.
absl::Status DrawOperands(Device& device, const CallMemory& memory, const CallPointers& pointers);

// Floating results: all of those of 2^18 elements at most, 64 parts of others, the first and the
// last elements among them.
class ResultSample {
 public:
  ResultSample(Device& device, const CallMemory& memory) : device_(device), memory_(memory) {}
  // NaN where the sample is taken, so that what an implementation does not write is seen; zeros in
  // results that are added to.
  absl::Status Clear(const CallPointers& pointers);
  // Of work that has ended.
  absl::StatusOr<std::vector<float>> Read(const CallPointers& pointers);

 private:
  Device& device_;
  const CallMemory& memory_;
};

// Whether both are roundings of the same numbers: both are finite at the same elements, differ
// there by 1/32 of the larger one's norm at most, and no element by more than 1/4 of the largest.
// Results rounded to bf16 from sums in fp32, in other orders, differ by about 1/300 of the norm;
// those without anything in common by 1.4.
bool Agree(absl::Span<const float> a, absl::Span<const float> b);

// What one implementation made.
struct MadeNumbers {
  std::string engine;  // implementations of one engine are likely to share its faults
  std::vector<float> numbers;
};

struct Agreement {
  size_t kept = 0;  // agrees with implementations of most engines, the first of such
  std::vector<size_t> disagreeing;  // with that one; ascending
};
Agreement AgreementOf(absl::Span<const MadeNumbers> made);

}  // namespace retrograd

#endif  // RETROGRAD_RUNTIME_TRIALS_AGREEMENT_H_
