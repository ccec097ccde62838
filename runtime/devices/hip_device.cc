#include "runtime/devices/hip_device.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "graph/base/status.h"
#include "runtime/gpu/gpu_device.h"
#include "runtime/gpu/hip/hip_driver.h"
#include "runtime/ops/attention/fallback_attention.h"
#include "runtime/ops/matmul/hipblaslt_matmul.h"

namespace retrograd {
namespace {

struct HipAttention : LoadedCall {
  using LoadedCall::LoadedCall;
  std::unique_ptr<LoadedKernels> kernels;
  size_t launches = 0;
};

class HipDevice : public GpuDevice {
 public:
  HipDevice(const GpuDriver& driver, const HipDeviceOptions& options)
      : GpuDevice(driver, {.ordinal = options.ordinal,
                           .compile = options.compile,
                           .cache = options.cache,
                           .cache_dir = options.cache_dir,
                           .cache_bytes = options.cache_bytes}),
        options_(options) {}
  ~HipDevice() override;
  absl::Status Start() { return GpuDevice::Start(); }

  absl::string_view name() const override { return "hip"; }
  Dialect dialect() const override { return Dialect::kHip; }

  using GpuDevice::Load;
  absl::StatusOr<std::unique_ptr<LoadedCall>> Load(const AttentionCall& call,
                                                   const AttentionFacts& facts) override;
  absl::Status AttentionBackward(int stream, LoadedCall& call, const AttentionPointers& pointers,
                                 void* scratch) override;

 protected:
  absl::StatusOr<std::shared_ptr<const LibraryMatMul>> PrepareMatMul(
      const MatMulCall& call, const MatMulFacts& facts) override;

 private:
  const HipDeviceOptions options_;
  std::unique_ptr<HipblasltMatMuls> matmuls_;  // when the first matmul is loaded
  absl::Status no_matmuls_;                    // why there are none, once tried
};

HipDevice::~HipDevice() {
  if (!open()) return;
  const CurrentContext current(driver(), context());
  if (current.status().ok()) matmuls_.reset();
}

// Without the library matmuls run through a kernel of ours: correct, and slow.
absl::StatusOr<std::shared_ptr<const LibraryMatMul>> HipDevice::PrepareMatMul(
    const MatMulCall& call, const MatMulFacts& facts) {
  if (matmuls_ == nullptr) {
    RG_RETURN_IF_ERROR(no_matmuls_);
    absl::StatusOr<std::unique_ptr<HipblasltMatMuls>> made =
        HipblasltMatMuls::Create(options_.hipblaslt_library);
    if (absl::IsUnavailable(made.status())) {
      return no_matmuls_ = absl::UnimplementedError(made.status().message());
    }
    RG_RETURN_IF_ERROR(made.status());
    matmuls_ = *std::move(made);
  }
  return matmuls_->Prepare(
      {.driver = driver(),
       .stream = OwnStream(),
       .device = absl::StrCat(GpuDevice::facts().model, " ", GpuDevice::facts().arch),
       .cache = Cache(),
       .time = options_.time_matmuls},
      call, facts);
}

absl::StatusOr<std::unique_ptr<LoadedCall>> HipDevice::Load(const AttentionCall& call,
                                                            const AttentionFacts& facts) {
  RG_ASSIGN_OR_RETURN(const FallbackAttention fallback,
                      MakeFallbackAttention(call, facts.operand_dtypes, dialect()));
  auto loaded = std::make_unique<HipAttention>(fallback.scratch_bytes);
  RG_ASSIGN_OR_RETURN(loaded->kernels, Load(fallback.source, fallback.launches));
  loaded->launches = fallback.launches.size();
  return loaded;
}

absl::Status HipDevice::AttentionBackward(int stream, LoadedCall& call,
                                          const AttentionPointers& pointers, void* scratch) {
  auto& attention = static_cast<HipAttention&>(call);
  return RunFallbackAttention(*this, stream, *attention.kernels, attention.launches, pointers,
                              scratch);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Device>> MakeHipDevice(const HipDeviceOptions& options) {
  RG_ASSIGN_OR_RETURN(const GpuDriver* const driver, LoadHipDriver(options.driver_library));
  auto device = std::make_unique<HipDevice>(*driver, options);
  RG_RETURN_IF_ERROR(device->Start());
  return device;
}

}  // namespace retrograd
