// Library calls as tests write them: by what an implementation is told.
#ifndef RETROGRAD_TESTS_SUPPORT_PLANS_CALLS_H_
#define RETROGRAD_TESTS_SUPPORT_PLANS_CALLS_H_

#include "fusion/ops/attention/attention_call.h"
#include "fusion/ops/matmul/matmul_call.h"

namespace retrograd {

// The call that MatMulOf reads so; `accumulate` adds to `previous`.
Call ToCall(const MatMulCall& matmul, ValueId previous = {});

// `sum` = x.x + `previous`, of 4 x 4 elements of fp32.
Call AddingMatMul(ValueId x, ValueId sum, ValueId previous);

// The call that AttentionOf reads so, with these dtypes of its operands.
Call ToCall(const AttentionCall& attention, absl::Span<const DType> operand_dtypes);

}  // namespace retrograd

#endif  // RETROGRAD_TESTS_SUPPORT_PLANS_CALLS_H_
