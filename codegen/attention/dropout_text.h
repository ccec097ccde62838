// How kernels of attention name the dropout of their call.
#ifndef RETROGRAD_CODEGEN_ATTENTION_DROPOUT_TEXT_H_
#define RETROGRAD_CODEGEN_ATTENTION_DROPOUT_TEXT_H_

#include <string>

#include "codegen/print/dialect.h"
#include "fusion/ops/attention/attention_call.h"

namespace retrograd {

// Declares `dropout`, of a type of codegen/preludes/dropout_prelude.h, from the arguments `seed`
// and `offset`. The call drops out by a known generator.
std::string DropoutText(const AttentionCall& call, Dialect dialect);

}  // namespace retrograd

#endif  // RETROGRAD_CODEGEN_ATTENTION_DROPOUT_TEXT_H_
