// What the CUDA dialect's kernels that multiply groups are written with, behind
// multiplier_prelude.h: the tiles of all groups.
#ifndef RETROGRAD_CODEGEN_PRELUDES_GROUPED_TILES_PRELUDE_H_
#define RETROGRAD_CODEGEN_PRELUDES_GROUPED_TILES_PRELUDE_H_

#include <string>

namespace retrograd {

std::string GroupedTilesPrelude();

}  // namespace retrograd

#endif  // RETROGRAD_CODEGEN_PRELUDES_GROUPED_TILES_PRELUDE_H_
