// The geometry of a convolution y = x * w and of its two gradients:
//   y[n,k,p..] = sum over c, r.. of x[n, group(k) C/groups + c, p stride - padding + r dilation,
//   ..]
//                                  w[k,c,r..],   zero where x is read outside of it
// x [N,C,in..], w [K,C/groups,kernel..], y [N,K,out..] with 1, 2 or 3 spatial dims.
#ifndef RETROGRAD_GRAPH_IR_LIBRARY_CONVOLUTION_H_
#define RETROGRAD_GRAPH_IR_LIBRARY_CONVOLUTION_H_

#include "graph/ir/library_ops.h"

namespace retrograd {

struct ConvolutionGeometry {
  int64_t batch = 0, in_channels = 0, out_channels = 0, groups = 1;
  // One number a spatial dim.
  std::vector<int64_t> in, kernel, out;
  std::vector<int64_t> stride, padding, dilation;

  int spatial_dims() const { return static_cast<int>(in.size()); }
  Shape XShape() const;
  Shape WShape() const;
  Shape YShape() const;
};

// Of convolution, convolution_input_gradient or convolution_weight_gradient. Refuses operands and
// attributes that do not fit each other.
absl::StatusOr<ConvolutionGeometry> ConvolutionGeometryOf(Op op, LibraryOp::Operands operands,
                                                          const Attrs& attrs);

}  // namespace retrograd

#endif  // RETROGRAD_GRAPH_IR_LIBRARY_CONVOLUTION_H_
