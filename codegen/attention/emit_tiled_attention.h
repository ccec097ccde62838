// Attention's backward on Hopper's tensor cores (codegen/preludes/attention_prelude.h): bf16 or
// fp16, heads of 64 or 128, causal or not, groups of heads that share keys, any lengths, a bias,
// the gradient of scores. Sums have a fixed order: two runs give the same bits.
#ifndef RETROGRAD_CODEGEN_ATTENTION_EMIT_TILED_ATTENTION_H_
#define RETROGRAD_CODEGEN_ATTENTION_EMIT_TILED_ATTENTION_H_

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "codegen/attention/emit_attention.h"
#include "fusion/ops/attention/attention_tiles.h"

namespace retrograd {

// OK, or Unimplemented with the reason for what these kernels do not take.
absl::Status TiledAttentionRefusal(const AttentionCall& call,
                                   absl::Span<const DType> operand_dtypes);

// Of a call that is not refused, in CUDA: a kernel that looks through the bias, if there is one,
// then dQ, then dK and dV, by these tiles.
AttentionKernels EmitTiledAttention(const AttentionCall& call,
                                    absl::Span<const DType> operand_dtypes,
                                    const AttentionTiles& tiles);

}  // namespace retrograd

#endif  // RETROGRAD_CODEGEN_ATTENTION_EMIT_TILED_ATTENTION_H_
