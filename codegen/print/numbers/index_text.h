// Index expressions as source text.
#ifndef RETROGRAD_CODEGEN_PRINT_NUMBERS_INDEX_TEXT_H_
#define RETROGRAD_CODEGEN_PRINT_NUMBERS_INDEX_TEXT_H_

#include <string>
#include <vector>

#include "fusion/kernel/ir/kernel_ir.h"

namespace retrograd {

// The expression with axis a spelled axis_names[a]. Divisions are by positive constants of values
// made non-negative first, where C and floor agree.
std::string IndexText(const IndexExpr& e, absl::Span<const std::string> axis_names,
                      absl::Span<const int64_t> extents);

// The same as an operand of * / % and comparisons.
std::string IndexFactor(const IndexExpr& e, absl::Span<const std::string> axis_names,
                        absl::Span<const int64_t> extents);

// "a0 >= 2 && a0 < 7": the guards' truth, without the sides that always hold; "" if all do.
std::string GuardText(absl::Span<const Guard> guards, absl::Span<const std::string> axis_names,
                      absl::Span<const int64_t> extents);

// True if some intermediate value of the kernel's indexing may leave 32 bits, when point numbers
// reach up to `largest_number`.
bool NeedsWideIndex(const KernelIr& ir, int64_t largest_number);

}  // namespace retrograd

#endif  // RETROGRAD_CODEGEN_PRINT_NUMBERS_INDEX_TEXT_H_
