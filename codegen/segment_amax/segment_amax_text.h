// The bodies of segment_amax's launches. They are written in names that
// codegen/segment_amax/emit_segment_amax.cc defines: constants k.., types storage_t and compute_t,
// arguments x, ends, parts and result, and the shared array others.
#ifndef RETROGRAD_CODEGEN_SEGMENT_AMAX_SEGMENT_AMAX_TEXT_H_
#define RETROGRAD_CODEGEN_SEGMENT_AMAX_SEGMENT_AMAX_TEXT_H_

namespace retrograd {

// What a block and a thread compare.
extern const char kSegmentColumns[], kSegmentLines[];
// The first group that ends behind the first place of the chunk.
extern const char kSegmentFind[];
// The parts of a block's chunk, then each group's own; and all groups, where there is one chunk.
extern const char kSegmentChunk[], kSegmentGroup[], kSegmentAllGroups[];

}  // namespace retrograd

#endif  // RETROGRAD_CODEGEN_SEGMENT_AMAX_SEGMENT_AMAX_TEXT_H_
