#include "runtime/devices/cuda_device.h"

#if !defined(RETROGRAD_HAVE_CUDA)

namespace retrograd {

absl::StatusOr<std::unique_ptr<Device>> MakeCudaDevice(const CudaDeviceOptions&) {
  return absl::UnavailableError(
      "this build has no cuda device: CMake found no CUDA headers (cuda.h, cublasLt.h): "
      "install the CUDA toolkit and build again");
}

}  // namespace retrograd

#else

#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/strip.h"
#include "graph/base/status.h"
#include "runtime/gpu/cuda/cuda_driver.h"
#include "runtime/gpu/cuda/cupti_trace.h"
#include "runtime/gpu/gpu_device.h"
#include "runtime/gpu/tma_descriptors.h"
#include "runtime/ops/attention/cuda_attention.h"
#include "runtime/ops/convolution/cuda_shared_products.h"
#include "runtime/ops/convolution/fallback_convolution.h"
#include "runtime/ops/grouped_matmul/tuned_grouped_matmul.h"
#include "runtime/ops/matmul/cublas_loader.h"
#include "runtime/ops/scatter_lines/generated_scatter_lines.h"
#include "runtime/ops/segment_amax/generated_segment_amax.h"
#include "runtime/ops/sort_indices/generated_sort.h"

namespace retrograd {
namespace {

class CudaDevice : public GpuDevice {
 public:
  CudaDevice(const GpuDriver& driver, const CudaDeviceOptions& options)
      : GpuDevice(driver, {.ordinal = options.ordinal,
                           .compile = options.compile,
                           .cache = options.cache,
                           .cache_dir = options.cache_dir,
                           .cache_bytes = options.cache_bytes,
                           .time_calls = options.time_calls,
                           .tuning = options.tuning,
                           .shared_kernels = options.shared_kernels}),
        options_(options) {}
  absl::Status Start();

  absl::string_view name() const override { return "cuda"; }
  Dialect dialect() const override { return Dialect::kCuda; }
  bool multiplies_with_epilogues() const override { return sm_ == 90 && DescribesOperands(); }
  bool loads_boxes() const override { return sm_ == 90 && DescribesImages(); }
  bool runs_clusters() const override { return sm_ >= 90; }

  absl::Status BeginTrace() override;
  absl::StatusOr<std::vector<TracedWork>> TakeTrace() override;
  void EndTrace() override { trace_.reset(); }

 private:
  const CudaDeviceOptions options_;
  int sm_ = 0;  // 90
  std::unique_ptr<CudaTrace> trace_;
};

absl::Status CudaDevice::Start() {
  RG_RETURN_IF_ERROR(GpuDevice::Start());
  RG_CHECK(absl::SimpleAtoi(absl::StripPrefix(facts().arch, "sm_"), &sm_));
  SetLoader(Op::matmul, MakeCublasLoader(*this, {.library = options_.cublas_library}));
  SetLoader(Op::grouped_matmul, MakeTunedGroupedMatMulLoader(*this));
  SetLoader(Op::scatter_lines, MakeGeneratedScatterLinesLoader(*this));
  SetLoader(Op::segment_amax, MakeGeneratedSegmentAmaxLoader(*this));
  // Where sizes vary, kernels of one size would be compiled again and again.
  const bool direct_sorts = options_.shared_kernels == nullptr;
  SetLoader(Op::sort_indices, MakeGeneratedSortLoader(*this, direct_sorts));
  SetSharedLoader(Op::sort_indices, MakeSharedSortLoader(*this, direct_sorts));
  SetLoader(Op::attention_backward, MakeCudaAttentionLoader(*this, sm_, options_.attention));
  const std::shared_ptr<CallLoader> convolutions = MakeCudaConvolutionLoader(
      *this, sm_, options_.convolution, MakeFallbackConvolutionLoader(*this));
  for (const Op op :
       {Op::convolution, Op::convolution_input_gradient, Op::convolution_weight_gradient}) {
    SetLoader(op, convolutions);
  }
  if (loads_boxes()) {
    const std::shared_ptr<SharedCallLoader> products = MakeCudaSharedProductsLoader(*this);
    for (const Op op : {Op::matmul, Op::convolution_weight_gradient}) SetSharedLoader(op, products);
  }
  return absl::OkStatus();
}

absl::Status CudaDevice::BeginTrace() {
  RG_WITH_CONTEXT();
  RG_ASSIGN_OR_RETURN(trace_, CudaTrace::Start(options_.cupti_library));
  return absl::OkStatus();
}

absl::StatusOr<std::vector<TracedWork>> CudaDevice::TakeTrace() {
  if (trace_ == nullptr) return absl::FailedPreconditionError("BeginTrace comes before TakeTrace");
  RG_RETURN_IF_ERROR(Synchronize());
  return trace_->Take();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Device>> MakeCudaDevice(const CudaDeviceOptions& options) {
  RG_ASSIGN_OR_RETURN(const GpuDriver* const driver, LoadCudaDriver(options.driver_library));
  auto device = std::make_unique<CudaDevice>(*driver, options);
  RG_RETURN_IF_ERROR(device->Start());
  return device;
}

}  // namespace retrograd

#endif  // RETROGRAD_HAVE_CUDA
