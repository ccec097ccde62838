#include "fusion/ops/convolution/image_boxes.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "fusion/kernel/ir/scale.h"
#include "fusion/ops/convolution/convolution_call.h"
#include "fusion/ops/convolution/stride_phases.h"

namespace retrograd {
namespace {

constexpr int64_t kAddressBytes = 16;  // that divide all addresses and pitches
constexpr int64_t kMostStep = 8;
constexpr size_t kMostWalks = 16;  // descriptions of 128 bytes are parameters

bool IsInput(const ConvolutionCall& c) { return c.op == Op::convolution_input_gradient; }

ImageWalk ImagesOf(const ConvolutionTensor& t) {
  ImageWalk walk{.offset = t.offset,
                 .channels = t.shape[1],
                 .images = t.shape[0],
                 .image_pitch = t.strides[0]};
  // Nothing is known of the pitch of a dim of one pixel, but the engine asks for a good one.
  int64_t behind = (walk.channels + 7) / 8 * 8;
  for (size_t d = kSpatialDims; d-- > 0;) {
    walk.extent[d] = t.shape[2 + d];
    walk.pitch[d] = walk.extent[d] == 1 ? behind : t.strides[2 + d];
    behind = Product({walk.pitch[d], walk.extent[d]});
  }
  if (walk.images == 1) walk.image_pitch = behind;
  return walk;
}

bool OnePixel(const ImageWalk& walk) {
  return walk.extent[0] == 1 && walk.pixels[0] == 1 && walk.first[0] == 0 && walk.reach[0] == 0;
}

// Over the gradients: the pixels that those of a phase meet by their last taps, from where offsets
// lead to the others.
ImageWalk WalkOf(const ConvolutionCall& c, const ConvolutionPhase& phase) {
  ImageWalk walk = ImagesOf(c.y);
  for (size_t d = 0; d < kSpatialDims; ++d) {
    const StridePhase& of = phase.of[d];
    walk.reach[d] = std::max<int64_t>(of.taps - 1, 0) * of.reach;
    walk.first[d] = of.shift - walk.reach[d];
    walk.pixels[d] = of.pixels;
  }
  return walk;
}

ImageWalk WalkOfInput(const ConvolutionCall& c) {
  ImageWalk walk = ImagesOf(c.x);
  for (size_t d = 0; d < kSpatialDims; ++d) {
    walk.first[d] = -c.padding[d];
    walk.pixels[d] = c.out[d];
    walk.step[d] = c.stride[d];
    walk.reach[d] = (c.kernel[d] - 1) * c.dilation[d];
  }
  return walk;
}

// How far the engine lets corners and taps lie from an image's pixels: it has 16 bits for all dims.
struct EngineReach {
  int64_t least_corner, most_corner, most_tap;
};
constexpr EngineReach ReachIn(int dims) {
  return dims == 2 ? EngineReach{-128, 127, 255} : EngineReach{-16, 15, 31};
}

// Whether the engine's corners lie near enough to an image's first and last pixel.
bool CornersFit(const ImageWalk& walk) {
  const EngineReach reach = ReachIn(walk.dims);
  const std::array<int64_t, 3> beyond = walk.Beyond();
  for (size_t d = 0; d < kSpatialDims; ++d) {
    if (std::min(walk.first[d], beyond[d]) < reach.least_corner) return false;
    if (std::max(walk.first[d], beyond[d]) > reach.most_corner) return false;
  }
  return true;
}

// All pixels of a tensor as lines of its channels, without a gap between them.
bool DensePixels(const ConvolutionTensor& t) {
  int64_t step = 0;  // of the last dim that has several pixels
  for (const size_t d : {4, 3, 2, 0}) {
    if (t.shape[d] == 1) continue;
    if (step != 0 && t.strides[d] != step) return false;
    step = t.strides[d] * t.shape[d];
  }
  return true;
}

int64_t PixelPitch(const ConvolutionTensor& t) {
  for (const size_t d : {4, 3, 2, 0}) {
    if (t.shape[d] > 1) return t.strides[d];
  }
  return (t.shape[1] + 7) / 8 *
         8;  // of one pixel nothing is known, but the engine asks for a good one
}

// Elements of a filter, from its first to its last.
int64_t FilterSpan(const ConvolutionTensor& w) {
  int64_t last = 0;
  for (size_t d = 1; d < w.shape.size(); ++d) last += Product({w.shape[d] - 1, w.strides[d]});
  return last + 1;
}

// Addresses of all lines of channels are what the engine takes.
bool Aligned(const ConvolutionTensor& t) {
  const int64_t elements = kAddressBytes / SizeBytes(t.dtype);
  if (t.strides[1] != 1 || t.offset % elements != 0) return false;
  for (size_t d = 0; d < t.shape.size(); ++d) {
    if (d != 1 && t.shape[d] > 1 && (t.strides[d] % elements != 0 || t.strides[d] <= 0)) {
      return false;
    }
  }
  return true;
}

BoxOperands OperandsOf(const ConvolutionCall& c) {
  BoxOperands made;
  if (IsInput(c)) {
    for (const ConvolutionPhase& phase : ConvolutionPhases(c)) {
      made.walks.push_back(WalkOf(c, phase));
    }
    const int64_t span = FilterSpan(c.w);
    const bool one = c.w.shape[0] == 1;
    made.matrix = {c.w.offset, span, c.w.shape[0], one ? (span + 7) / 8 * 8 : c.w.strides[0]};
    return made;
  }
  made.walks = {WalkOfInput(c)};
  made.matrix = {c.y.offset, c.y.shape[1],
                 Product({c.y.shape[0], c.y.shape[2], c.y.shape[3], c.y.shape[4]}),
                 PixelPitch(c.y)};
  return made;
}

}  // namespace

std::array<int64_t, 3> ImageWalk::Beyond() const {
  std::array<int64_t, 3> beyond{};
  for (size_t d = 0; d < beyond.size(); ++d) {
    beyond[d] = first[d] + (pixels[d] - 1) * step[d] - (extent[d] - 1);
  }
  return beyond;
}

BoxOperands BoxOperandsOf(const ConvolutionCall& c) {
  BoxOperands made = OperandsOf(c);
  const bool flat = std::all_of(made.walks.begin(), made.walks.end(), OnePixel);
  for (ImageWalk& walk : made.walks) walk.dims = flat ? 2 : 3;
  return made;
}

absl::Status BoxRefusal(const ConvolutionCall& c) {
  const auto refuse = [](const auto&... what) {
    return absl::UnimplementedError(absl::StrCat("boxes of images are ", what...));
  };
  const bool input = IsInput(c);
  const ConvolutionTensor& images = input ? c.y : c.x;
  const ConvolutionTensor& lines = input ? c.w : c.y;
  if (c.y.dtype != DType::kBf16 && c.y.dtype != DType::kFp16) {
    return refuse("of bf16 and fp16, not ", Name(c.y.dtype));
  }
  if (!Aligned(images) || !Aligned(lines)) {
    return refuse("of channels that lie together, in lines that begin at 16 bytes");
  }
  if (images.shape[1] % 8 != 0) {
    return refuse("of channels by eights, not ", images.shape[1]);
  }
  if (images.shape[1] < kBoxWidth / 2) {
    return refuse("of at least ", kBoxWidth / 2, " channels, not ", images.shape[1]);
  }
  if (c.geometry.groups > 1 &&
      (c.out_channels_of_group() % kBoxWidth != 0 || c.in_channels_of_group() % kBoxWidth != 0)) {
    return refuse("of one group, or of groups of ", kBoxWidth, " channels and their multiples");
  }
  if (input) {
    if (lines.shape[0] > 1 && lines.strides[0] < FilterSpan(lines)) {
      return refuse("of filters one behind another");
    }
  } else if (!DensePixels(lines)) {
    return refuse("of gradients without gaps between their pixels");
  }
  const BoxOperands operands = BoxOperandsOf(c);
  if (operands.walks.size() > kMostWalks) {
    return refuse("walked in up to ", kMostWalks, " ways, not ", operands.walks.size());
  }
  for (const ImageWalk& walk : operands.walks) {
    if (!CornersFit(walk)) return refuse("of pixels nearer to the image");
    for (size_t d = 0; d < kSpatialDims; ++d) {
      if (walk.step[d] > kMostStep) return refuse("of pixels up to ", kMostStep, " apart");
      const int64_t most = ReachIn(walk.dims).most_tap;
      if (walk.reach[d] > most) return refuse("of taps up to ", most, " pixels away");
    }
  }
  return absl::OkStatus();
}

}  // namespace retrograd
