// The parts of the preludes of CUDA and HIP, each a text of one subject. gpu_prelude.cc says which
// of them a dialect has and in which order: later parts use what earlier ones define.
#ifndef RETROGRAD_CODEGEN_PRELUDES_GPU_PARTS_H_
#define RETROGRAD_CODEGEN_PRELUDES_GPU_PARTS_H_

namespace retrograd {

// What CUDA spells in a way of its own.
extern const char kCudaDialect[];     // integer types, launches, warps, words, addresses
extern const char kCudaBf16[];        // types of fp8 and bf16, conversions of bf16, max and min
extern const char kCudaCopies[];      // asynchronous copies into shared memory
extern const char kCudaFp16AndFp8[];  // conversions; of fp8 where there are instructions for them
extern const char kCudaFunctions[];   // erf and exp, of fewer instructions than the library has

// What HIP spells in a way of its own: all of the above.
extern const char kHipDialect[];

// What is the same in both.
extern const char kKernelSignature[];  // arguments, shared memory, members of shared launches
extern const char kFp8Numbers[];       // conversions of fp8 by integer arithmetic
extern const char kNumberTypes[];      // what other types are computed in, and stored as
extern const char kVectorLoads[];      // one element or several, aligned or not, once or again
extern const char kVectorStores[];     // the same for stores; narrowing of several elements
extern const char kArithmetic[];       // what instructions of the kernel IR call

}  // namespace retrograd

#endif  // RETROGRAD_CODEGEN_PRELUDES_GPU_PARTS_H_
