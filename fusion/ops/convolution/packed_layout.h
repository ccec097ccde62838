// The memory orders in which convolutions take their tensors: [N,C,spatial..] row-major, or with
// the channels last. Weights [K,C/groups,spatial..] likewise.
#ifndef RETROGRAD_FUSION_OPS_CONVOLUTION_PACKED_LAYOUT_H_
#define RETROGRAD_FUSION_OPS_CONVOLUTION_PACKED_LAYOUT_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace retrograd {

// Whether a tensor lies without gaps in one of the two orders, by its extents and strides
// (elements). Along an extent of 1 any stride is the same memory.
//
// cuDNN accepts other strides, but some of its kernels read them wrongly: in 9.19 the fastest for
// weight gradients of 2x2 filters in strides of 2 takes rows with gaps for rows without.
bool IsPacked(absl::Span<const int64_t> shape, absl::Span<const int64_t> strides);
bool IsRowMajor(absl::Span<const int64_t> shape, absl::Span<const int64_t> strides);

// Of a tensor with its channels last, in elements.
std::vector<int64_t> ChannelsLastStrides(absl::Span<const int64_t> shape);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_OPS_CONVOLUTION_PACKED_LAYOUT_H_
