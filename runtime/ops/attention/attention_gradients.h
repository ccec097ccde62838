// Whether two implementations of attention's backward agree: a trial run on a device.
#ifndef RETROGRAD_RUNTIME_OPS_ATTENTION_ATTENTION_GRADIENTS_H_
#define RETROGRAD_RUNTIME_OPS_ATTENTION_ATTENTION_GRADIENTS_H_

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/device/device.h"
#include "runtime/ops/attention/attention_facts.h"

namespace retrograd {

// Writes random numbers into all operands of the device's memory but the bias: dO, Q, K, V and O in
// [-1, 1), a log-sum-exp that makes all probabilities of the order of 1 / keys, a seed, an offset.
absl::Status FillAttention(Device& device, const AttentionCall& call, const AttentionFacts& facts,
                           const CallPointers& pointers);

// The elements of dQ, dK and dV that lie in the 16 MiB from the first one of each on. What lies
// between them, where a gradient is a part of another tensor, is left out: nobody writes it.
using Gradients = std::vector<std::vector<float>>;
absl::StatusOr<Gradients> GradientsOf(Device& device, const AttentionCall& call,
                                      const CallPointers& pointers);

// OK, or Unimplemented where |ours - theirs| / |theirs| of one of the gradients is above 2%: more
// than 16 bits and another order of sums explain, less than another dropout mask makes.
absl::Status SameGradients(const AttentionCall& call, const Gradients& ours,
                           const Gradients& theirs);

}  // namespace retrograd

#endif  // RETROGRAD_RUNTIME_OPS_ATTENTION_ATTENTION_GRADIENTS_H_
