// The blocks of a scatter_add that write the rows that no index names.
#ifndef RETROGRAD_CODEGEN_TEMPLATES_ROWS_WITHOUT_SUMS_H_
#define RETROGRAD_CODEGEN_TEMPLATES_ROWS_WITHOUT_SUMS_H_

#include "codegen/print/launch_text.h"
#include "codegen/templates/scatter_text.h"

namespace retrograd {

// Zeros, or what the sums are added onto. The blocks stand behind so many others, which sum.
void PrintRowsWithoutSums(const ScatterText& text, int64_t sum_blocks, LaunchText* launch);

}  // namespace retrograd

#endif  // RETROGRAD_CODEGEN_TEMPLATES_ROWS_WITHOUT_SUMS_H_
