#include "runtime/ops/attention/attention_facts.h"

#include <cmath>

#include "absl/algorithm/container.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace retrograd {

AttentionRequest::AttentionRequest(const Call& from, const CallFacts& known)
    : call(AttentionOf(from)), alignment(known.operand_alignment) {
  for (const CallTensor& operand : from.operands) dtypes.push_back(operand.dtype);
}

StoredValues TrialOperand(const AttentionCall& call, const AttentionFacts& facts, size_t i) {
  constexpr size_t kK = 2, kLse = 5;
  StoredValues stored{.dtype = facts.operand_dtypes[i], .elements = SpanOf(call.operands[i])};
  if (i == kLse) stored.number = std::log(static_cast<double>(call.operands[kK].shape[2]));
  return stored;
}

absl::Status CheckDropout(const AttentionRequest& request) {
  const AttentionCall& call = request.call;
  if (call.dropout_p == 0) return absl::OkStatus();
  if (!DropoutVariantOf(call.variant).has_value()) {
    return absl::UnimplementedError(absl::StrFormat(
        "attention_backward %%%d drops out with p = %g by the random numbers of the framework's "
        "implementation \"%s\", which are not known; those of \"cudnn\", \"flash\" and "
        "\"efficient\" are: choose one of these for the model's forward by "
        "torch.nn.attention.sdpa_kernel, or run it with dropout 0",
        Index(call.node), call.dropout_p, call.variant));
  }
  for (size_t i = AttentionSeed(call); i < call.operands.size(); ++i) {
    const Shape& shape = call.operands[i].shape;
    const DType dtype = request.dtypes[i];
    if (absl::c_all_of(shape, [](int64_t n) { return n == 1; }) &&
        (dtype == DType::kInt64 || dtype == DType::kInt32)) {
      continue;
    }
    return absl::UnimplementedError(absl::StrFormat(
        "attention_backward %%%d needs one integer of 32 or 64 bits as dropout's %s, not %s[%s]",
        Index(call.node), i == AttentionSeed(call) ? "seed" : "offset", Name(dtype),
        absl::StrJoin(shape, ",")));
  }
  return absl::OkStatus();
}

}  // namespace retrograd
