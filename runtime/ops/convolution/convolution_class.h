// Which convolutions are alike enough that who is the fastest for one makes the others
// (runtime/tuning/extent_class.h).
#ifndef RETROGRAD_RUNTIME_OPS_CONVOLUTION_CONVOLUTION_CLASS_H_
#define RETROGRAD_RUNTIME_OPS_CONVOLUTION_CONVOLUTION_CLASS_H_

#include "fusion/plan/call.h"

namespace retrograd {

// The call by which the class of `call`, a convolution or a gradient of one, is timed: so many
// images as the class has. Images of another height or width are another class. `call` itself where
// its number of images is that of the class.
Call ConvolutionRepresentativeOf(const Call& call);

}  // namespace retrograd

#endif  // RETROGRAD_RUNTIME_OPS_CONVOLUTION_CONVOLUTION_CLASS_H_
