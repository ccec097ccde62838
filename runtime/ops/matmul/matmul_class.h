// Which matmuls are alike enough that the fastest algorithm of one serves the others
// (runtime/tuning/extent_class.h).
#ifndef RETROGRAD_RUNTIME_OPS_MATMUL_MATMUL_CLASS_H_
#define RETROGRAD_RUNTIME_OPS_MATMUL_MATMUL_CLASS_H_

#include "fusion/ops/matmul/matmul_call.h"

namespace retrograd {

// The call by which the class of `call` is timed: the same extents of each class, with packed
// matrices of the same orders; `call` itself where its extents are those of the class. Only extents
// along which a matrix is contiguous keep their alignment: the number of tokens, where it only
// counts lines, has eight classes to an octave.
MatMulCall RepresentativeOf(const MatMulCall& call);

}  // namespace retrograd

#endif  // RETROGRAD_RUNTIME_OPS_MATMUL_MATMUL_CLASS_H_
