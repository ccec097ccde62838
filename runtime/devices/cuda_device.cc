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

#include <cstring>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "graph/base/status.h"
#include "runtime/gpu/cuda/cuda_driver.h"
#include "runtime/gpu/cuda/cupti_trace.h"
#include "runtime/gpu/gpu_device.h"
#include "runtime/gpu/tma_descriptors.h"
#include "runtime/ops/matmul/cublas_matmul.h"

namespace retrograd {
namespace {

// What was found to be fastest before. False if nothing was, or if it does not hold any more.
bool ReadChoice(const ModuleCache& cache, absl::string_view key, CublasMatMul* matmul) {
  const std::optional<std::string> entry = cache.Read(key);
  CublasMatMul::Choice choice;
  if (!entry.has_value() || entry->size() != sizeof choice) return false;
  std::memcpy(&choice, entry->data(), sizeof choice);
  return matmul->Choose(choice);
}

void WriteChoice(const ModuleCache& cache, absl::string_view key, const CublasMatMul& matmul) {
  const CublasMatMul::Choice& choice = matmul.choice();
  cache.Write(key, {reinterpret_cast<const char*>(&choice), sizeof choice}).IgnoreError();
}

class CudaDevice : public GpuDevice {
 public:
  CudaDevice(const GpuDriver& driver, const CudaDeviceOptions& options)
      : GpuDevice(driver, {.ordinal = options.ordinal,
                           .compile = options.compile,
                           .cache = options.cache,
                           .cache_dir = options.cache_dir,
                           .cache_bytes = options.cache_bytes}),
        options_(options) {}
  ~CudaDevice() override;
  absl::Status Start();

  absl::string_view name() const override { return "cuda"; }
  Dialect dialect() const override { return Dialect::kCuda; }
  bool multiplies_with_epilogues() const override { return sm_ == 90 && DescribesOperands(); }

  using GpuDevice::Load;
  absl::StatusOr<std::unique_ptr<LoadedCall>> Load(const AttentionCall& call,
                                                   const AttentionFacts& facts) override;
  absl::Status AttentionBackward(int stream, LoadedCall& call, const AttentionPointers& pointers,
                                 void* scratch) override;
  absl::Status BeginTrace() override;
  absl::StatusOr<std::vector<TracedWork>> TakeTrace() override;
  void EndTrace() override { trace_.reset(); }

 protected:
  absl::StatusOr<std::shared_ptr<const LibraryMatMul>> PrepareMatMul(
      const MatMulCall& call, const MatMulFacts& facts) override;

 private:
  const CudaDeviceOptions options_;
  int sm_ = 0;                             // 90
  const CublasLibrary* cublas_ = nullptr;  // both when the first matmul is loaded
  cublasLtHandle_t cublas_handle_ = nullptr;
  std::map<std::string, std::shared_ptr<const CublasMatMul>> matmuls_;  // by key
  std::unique_ptr<CudaAttention> attention_;
  std::unique_ptr<CudaTrace> trace_;
};

CudaDevice::~CudaDevice() {
  if (!open()) return;
  matmuls_.clear();
  const CurrentContext current(driver(), context());
  if (!current.status().ok()) return;
  attention_.reset();
  if (cublas_handle_ != nullptr) cublas_->Destroy(cublas_handle_);
}

absl::Status CudaDevice::Start() {
  RG_RETURN_IF_ERROR(GpuDevice::Start());
  RG_CHECK(absl::SimpleAtoi(absl::StripPrefix(facts().arch, "sm_"), &sm_));
  attention_ = std::make_unique<CudaAttention>(options_.attention);
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<const LibraryMatMul>> CudaDevice::PrepareMatMul(
    const MatMulCall& call, const MatMulFacts& facts) {
  const std::string key = MatMulKey(call, facts);
  if (const auto known = matmuls_.find(key); known != matmuls_.end()) return known->second;
  if (cublas_ == nullptr) {
    RG_ASSIGN_OR_RETURN(cublas_, LoadCublas(options_.cublas_library));
  }
  if (cublas_handle_ == nullptr) {
    RG_RETURN_IF_ERROR(CublasStatus(*cublas_, cublas_->Create(&cublas_handle_), "cublasLtCreate"));
  }
  RG_ASSIGN_OR_RETURN(std::shared_ptr<CublasMatMul> made,
                      CublasMatMul::Make(*cublas_, cublas_handle_, call, facts));
  // A choice is the device's and the library's.
  const std::string entry =
      absl::StrCat("retrograd cublaslt choice 1\n", GpuDevice::facts().model, " ",
                   GpuDevice::facts().arch, "\n", cublas_->GetVersion(), "\n", key);
  if (options_.time_matmuls && !(Cache() != nullptr && ReadChoice(*Cache(), entry, made.get()))) {
    const absl::Status timed = ChooseByTiming(driver(), OwnStream(), call, made.get());
    // Without the memory for a measurement the library's favourite does.
    if (!timed.ok() && !absl::IsResourceExhausted(timed)) return timed;
    if (timed.ok() && Cache() != nullptr) WriteChoice(*Cache(), entry, *made);
  }
  matmuls_[key] = made;
  return made;
}

absl::StatusOr<std::unique_ptr<LoadedCall>> CudaDevice::Load(const AttentionCall& call,
                                                             const AttentionFacts& facts) {
  RG_WITH_CONTEXT();
  return attention_->Load({*this, sm_, GpuDevice::facts().model, Stream(0), Cache()}, call, facts);
}

absl::Status CudaDevice::AttentionBackward(int stream, LoadedCall& call,
                                           const AttentionPointers& pointers, void* scratch) {
  RG_WITH_CONTEXT();
  return static_cast<CudaAttentionCall&>(call).Run(*this, stream, Stream(stream), pointers,
                                                   scratch);
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
