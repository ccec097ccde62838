// Convolution calls as tests write them.
#ifndef RETROGRAD_TESTS_SUPPORT_PLANS_CONVOLUTIONS_H_
#define RETROGRAD_TESTS_SUPPORT_PLANS_CONVOLUTIONS_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "fusion/plan/call.h"

namespace retrograd {

// One number a spatial dim in each list.
struct ConvolutionShape {
  int64_t batch = 1, in_channels = 1, out_channels = 1, groups = 1;
  std::vector<int64_t> in, kernel;
  std::vector<int64_t> stride, padding, dilation;

  std::vector<int64_t> X() const;
  std::vector<int64_t> W() const;
  std::vector<int64_t> Y() const;
  std::string Print() const;
};

// Of two spatial dims, with equal numbers in both.
ConvolutionShape SquareConvolution(int64_t batch, int64_t in_channels, int64_t out_channels,
                                   int64_t groups, int64_t in, int64_t kernel, int64_t stride,
                                   int64_t padding, int64_t dilation = 1);

// A dense tensor in row-major order or, in memory, with its channels last.
CallTensor DenseTensor(const std::vector<int64_t>& shape, DType dtype, bool channels_last);

struct ConvolutionLayout {
  DType dtype = DType::kBf16;
  bool channels_last = true;
  DType result = DType::kBf16;
};

// Of one of the three ops.
Call MakeConvolution(Op op, const ConvolutionShape& shape, const ConvolutionLayout& layout);

// Calls `product` for each product that a convolution sums: the places of an element of x, of w and
// of y, in row-major order.
void ForEachProduct(const ConvolutionShape& shape,
                    const std::function<void(int64_t, int64_t, int64_t)>& product);

}  // namespace retrograd

#endif  // RETROGRAD_TESTS_SUPPORT_PLANS_CONVOLUTIONS_H_
