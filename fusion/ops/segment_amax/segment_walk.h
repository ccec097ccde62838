// How the elements of a segment_amax are gone through.
//   columns  places lie apart: a block has a slab of neighbouring lanes and goes down its places
//   lines    places are neighbours: 32 threads go along a lane
// Long axes are cut into chunks of places, of which each block takes one, since only the device
// knows how long groups are. A chunk has an element for each of its groups: that of group g in
// chunk c has the number c + g, which no other has, because one of both grows from one part to the
// next. A second launch compares the parts of each group, which are neighbours. No order matters:
// the largest of some elements is one of them.
#ifndef RETROGRAD_FUSION_OPS_SEGMENT_AMAX_SEGMENT_WALK_H_
#define RETROGRAD_FUSION_OPS_SEGMENT_AMAX_SEGMENT_WALK_H_

#include "fusion/ops/segment_amax/segment_amax_call.h"

namespace retrograd {

// One launch over [batch][places][lanes].
struct SegmentWalk {
  bool lines = false;
  int vector = 1;     // elements of a load
  int packs = 1;      // columns: threads side by side, each with a vector; lines: 32 of a lane
  int down = 1;       // the block's other threads: places of columns, lanes of lines
  int at_once = 1;    // loads of a thread under way
  int64_t slabs = 1;  // blocks that a batch's lanes are shared out to
  int64_t threads() const { return int64_t{packs} * down; }
};

struct SegmentSchedule {
  SegmentWalk walk;     // of x
  SegmentWalk combine;  // of the parts, where there are several chunks
  int64_t chunk = 0, chunks = 1;
  // Parts that a batch has room for.
  int64_t slots(const SegmentAmaxCall& call) const { return chunks + call.groups; }
  int64_t scratch_elements(const SegmentAmaxCall& call) const;
  int launches() const { return chunks > 1 ? 2 : 1; }
  // Of the launch that reads x.
  int64_t blocks(const SegmentAmaxCall& call) const;
};

// alignment: bytes known to divide the address of x.
SegmentSchedule SegmentScheduleFor(const SegmentAmaxCall& call, int64_t alignment);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_OPS_SEGMENT_AMAX_SEGMENT_WALK_H_
