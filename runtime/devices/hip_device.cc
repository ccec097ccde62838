#include "runtime/devices/hip_device.h"

#include <utility>

#include "graph/base/status.h"
#include "runtime/gpu/gpu_device.h"
#include "runtime/gpu/hip/hip_driver.h"
#include "runtime/ops/attention/fallback_attention.h"
#include "runtime/ops/convolution/fallback_convolution.h"
#include "runtime/ops/convolution/generated_convolution.h"
#include "runtime/ops/grouped_matmul/generated_grouped_matmul.h"
#include "runtime/ops/matmul/hipblaslt_loader.h"
#include "runtime/ops/scatter_lines/generated_scatter_lines.h"
#include "runtime/ops/segment_amax/generated_segment_amax.h"
#include "runtime/ops/sort_indices/generated_sort.h"

namespace retrograd {
namespace {

class HipDevice : public GpuDevice {
 public:
  HipDevice(const GpuDriver& driver, const HipDeviceOptions& options)
      : GpuDevice(driver, {.ordinal = options.ordinal,
                           .compile = options.compile,
                           .cache = options.cache,
                           .cache_dir = options.cache_dir,
                           .cache_bytes = options.cache_bytes,
                           .time_calls = options.time_calls,
                           .tuning = options.tuning,
                           .shared_kernels = options.shared_kernels}),
        options_(options) {}
  absl::Status Start() {
    RG_RETURN_IF_ERROR(GpuDevice::Start());
    SetLoader(Op::matmul, MakeHipblasltLoader(*this, {.library = options_.hipblaslt_library}));
    SetLoader(Op::grouped_matmul, MakeGeneratedGroupedMatMulLoader(*this));
    SetLoader(Op::scatter_lines, MakeGeneratedScatterLinesLoader(*this));
    SetLoader(Op::segment_amax, MakeGeneratedSegmentAmaxLoader(*this));
    // Where sizes vary, kernels of one size would be compiled again and again.
    const bool direct_sorts = options_.shared_kernels == nullptr;
    SetLoader(Op::sort_indices, MakeGeneratedSortLoader(*this, direct_sorts));
    SetSharedLoader(Op::sort_indices, MakeSharedSortLoader(*this, direct_sorts));
    SetLoader(Op::attention_backward, MakeFallbackAttentionLoader(*this));
    for (Op op :
         {Op::convolution, Op::convolution_input_gradient, Op::convolution_weight_gradient}) {
      SetLoader(op, MakeGeneratedConvolutionLoader(*this, MakeFallbackConvolutionLoader(*this)));
    }
    return absl::OkStatus();
  }

  absl::string_view name() const override { return "hip"; }
  Dialect dialect() const override { return Dialect::kHip; }
  bool runs_clusters() const override { return false; }

 private:
  const HipDeviceOptions options_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Device>> MakeHipDevice(const HipDeviceOptions& options) {
  RG_ASSIGN_OR_RETURN(const GpuDriver* const driver, LoadHipDriver(options.driver_library));
  auto device = std::make_unique<HipDevice>(*driver, options);
  RG_RETURN_IF_ERROR(device->Start());
  return device;
}

}  // namespace retrograd
