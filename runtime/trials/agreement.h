// Whether the implementations of a library call make the same numbers. A library's implementation
// that computes something else returns no error: only the others tell.
#ifndef RETROGRAD_RUNTIME_TRIALS_AGREEMENT_H_
#define RETROGRAD_RUNTIME_TRIALS_AGREEMENT_H_

#include <cstddef>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "runtime/device/device.h"
#include "runtime/trials/call_memory.h"

namespace retrograd {

// Gives floating operands numbers of [-1, 1), the same each time, and others zeros.
absl::Status DrawOperands(Device& device, const CallMemory& memory, const CallPointers& pointers);

// Floating results: all of those of 2^18 elements at most, 64 parts of others, the first and the
// last among them. What is no number counts as 0, as its absence does.
class ResultSample {
 public:
  ResultSample(Device& device, const CallMemory& memory) : device_(device), memory_(memory) {}
  // Zeros where the sample is taken, so that what an implementation does not write is seen.
  absl::Status Clear(const CallPointers& pointers);
  // Waits for nothing: the work has ended.
  absl::StatusOr<std::vector<float>> Read(const CallPointers& pointers);

 private:
  Device& device_;
  const CallMemory& memory_;
};

// Whether both are roundings of the same numbers: they differ by 1/32 of the larger one's norm at
// most, and no element by more than 1/4 of the largest. Results rounded to bf16 from sums in fp32,
// in other orders, differ by about 1/300 of the norm; those without anything in common by 1.4.
bool Agree(absl::Span<const float> a, absl::Span<const float> b);

// The places of those that do not agree with the one that agrees with most, of several such ones
// the first. Ascending.
std::vector<size_t> Disagreeing(absl::Span<const std::vector<float>> samples);

}  // namespace retrograd

#endif  // RETROGRAD_RUNTIME_TRIALS_AGREEMENT_H_
