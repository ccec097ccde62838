// The text of implicit GEMM kernels whose operands a copy engine loads by boxes, in the place of
// those parts of implicit_gemm_text.h that copy, multiply and number the columns.
#ifndef RETROGRAD_CODEGEN_CONVOLUTION_IMPLICIT_GEMM_BOXES_H_
#define RETROGRAD_CODEGEN_CONVOLUTION_IMPLICIT_GEMM_BOXES_H_

namespace retrograd {

// Define `steps`, `begin`, `end`, and load(at, stage), by which one thread asks for the boxes of
// the next step.
extern const char kBoxInputSteps[];   // of the input's gradient
extern const char kBoxWeightSteps[];  // of the weight's

// Leaves the tile's sums in `results`.
extern const char kBoxProduct[];

// Stores them by place(..), in the place of kGemmStoreWeight: a box has channels of one tap.
extern const char kBoxStoreWeight[];

}  // namespace retrograd

#endif  // RETROGRAD_CODEGEN_CONVOLUTION_IMPLICIT_GEMM_BOXES_H_
