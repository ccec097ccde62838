// The rows of library_ops.h, each defined in the file of its op.
#ifndef RETROGRAD_GRAPH_IR_LIBRARY_LIBRARY_ROWS_H_
#define RETROGRAD_GRAPH_IR_LIBRARY_LIBRARY_ROWS_H_

#include "graph/ir/library_ops.h"

namespace retrograd {

extern const LibraryOp kMatMulOp;
extern const LibraryOp kAttentionBackwardOp;
extern const LibraryOp kConvolutionOp;
extern const LibraryOp kConvolutionInputGradientOp;
extern const LibraryOp kConvolutionWeightGradientOp;

}  // namespace retrograd

#endif  // RETROGRAD_GRAPH_IR_LIBRARY_LIBRARY_ROWS_H_
