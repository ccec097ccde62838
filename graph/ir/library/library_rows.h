// The rows of library_ops.h, each defined in the file of its op.
#ifndef RETROGRAD_GRAPH_IR_LIBRARY_LIBRARY_ROWS_H_
#define RETROGRAD_GRAPH_IR_LIBRARY_LIBRARY_ROWS_H_

#include "graph/ir/library_ops.h"

namespace retrograd {

#define RG_LIBRARY_OP(OP, ROW) extern const LibraryOp ROW;
#include "graph/ir/library/library_ops.def"
#undef RG_LIBRARY_OP

}  // namespace retrograd

#endif  // RETROGRAD_GRAPH_IR_LIBRARY_LIBRARY_ROWS_H_
