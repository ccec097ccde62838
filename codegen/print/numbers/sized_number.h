// Numbers of a kernel's text that follow from the sizes of tensors. An emitter marks them, and a
// printed kernel has them as literals; or, where one kernel serves graphs that differ in sizes
// alone (codegen/print/lift_numbers.h), as arguments. What a compiler must know stays unmarked:
// lengths of arrays, trips of unrolled loops, template arguments.
#ifndef RETROGRAD_CODEGEN_PRINT_NUMBERS_SIZED_NUMBER_H_
#define RETROGRAD_CODEGEN_PRINT_NUMBERS_SIZED_NUMBER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"

namespace retrograd {

// The number between its marks.
std::string Sized(int64_t number);
// A literal of dialect.h between marks, but for what is no number, as an infinity.
std::string SizedLiteral(absl::string_view literal);

// The text with what `print` gives in place of each marked literal, which it is told in order.
std::string ReplaceSized(absl::string_view text,
                         absl::FunctionRef<std::string(absl::string_view literal)> print);

// The text with its literals.
std::string WithoutMarks(absl::string_view text);

enum class SizedType : uint8_t { kInt, kInt64, kFloat, kDouble };
absl::string_view Name(SizedType type);  // as all dialects spell it
int WordsOf(SizedType type);             // of 32 bits
SizedType TypeOfLiteral(absl::string_view literal);
// The literal's value, lower word first.
std::vector<int32_t> WordsOfLiteral(absl::string_view literal);

}  // namespace retrograd

#endif  // RETROGRAD_CODEGEN_PRINT_NUMBERS_SIZED_NUMBER_H_
