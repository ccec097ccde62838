// Boxes of pixels that a copy engine takes from images into shared memory, and the gradients of
// convolutions whose operands it can take so: of 16-bit types, channels last.
//
// A box is 64 pixels x 64 channels, one after another along a walk over the images: the pixels of a
// row, `step` apart, the rows, then the next image. A tap of a filter is an offset that is added to
// all pixels of a box. What lies outside of an image is 0.
#ifndef RETROGRAD_FUSION_OPS_CONVOLUTION_IMAGE_BOXES_H_
#define RETROGRAD_FUSION_OPS_CONVOLUTION_IMAGE_BOXES_H_

#include <array>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"

namespace retrograd {

struct ConvolutionCall;

inline constexpr int kBoxLines = 64;  // pixels of a box, or lines of a matrix
inline constexpr int kBoxWidth = 64;  // channels, or columns, of 16 bits

// How the engine walks. Three spatial dims, the innermost last; pitches in elements.
struct ImageWalk {
  int64_t offset = 0;  // of the first image's first element
  int64_t channels = 0, images = 0, image_pitch = 0;
  std::array<int64_t, 3> extent{1, 1, 1}, pitch{};
  std::array<int64_t, 3> first{};          // pixel of a walk, which may lie outside
  std::array<int64_t, 3> pixels{1, 1, 1};  // of a walk
  std::array<int64_t, 3> step{1, 1, 1};    // from one to the next
  std::array<int64_t, 3> reach{};          // the largest offset of a tap
  int dims = 2;  // that the engine is told of: where it is 2, the outermost is one pixel
  // From the last pixel of an image to the last of a walk: the engine's other corner.
  std::array<int64_t, 3> Beyond() const;
  friend bool operator==(const ImageWalk&, const ImageWalk&) = default;
};

// A matrix with its columns together; pitch in elements.
struct BoxMatrix {
  int64_t offset = 0, columns = 0, lines = 0, pitch = 0;
  friend bool operator==(const BoxMatrix&, const BoxMatrix&) = default;
};

// What a gradient's kernel loads by boxes: of the input's, the gradient's images, a walk for each
// phase (stride_phases.h, in the order of ConvolutionPhases), and the filters as a matrix of
// filters x (taps x channels); of the weight's, the input's images and the gradients as a matrix
// of pixels x filters.
struct BoxOperands {
  std::vector<ImageWalk> walks;
  BoxMatrix matrix;
};
BoxOperands BoxOperandsOf(const ConvolutionCall& call);

// OK, or Unimplemented with the reason. The call passes ImplicitGemmRefusal.
absl::Status BoxRefusal(const ConvolutionCall& call);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_OPS_CONVOLUTION_IMAGE_BOXES_H_
