// Which matmuls are alike enough that the fastest algorithm of one serves the others: programs for
// several sizes need not time each of them.
#ifndef RETROGRAD_RUNTIME_OPS_MATMUL_SIZE_CLASS_H_
#define RETROGRAD_RUNTIME_OPS_MATMUL_SIZE_CLASS_H_

#include <cstdint>

#include "fusion/ops/matmul/matmul_call.h"

namespace retrograd {

// The nearest of four extents in each octave which is a multiple of the same powers of two up to
// `alignment` (1, 2, 4 or 8). Extents below 64 are their own.
int64_t ExtentOfClass(int64_t extent, int64_t alignment);

// The call by which the class of `call` is timed: the same extents of each class, with packed
// matrices of the same orders; `call` itself where its extents are those of the class. Only extents
// along which a matrix is contiguous keep their alignment: the number of tokens, where it only
// counts lines, has four classes to an octave. The answer follows from the call alone, so that it
// does not depend on which size came first.
MatMulCall RepresentativeOf(const MatMulCall& call);

}  // namespace retrograd

#endif  // RETROGRAD_RUNTIME_OPS_MATMUL_SIZE_CLASS_H_
