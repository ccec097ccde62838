#include "fusion/ops/attention/attention_call.h"

#include <optional>

#include "graph/base/status.h"

namespace retrograd {

AttentionCall AttentionOf(const Call& call) {
  return {.node = call.node,
          .dtype = call.operands[0].dtype,
          .scale = call.attributes.Float("scale", 1),
          .causal = call.attributes.Int("causal") != 0,
          .dropout_p = call.attributes.Float("dropout_p"),
          .variant = std::string(call.attributes.String("variant")),
          .operands = call.operands,
          .results = call.results};
}

size_t AttentionSeed(const AttentionCall& call) {
  return call.operands.size() - (call.dropout_p > 0 ? 2 : 0);
}

bool HasBias(const AttentionCall& call) { return AttentionSeed(call) > kAttentionBias; }

bool HasScoreGradient(const AttentionCall& call) { return call.results.size() > kScoreGradient; }

DropoutVariant DropoutOf(const AttentionCall& call) {
  const std::optional<DropoutVariant> variant = DropoutVariantOf(call.variant);
  RG_CHECK(call.dropout_p > 0 && variant.has_value());
  return *variant;
}

}  // namespace retrograd
