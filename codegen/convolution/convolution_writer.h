// Writes one launch of a convolution: its arguments, the geometry as constants, and its text.
#ifndef RETROGRAD_CODEGEN_CONVOLUTION_CONVOLUTION_WRITER_H_
#define RETROGRAD_CODEGEN_CONVOLUTION_CONVOLUTION_WRITER_H_

#include <string>
#include <vector>

#include "codegen/convolution/convolution_kernels.h"
#include "codegen/print/dialect.h"
#include "codegen/print/source_writer.h"
#include "fusion/ops/convolution/convolution_call.h"

namespace retrograd {

class ConvolutionWriter {
 public:
  // what: "depthwise", for the line above the kernel.
  ConvolutionWriter(const ConvolutionCall& call, Dialect dialect, absl::string_view what);

  const ConvolutionCall& call() const { return call_; }
  Dialect dialect() const { return dialect_; }
  // In which products are added up: fp64 of fp64, else fp32.
  DType sum_dtype() const { return sum_; }
  SourceWriter& out() { return out_; }

  // The next argument. Results are written, all others are read.
  void Read(DType dtype, absl::string_view name, ConvolutionSlot slot);
  void Write(DType dtype, absl::string_view name, ConvolutionSlot slot);

  // An array of sums that a block shares.
  void Shared(absl::string_view name, int64_t elements);
  // An array of memory that the launch asks for, from its first byte on. Arrays may overlap.
  void Staged(DType dtype, absl::string_view name, int64_t elements);
  void Uses(PreludePart part) { launch_.kernel.parts |= part; }

  struct Constant {
    std::string name;
    int64_t value;
  };
  void Constants(const std::vector<Constant>& constants);
  // kIn0, kOut0, kKernel0, .., kXStride0, .., kChannels, kFilters, the types sum_t and kept_t.
  void Geometry();
  // As it stands, but for the dialect's word before loops that are unrolled: "RG_UNROLL": all of
  // the loop; "RG_UNROLL_8", "RG_UNROLL_kN": so many rounds at once.
  void Text(absl::string_view text);

  ConvolutionKernels::Launch End(int64_t blocks, int64_t threads);

 private:
  void Argument(std::string type, absl::string_view name, ConvolutionSlot slot);
  void Strides(absl::string_view prefix, const ConvolutionTensor& t);
  std::string Unrolled(absl::string_view word) const;

  const ConvolutionCall& call_;
  const Dialect dialect_;
  const DType sum_;
  const absl::string_view unroll_;
  SourceWriter out_;
  ConvolutionKernels::Launch launch_;
};

}  // namespace retrograd

#endif  // RETROGRAD_CODEGEN_CONVOLUTION_CONVOLUTION_WRITER_H_
