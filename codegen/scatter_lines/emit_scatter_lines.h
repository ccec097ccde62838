// The launch of scatter_lines, in any dialect.
#ifndef RETROGRAD_CODEGEN_SCATTER_LINES_EMIT_SCATTER_LINES_H_
#define RETROGRAD_CODEGEN_SCATTER_LINES_EMIT_SCATTER_LINES_H_

#include "codegen/print/launch_writer.h"
#include "fusion/ops/scatter_lines/scatter_lines_call.h"

namespace retrograd {

// Addresses of the launch, by number.
enum ScatterLinesSlot : int { kScatterIndex, kScatterSrc, kScatterResult };
inline constexpr int kScatterLinesSlots = 3;

// The call has a result with elements, whose address is a multiple of `alignment` bytes.
LaunchWriter::Launch EmitScatterLines(const ScatterLinesCall& call, int64_t alignment,
                                      Dialect dialect);

}  // namespace retrograd

#endif  // RETROGRAD_CODEGEN_SCATTER_LINES_EMIT_SCATTER_LINES_H_
