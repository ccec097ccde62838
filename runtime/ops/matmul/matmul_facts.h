// What the implementations of a matmul are told beside the call itself.
#ifndef RETROGRAD_RUNTIME_OPS_MATMUL_MATMUL_FACTS_H_
#define RETROGRAD_RUNTIME_OPS_MATMUL_MATMUL_FACTS_H_

#include <cstdint>

#include "fusion/ops/matmul/matmul_call.h"
#include "runtime/device/device.h"

namespace retrograd {

// Addresses of the stored values' first elements.
struct MatMulPointers {
  const void* a = nullptr;
  const void* b = nullptr;
  void* d = nullptr;
};
inline MatMulPointers MatMulPointersOf(const CallPointers& pointers) {
  return {pointers.operands[0], pointers.operands[1], pointers.results[0]};
}

struct MatMulFacts {
  bool allow_tf32 = false;                   // fp32 operands may be rounded to TF32
  int64_t a_alignment = 1, b_alignment = 1;  // bytes known to divide the stored value's address
  int64_t d_alignment = 1;
};
inline MatMulFacts MatMulFactsOf(const CallFacts& facts) {
  MatMulFacts made{.allow_tf32 = facts.allow_tf32};
  if (facts.operand_alignment.size() == 2) {
    made.a_alignment = facts.operand_alignment[0];
    made.b_alignment = facts.operand_alignment[1];
  }
  if (facts.result_alignment.size() == 1) made.d_alignment = facts.result_alignment[0];
  return made;
}

}  // namespace retrograd

#endif  // RETROGRAD_RUNTIME_OPS_MATMUL_MATMUL_FACTS_H_
