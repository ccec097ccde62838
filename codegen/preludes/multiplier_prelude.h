// What the CUDA dialect's kernels that multiply with an epilogue are written with, behind the
// dialect's prelude and hopper_prelude.h: the multiplying itself, for sm_90a.
#ifndef RETROGRAD_CODEGEN_PRELUDES_MULTIPLIER_PRELUDE_H_
#define RETROGRAD_CODEGEN_PRELUDES_MULTIPLIER_PRELUDE_H_

#include <cstdint>
#include <string>

namespace retrograd {

inline constexpr int kMultiplierThreads = 384;  // a warpgroup that loads, two that multiply

std::string MultiplierPrelude();

}  // namespace retrograd

#endif  // RETROGRAD_CODEGEN_PRELUDES_MULTIPLIER_PRELUDE_H_
