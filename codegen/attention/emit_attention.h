// Kernels for the backward pass of attention that ask nothing of shapes, dtypes and strides, for
// heads that have no tiles (emit_warp_attention.h). They are simple: scores are computed twice,
// element by element. Sums have a fixed order, so that two runs give the same bits.
#ifndef RETROGRAD_CODEGEN_ATTENTION_EMIT_ATTENTION_H_
#define RETROGRAD_CODEGEN_ATTENTION_EMIT_ATTENTION_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "codegen/print/kernel.h"
#include "fusion/ops/attention/attention_call.h"

namespace retrograd {

struct AttentionKernels {
  struct Launch {
    Kernel kernel;  // its list of arguments is empty: `args` says what they are
    // Places in the list of operands, results and, last, the workspace.
    std::vector<int> args;
    std::vector<bool> written;
    // Places of what it reads by the copy engine, none or in the order of its parameters for them:
    // operands in boxes of 64 x 64, the workspace by `workspace_rows`.
    std::vector<int> copied;
  };
  std::vector<Launch> launches;  // in order: dQ, then dK and dV
  int64_t workspace_bytes = 0;
  int64_t workspace_rows = 0;  // of 128 fp32 numbers, with which it begins
};

// The call has 6 or 7 operands of floating dtypes and 3 or 4 results of the call's dtype; if it
// drops out, by a known generator, two integers of 64 or 32 bits more.
AttentionKernels EmitAttention(const AttentionCall& call, absl::Span<const DType> operand_dtypes,
                               Dialect dialect);

}  // namespace retrograd

#endif  // RETROGRAD_CODEGEN_ATTENTION_EMIT_ATTENTION_H_
