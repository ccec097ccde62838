// The table of library ops: a row here for each kLibrary row of ops.def.
#include "graph/base/status.h"
#include "graph/ir/library/library_rows.h"

namespace retrograd {

const LibraryOp& LibraryOpOf(Op op) {
  static constexpr const LibraryOp* kRows[] = {&kMatMulOp, &kAttentionBackwardOp, &kConvolutionOp,
                                               &kConvolutionInputGradientOp,
                                               &kConvolutionWeightGradientOp};
  for (const LibraryOp* row : kRows) {
    if (row->op == op) return *row;
  }
  RG_CHECK(false);
  return *kRows[0];
}

}  // namespace retrograd
