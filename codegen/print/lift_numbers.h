// Kernels that differ in numbers alone (codegen/print/numbers/sized_number.h) as one kernel that
// takes those numbers as arguments.
#ifndef RETROGRAD_CODEGEN_PRINT_LIFT_NUMBERS_H_
#define RETROGRAD_CODEGEN_PRINT_LIFT_NUMBERS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "codegen/print/kernel.h"

namespace retrograd {

// What two kernels that differ in sized numbers alone have in common: all but those, comments, the
// name and the number of blocks.
std::string SkeletonOf(const Kernel& kernel);

// The kernel with arguments in place of numbers, by number of its text: which argument, counted
// from 0 without a gap, or -1. Numbers of one argument are of one type. It is named by its text.
Kernel LiftNumbers(const Kernel& kernel, std::vector<int> argument);

// What a launch hands over as the arguments of the lifted kernel. `literals`: the numbers of the
// kernel that it stands for.
std::vector<int32_t> WordsOf(const LiftedNumbers& lifted, absl::Span<const std::string> literals);

}  // namespace retrograd

#endif  // RETROGRAD_CODEGEN_PRINT_LIFT_NUMBERS_H_
