#include "runtime/ops/attention/attention_facts.h"

#include "absl/strings/str_format.h"

namespace retrograd {

AttentionRequest::AttentionRequest(const Call& from)
    : call(AttentionOf(from)), dropout_p(from.attributes.Float("dropout_p")) {
  for (const CallTensor& operand : from.operands) dtypes.push_back(operand.dtype);
}

absl::Status CheckDropout(const Call& call) {
  const double dropout_p = call.attributes.Float("dropout_p");
  const absl::string_view variant = call.attributes.String("variant");
  if (dropout_p == 0 || variant == "cudnn") return absl::OkStatus();
  return absl::UnimplementedError(absl::StrFormat(
      "attention_backward %%%d drops out with p = %g by the random numbers of the framework's "
      "implementation \"%s\", and only cuDNN's can be drawn again: run the model's forward under "
      "torch.nn.attention.sdpa_kernel(SDPBackend.CUDNN_ATTENTION), or with dropout 0",
      Index(call.node), dropout_p, variant));
}

}  // namespace retrograd
