// What the implementations of attention's backward are told beside the call itself.
#ifndef RETROGRAD_RUNTIME_OPS_ATTENTION_ATTENTION_FACTS_H_
#define RETROGRAD_RUNTIME_OPS_ATTENTION_ATTENTION_FACTS_H_

#include <vector>

#include "absl/status/status.h"
#include "fusion/ops/attention/attention_call.h"
#include "runtime/device/device.h"
#include "runtime/trials/call_memory.h"

namespace retrograd {

// Addresses of the stored values' first elements.
struct AttentionPointers {
  absl::Span<const void* const> operands;
  absl::Span<const DType> operand_dtypes;  // the log-sum-exp's and the bias's may be wider
  absl::Span<void* const> results;
};

struct AttentionFacts {
  absl::Span<const DType> operand_dtypes;  // the log-sum-exp's and the bias's may be wider
  // Bytes known to divide the operands' addresses; an element's size where it is empty.
  absl::Span<const int64_t> operand_alignment = {};
};

// A call with its operands' dtypes in one list, as the implementations take them.
struct AttentionRequest {
  AttentionRequest(const Call& from, const CallFacts& known);
  AttentionFacts facts() const { return {dtypes, alignment}; }
  AttentionPointers PointersOf(const CallPointers& pointers) const {
    return {pointers.operands, dtypes, pointers.results};
  }

  AttentionCall call;
  std::vector<DType> dtypes;
  std::vector<int64_t> alignment;
};

// What operand i holds in a trial: of the log-sum-exp numbers by which all probabilities are of the
// order of 1 / keys.
StoredValues TrialOperand(const AttentionCall& call, const AttentionFacts& facts, size_t i);

// Unimplemented for a call that drops out by random numbers whose generator is not known, or whose
// seed or offset is not one integer of 32 or 64 bits.
absl::Status CheckDropout(const AttentionRequest& request);

}  // namespace retrograd

#endif  // RETROGRAD_RUNTIME_OPS_ATTENTION_ATTENTION_FACTS_H_
