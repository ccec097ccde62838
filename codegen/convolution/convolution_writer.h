// Writes one launch of a convolution: its arguments, the geometry as constants, and its text.
#ifndef RETROGRAD_CODEGEN_CONVOLUTION_CONVOLUTION_WRITER_H_
#define RETROGRAD_CODEGEN_CONVOLUTION_CONVOLUTION_WRITER_H_

#include <string>
#include <vector>

#include "codegen/convolution/convolution_kernels.h"
#include "codegen/print/launch_writer.h"
#include "fusion/ops/convolution/convolution_call.h"

namespace retrograd {

// Arguments' slots are ConvolutionSlots. Results are written, all others are read.
class ConvolutionWriter : public LaunchWriter {
 public:
  // what: "depthwise", for the line above the kernel.
  ConvolutionWriter(const ConvolutionCall& call, Dialect dialect, absl::string_view what);

  const ConvolutionCall& call() const { return call_; }
  // In which products are added up: fp64 of fp64, else fp32.
  DType sum_dtype() const { return sum_; }

  // An array of sums that a block shares.
  void SharedSums(absl::string_view name, int64_t elements) { Shared(sum_, name, elements); }
  // kIn0, kOut0, kKernel0, .., kXStride0, .., kChannels, kFilters, the types sum_t and kept_t.
  void Geometry();

  ConvolutionKernels::Launch End(int64_t blocks, int64_t threads);

 private:
  void Strides(absl::string_view prefix, const ConvolutionTensor& t);

  const ConvolutionCall& call_;
  const DType sum_;
};

}  // namespace retrograd

#endif  // RETROGRAD_CODEGEN_CONVOLUTION_CONVOLUTION_WRITER_H_
