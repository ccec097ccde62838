// The text of attention's kernels by tiles of warps, behind the constants, the copies and the
// functions of a score that emit_warp_attention.cc prints.
#ifndef RETROGRAD_CODEGEN_ATTENTION_WARP_ATTENTION_TEXT_H_
#define RETROGRAD_CODEGEN_ATTENTION_WARP_ATTENTION_TEXT_H_

namespace retrograd {

extern const char kWarpAttentionThreads[];  // warp, lane, warp_row, meet()
extern const char kWarpAttentionScores[];   // between both parts of either kernel
extern const char kWarpAttentionQueries[], kWarpAttentionQueriesEnd[];
extern const char kWarpAttentionScoreGradients[];  // between both parts for queries
// Behind it, and behind the last part: the gradients of the scores as a result.
extern const char kWarpAttentionStoredScores[], kWarpAttentionUnseenScores[];
extern const char kWarpAttentionKeys[], kWarpAttentionKeysEnd[];

}  // namespace retrograd

#endif  // RETROGRAD_CODEGEN_ATTENTION_WARP_ATTENTION_TEXT_H_
