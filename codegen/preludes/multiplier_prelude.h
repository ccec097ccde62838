// What the CUDA dialect's kernels that multiply with an epilogue are written with, behind the
// dialect's prelude and hopper_prelude.h: the multiplying itself, for sm_90a.
#ifndef RETROGRAD_CODEGEN_PRELUDES_MULTIPLIER_PRELUDE_H_
#define RETROGRAD_CODEGEN_PRELUDES_MULTIPLIER_PRELUDE_H_

#include <cstdint>
#include <string>

namespace retrograd {

inline constexpr int kMultiplierThreads = 384;  // a warpgroup that loads, two that multiply
inline constexpr int kMultiplierCluster = 2;    // blocks
inline constexpr int kMultiplierStages = 5;     // of both operands, loaded ahead
// Of a block: the stages, a product of each warpgroup, barriers, and room to align them to 1 KB.
inline constexpr int64_t kMultiplierSharedBytes =
    1024 + kMultiplierStages * 32768 + 2 * 32768 + 16 * kMultiplierStages + 16;

std::string MultiplierPrelude();

}  // namespace retrograd

#endif  // RETROGRAD_CODEGEN_PRELUDES_MULTIPLIER_PRELUDE_H_
