// The text of implicit GEMM kernels, in parts: emit_implicit_gemm.cc says which of them a kernel
// has, and prints the constants (kRows, ..) that they are written with. "RG_UNROLL" lines become
// the dialect's.
#ifndef RETROGRAD_CODEGEN_CONVOLUTION_IMPLICIT_GEMM_TEXT_H_
#define RETROGRAD_CODEGEN_CONVOLUTION_IMPLICIT_GEMM_TEXT_H_

namespace retrograd {

// Which tile, split and group a block makes.
extern const char kGemmHead[];

// What of each step a thread copies.
extern const char kGemmCopies[];

// Define `steps`, `begin`, `end`, and copy(to, piece), which sends one of kPieces pieces of a
// step's copies off, and advance(), which goes on to the next step.
extern const char kGemmInputPlaces[];      // of the input's gradient, with one of the next two
extern const char kGemmInputWholeSteps[];  // where no step has parts of two taps
extern const char kGemmInputAnySteps[];
extern const char kGemmWeightPlaces[];  // of the weight's gradient

// codegen/tile_products/tile_product_text.h follows, and leaves the tile's sums in `results`. Where
// operands are loaded by boxes, implicit_gemm_boxes.h has the place of all this.

// Store them by place(..).
extern const char kGemmStoreInput[];
extern const char kGemmStoreWeight[];

// A launch of its own, in this order; the second where threads share an element.
extern const char kGemmAddSplits[];
extern const char kGemmAddParts[];
extern const char kGemmStoreAdded[];

}  // namespace retrograd

#endif  // RETROGRAD_CODEGEN_CONVOLUTION_IMPLICIT_GEMM_TEXT_H_
