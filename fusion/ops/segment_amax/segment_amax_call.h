// The numbers of a segment_amax: where each element lies that is compared.
#ifndef RETROGRAD_FUSION_OPS_SEGMENT_AMAX_SEGMENT_AMAX_CALL_H_
#define RETROGRAD_FUSION_OPS_SEGMENT_AMAX_SEGMENT_AMAX_CALL_H_

#include "fusion/plan/call.h"

namespace retrograd {

// Strides in elements: of a batch, along the axis that is in groups, and across it.
struct SegmentStrides {
  int64_t offset = 0;
  int64_t batch = 0, along = 0, across = 0;
};

// [batch][places][lanes], whose places are in groups, gives [batch][groups][lanes].
struct SegmentAmaxCall {
  int64_t batch = 1, places = 0, lanes = 1, groups = 0;
  bool magnitude = false;
  DType dtype = DType::kFp32;
  SegmentStrides x, result;
  int64_t ends_offset = 0;
};

SegmentAmaxCall SegmentAmaxOf(const Call& call);

// Whether a tensor lies so that the axes before and behind any one of its axes are one axis each,
// and the elements of one of them are neighbours.
bool HasSegmentStrides(absl::Span<const int64_t> shape, absl::Span<const int64_t> strides);
// Along an extent of 1 the stride of a dense tensor.
void NormalizeSegment(absl::Span<const int64_t> shape, std::vector<int64_t>& strides);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_OPS_SEGMENT_AMAX_SEGMENT_AMAX_CALL_H_
