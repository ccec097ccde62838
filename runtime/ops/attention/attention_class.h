// Which calls of attention are alike enough that who is the fastest for one makes the others
// (runtime/tuning/extent_class.h).
#ifndef RETROGRAD_RUNTIME_OPS_ATTENTION_ATTENTION_CLASS_H_
#define RETROGRAD_RUNTIME_OPS_ATTENTION_ATTENTION_CLASS_H_

#include "fusion/ops/attention/attention_call.h"

namespace retrograd {

// The call by which the class of `call` is timed: the numbers of sequences, queries and keys of the
// class, heads as they are, packed tensors with axes in the same order; lines that begin at
// multiples of 8 elements do so in both; a bias is spread along the same axes. `call` itself where
// its extents are those of the class.
AttentionCall RepresentativeOf(const AttentionCall& call);

}  // namespace retrograd

#endif  // RETROGRAD_RUNTIME_OPS_ATTENTION_ATTENTION_CLASS_H_
