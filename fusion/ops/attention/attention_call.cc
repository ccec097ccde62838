#include "fusion/ops/attention/attention_call.h"

namespace retrograd {

AttentionCall AttentionOf(const Call& call) {
  return {.node = call.node,
          .dtype = call.operands[0].dtype,
          .scale = call.attributes.Float("scale", 1),
          .causal = call.attributes.Int("causal") != 0,
          .operands = call.operands,
          .results = call.results};
}

}  // namespace retrograd
