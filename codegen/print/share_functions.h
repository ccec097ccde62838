// Kernels of one launch that differ in sizes alone, as one function: each list of indices has a
// size of its own, and a function for each would take as long to compile and as much of the
// instruction cache as they are many.
#ifndef RETROGRAD_CODEGEN_PRINT_SHARE_FUNCTIONS_H_
#define RETROGRAD_CODEGEN_PRINT_SHARE_FUNCTIONS_H_

#include <vector>

#include "codegen/print/kernel.h"

namespace retrograd {

// Neighbours with one skeleton (codegen/print/lift_numbers.h) become equal kernels, for
// codegen/print/merge_kernels.h: their function has a table of the sizes in which they differ, and
// finds its row by its first argument. Each has the blocks of the largest, and those that it has
// too many of return at once. The kernels have no members, and all that they have of arguments are
// pointers.
void ShareFunctions(std::vector<Kernel>& kernels);

}  // namespace retrograd

#endif  // RETROGRAD_CODEGEN_PRINT_SHARE_FUNCTIONS_H_
