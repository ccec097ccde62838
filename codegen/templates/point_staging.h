// Copies of the rows of a block's points into shared memory
// (fusion/kernel/ir/accesses/point_rows.h).
#ifndef RETROGRAD_CODEGEN_TEMPLATES_POINT_STAGING_H_
#define RETROGRAD_CODEGEN_TEMPLATES_POINT_STAGING_H_

#include "codegen/print/point_printer.h"

namespace retrograd {

// The block, whose threads have one of `points` points each, copies all rows that its points read
// and waits for them. The printer takes their elements from there.
void StageRowsOfPoints(int64_t points, LaunchText* launch, PointPrinter* printer);

}  // namespace retrograd

#endif  // RETROGRAD_CODEGEN_TEMPLATES_POINT_STAGING_H_
