// Kernels that multiply groups by warpgroups, for sm_90a.
#ifndef RETROGRAD_CODEGEN_GROUPED_MATMUL_EMIT_GROUPED_MULTIPLIER_H_
#define RETROGRAD_CODEGEN_GROUPED_MATMUL_EMIT_GROUPED_MULTIPLIER_H_

#include "codegen/print/launch_writer.h"
#include "fusion/ops/grouped_matmul/grouped_multiplier.h"

namespace retrograd {

// Of a call that passes WhyNoMultiplier. The kernel reads the operands by their maps, a's first,
// and takes the ends and the result as arguments, by the slots of GroupedSlot.
LaunchWriter::Launch EmitGroupedMultiplier(const GroupedMatMulCall& call, const GemmTile& tile);

}  // namespace retrograd

#endif  // RETROGRAD_CODEGEN_GROUPED_MATMUL_EMIT_GROUPED_MULTIPLIER_H_
