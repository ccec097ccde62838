// The kernel of grouped_matmul, in any dialect: a tile a block, sums in fp32 (fp64 of fp64) in a
// fixed order, rounded once. What the groups' ends say stays inside of the tensors.
#ifndef RETROGRAD_CODEGEN_GROUPED_MATMUL_EMIT_GROUPED_MATMUL_H_
#define RETROGRAD_CODEGEN_GROUPED_MATMUL_EMIT_GROUPED_MATMUL_H_

#include "codegen/print/launch_writer.h"
#include "fusion/ops/grouped_matmul/grouped_matmul_tiles.h"

namespace retrograd {

// Addresses of the launch, by number.
enum GroupedSlot : int {
  kGroupedA,
  kGroupedB,
  kGroupedEnds,
  kGroupedRowScales,     // of scaled products
  kGroupedColumnScales,  // of scaled products
  kGroupedResult
};
inline constexpr int kGroupedSlots = 6;

// The call passes GroupedMatMulRefusal and has a result with elements. warp: threads of a warp of
// the device, RG_WARP where the kernel is compiled.
LaunchWriter::Launch EmitGroupedMatMul(const GroupedMatMulCall& call, const GroupedTile& tile,
                                       const GroupedVectors& vectors, Dialect dialect, int warp);

}  // namespace retrograd

#endif  // RETROGRAD_CODEGEN_GROUPED_MATMUL_EMIT_GROUPED_MATMUL_H_
