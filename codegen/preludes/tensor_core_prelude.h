// What kernels that multiply tiles in shared memory are written with, in any dialect: tensor cores
// in CUDA (mma.sync, sm_80 and later), matrix cores in HIP, and plain sums on the host, and of
// types that neither takes.
#ifndef RETROGRAD_CODEGEN_PRELUDES_TENSOR_CORE_PRELUDE_H_
#define RETROGRAD_CODEGEN_PRELUDES_TENSOR_CORE_PRELUDE_H_

#include <string>

#include "codegen/print/kernel.h"

namespace retrograd {

// rg_tile<S>: 16 x 16 sums that the threads of a warp hold, some each: at[i] of a lane is the sum
// in row rg_tile_row(lane, i) and column rg_tile_column(lane, i).
//
// rg_multiply_tiles<across_a, across_b>(sums, a, a_at, a_pitch, b, b_at, b_pitch, lane): adds to
// tiles sums[rows][columns] the product of 16 * rows x 16 by 16 x 16 * columns elements of shared
// memory. Element (row, k) of the first operand is a[a_at + row * a_pitch + k], or, across,
// a[a_at + k * a_pitch + row]; element (k, column) of the second one is
// b[b_at + column * b_pitch + k], or, across, b[b_at + k * b_pitch + column]. Offsets and pitches
// are of 16 bytes' multiples. All threads of the warp call it.
//
// rg_copy_or_zero<V>(to, at, from, i, inside): V elements as by rg_copy_ahead, or zeros.
std::string TensorCorePrelude(Dialect dialect);

}  // namespace retrograd

#endif  // RETROGRAD_CODEGEN_PRELUDES_TENSOR_CORE_PRELUDE_H_
