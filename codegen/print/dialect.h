// The table of spellings: what a construct of the kernel vocabulary is called in each dialect. What
// the preludes define under one name (RG_BARRIER, rg_load, ...) needs no row here.
#ifndef RETROGRAD_CODEGEN_PRINT_DIALECT_H_
#define RETROGRAD_CODEGEN_PRINT_DIALECT_H_

#include <string>

#include "codegen/print/kernel.h"

namespace retrograd {

struct Spelling {
  absl::string_view unroll;  // line before a loop that must be unrolled; empty: none
  absl::string_view infinity_f32, infinity_f64;
  absl::string_view nan_f32, nan_f64;
};
const Spelling& SpellingOf(Dialect dialect);

// Element type of a buffer ("rg_bf16"), of arithmetic ("float") and of an accumulator ("int").
absl::string_view StorageName(DType dtype);
absl::string_view ComputeName(DType dtype);
absl::string_view AccumulatorName(DType dtype);

// A number as a literal of the dtype's compute type, fit to stand inside any expression.
std::string Literal(double value, DType dtype, Dialect dialect);

}  // namespace retrograd

#endif  // RETROGRAD_CODEGEN_PRINT_DIALECT_H_
