// The launches of segment_amax, in any dialect: one, or two where groups are compared in chunks
// (fusion/ops/segment_amax/segment_walk.h). What the groups' ends say stays inside of the tensors.
#ifndef RETROGRAD_CODEGEN_SEGMENT_AMAX_EMIT_SEGMENT_AMAX_H_
#define RETROGRAD_CODEGEN_SEGMENT_AMAX_EMIT_SEGMENT_AMAX_H_

#include <vector>

#include "codegen/print/launch_writer.h"
#include "fusion/ops/segment_amax/segment_walk.h"

namespace retrograd {

// Addresses of the launches, by number.
enum SegmentSlot : int { kSegmentX, kSegmentEnds, kSegmentParts, kSegmentResult };
inline constexpr int kSegmentSlots = 4;

// The call has a result with elements.
std::vector<LaunchWriter::Launch> EmitSegmentAmax(const SegmentAmaxCall& call,
                                                  const SegmentSchedule& schedule, Dialect dialect);

}  // namespace retrograd

#endif  // RETROGRAD_CODEGEN_SEGMENT_AMAX_EMIT_SEGMENT_AMAX_H_
