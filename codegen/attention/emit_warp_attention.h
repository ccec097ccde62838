// Attention's backward by tiles of 16 x 16 numbers that warps multiply, in any dialect, of any
// floating dtype, any strides and heads of up to 384 channels (fp64: 192): by tensor cores where
// the type has some (codegen/attention/wide_tiles_prelude.h). Sums have a fixed order: two runs
// give the same bits.
//   dQ has a block for some rows of queries, which walks over the keys; it makes delta =
//   rowsum(dO O) by the way, and leaves it in the workspace. dK and dV have a block for some rows
//   of keys, which walks over the queries of all heads that share them.
#ifndef RETROGRAD_CODEGEN_ATTENTION_EMIT_WARP_ATTENTION_H_
#define RETROGRAD_CODEGEN_ATTENTION_EMIT_WARP_ATTENTION_H_

#include <cstdint>

#include "absl/types/span.h"
#include "codegen/attention/emit_attention.h"
#include "fusion/ops/attention/warp_attention_tiles.h"

namespace retrograd {

// warp: threads of a warp on the device. alignment: bytes known to divide the operands' addresses,
// one for each; empty: an element's.
AttentionKernels EmitWarpAttention(const AttentionCall& call,
                                   absl::Span<const DType> operand_dtypes,
                                   absl::Span<const int64_t> alignment,
                                   const WarpAttentionTiles& tiles, Dialect dialect, int warp);

}  // namespace retrograd

#endif  // RETROGRAD_CODEGEN_ATTENTION_EMIT_WARP_ATTENTION_H_
