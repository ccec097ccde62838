// The text of rows whose vectors leave elements at both ends
// (fusion/kernel/ir/accesses/vector_grid.h). A row's vectors begin at `head` and end before `tail`;
// end e of the row is element `e` in front of them, or one behind them.
#ifndef RETROGRAD_CODEGEN_PRINT_ROW_ENDS_H_
#define RETROGRAD_CODEGEN_PRINT_ROW_ENDS_H_

#include "codegen/print/point_printer.h"

namespace retrograd {

// "const int head = ..; const int tail = ..;" of the row whose axes are declared.
void DeclareEnds(const PointPrinter& vectors, LaunchText* launch);

// "const int c = ..;" of end e, and the opened "if" that it lies in the row and `condition` holds.
void OpenEnd(absl::string_view e, absl::string_view condition, LaunchText* launch);

}  // namespace retrograd

#endif  // RETROGRAD_CODEGEN_PRINT_ROW_ENDS_H_
