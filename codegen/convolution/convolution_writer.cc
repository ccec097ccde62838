#include "codegen/convolution/convolution_writer.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "codegen/print/dialect.h"
#include "fusion/kernel/ir/scale.h"

namespace retrograd {

ConvolutionWriter::ConvolutionWriter(const ConvolutionCall& call, Dialect dialect,
                                     absl::string_view what)
    : LaunchWriter(dialect, absl::StrCat(Name(call.op), ", ", what)),
      call_(call),
      sum_(ComputeType(call.y.dtype) == DType::kFp64 ? DType::kFp64 : DType::kFp32) {
  StartsEarly();
}

void ConvolutionWriter::Geometry() {
  out().Line("typedef ", ComputeName(sum_), " sum_t;");
  out().Line("typedef ", StorageName(call_.y.dtype), " kept_t;");
  for (int d = 0; d < kSpatialDims; ++d) {
    Constants({{absl::StrCat("kIn", d), call_.in[d]},
               {absl::StrCat("kOut", d), call_.out[d]},
               {absl::StrCat("kKernel", d), call_.kernel[d]},
               {absl::StrCat("kStride", d), call_.stride[d]},
               {absl::StrCat("kPadding", d), call_.padding[d]},
               {absl::StrCat("kDilation", d), call_.dilation[d]}});
  }
  Constants({{"kChannels", call_.geometry.in_channels},
             {"kFilters", call_.geometry.out_channels},
             {"kMultiplier", call_.out_channels_of_group()},
             {"kTaps", Product({call_.kernel[0], call_.kernel[1], call_.kernel[2]})}});
  Strides("kX", call_.x);
  Strides("kW", call_.w);
  Strides("kY", call_.y);
}

void ConvolutionWriter::Strides(absl::string_view prefix, const ConvolutionTensor& t) {
  const auto constant = [&](absl::string_view name, int64_t value) {
    return absl::StrCat(prefix, name, " = ", value);
  };
  out().Line("[[maybe_unused]] constexpr int64_t ", constant("First", t.offset), ", ",
             constant("StrideN", t.strides[0]), ", ", constant("StrideC", t.strides[1]), ", ",
             constant("Stride0", t.strides[2]), ", ", constant("Stride1", t.strides[3]), ", ",
             constant("Stride2", t.strides[4]), ";");
}

ConvolutionKernels::Launch ConvolutionWriter::End(int64_t blocks, int64_t threads) {
  LaunchWriter::Launch written = LaunchWriter::End(blocks, threads);
  ConvolutionKernels::Launch launch{.kernel = std::move(written.kernel)};
  for (int slot : written.slots) launch.args.push_back(static_cast<ConvolutionSlot>(slot));
  return launch;
}

}  // namespace retrograd
