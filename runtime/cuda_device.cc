#include "runtime/cuda_device.h"

#if !defined(RETROGRAD_HAVE_CUDA)

namespace retrograd {

absl::StatusOr<std::unique_ptr<Device>> MakeCudaDevice(const CudaDeviceOptions&) {
  return absl::UnavailableError(
      "this build has no cuda device: CMake found no CUDA headers (cuda.h, cublasLt.h); install the "
      "CUDA toolkit and build again");
}

}  // namespace retrograd

#else

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "codegen/kernel.h"
#include "graph/status.h"
#include "runtime/cublas_matmul.h"
#include "runtime/cuda_api.h"
#include "runtime/cuda_kernels.h"
#include "runtime/cuda_support_kernels.h"
#include "runtime/fallback_matmul.h"

namespace retrograd {
namespace {

#define RG_WITH_CONTEXT()                             \
  const CurrentContext rg_current(driver_, context_); \
  RG_RETURN_IF_ERROR(rg_current.status())

// A matmul by the library or, where it refuses, by a kernel of ours.
struct CudaMatMul : LoadedCall {
  using LoadedCall::LoadedCall;
  std::shared_ptr<const CublasMatMul> library;
  int64_t offsets[3] = {};  // of a, b and d, in elements
  std::unique_ptr<CudaKernels> fallback;
};

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

class CudaDevice : public Device {
 public:
  CudaDevice(const CudaDriver& driver, const CudaDeviceOptions& options)
      : driver_(driver), options_(options) {}
  ~CudaDevice() override;
  absl::Status Start();

  absl::string_view name() const override { return "cuda"; }
  Dialect dialect() const override { return Dialect::kCuda; }

  absl::StatusOr<void*> Allocate(int64_t bytes) override;
  void Free(void* data) override;
  absl::Status CopyIn(void* device, const void* host, int64_t bytes) override;
  absl::Status CopyOut(void* host, const void* device, int64_t bytes) override;

  absl::Status Reserve(int streams, int events) override;
  absl::StatusOr<std::unique_ptr<LoadedKernels>> Load(
      absl::string_view source, absl::Span<const retrograd::Launch> launches) override;
  absl::StatusOr<std::unique_ptr<LoadedCall>> Load(const MatMulCall& call,
                                                   const MatMulFacts& facts) override;
  absl::StatusOr<std::unique_ptr<LoadedCall>> Load(
      const AttentionCall& call, absl::Span<const DType> operand_dtypes) override;

  absl::Status UseStream(std::optional<void*> native) override;
  absl::Status Bind(int stream, LoadedKernels& kernels, absl::Span<void* const> table) override;
  absl::Status Launch(int stream, LoadedKernels& kernels, size_t launch) override;
  absl::Status MatMul(int stream, LoadedCall& call, const MatMulPointers& pointers,
                      void* scratch) override;
  absl::Status AttentionBackward(int stream, LoadedCall& call, const AttentionPointers& pointers,
                                 void* scratch) override;
  absl::Status CopyStrided(int stream, DType dtype, absl::Span<const int64_t> shape, void* to,
                           absl::Span<const int64_t> to_strides, const void* from,
                           absl::Span<const int64_t> from_strides) override;
  absl::Status Record(int stream, int event) override;
  absl::Status Wait(int stream, int event) override;
  absl::Status Synchronize() override;
  bool records() const override { return true; }
  absl::Status BeginRecording() override;
  absl::StatusOr<std::unique_ptr<Recording>> EndRecording(std::unique_ptr<Recording> old) override;
  absl::Status Replay(Recording& recording) override;
  absl::StatusOr<bool> CallerRecords() override;
  absl::StatusOr<TimeSamples> Time(absl::FunctionRef<absl::Status()> work, int repetitions,
                                   bool cold) override;

 private:
  const ModuleCache* Cache() const { return cache_ ? &*cache_ : nullptr; }
  absl::StatusOr<int> Attribute(CUdevice_attribute attribute) const;
  absl::StatusOr<std::unique_ptr<CudaKernels>> LoadKernels(
      absl::string_view source, absl::Span<const retrograd::Launch> launches);
  absl::StatusOr<std::shared_ptr<const CublasMatMul>> LibraryMatMul(const MatMulCall& call,
                                                                    const MatMulFacts& facts);
  absl::Status TimeOnce(absl::FunctionRef<absl::Status()> work, int64_t spin_cycles,
                        CUdeviceptr flushed, size_t flushed_bytes, CUevent begin, CUevent end,
                        double* microseconds);
  // A recording is made on streams of the device's own.
  CUstream Stream(int stream) const {
    return stream == 0 && caller_ && !recording_ ? static_cast<CUstream>(*caller_) : streams_[stream];
  }

  const CudaDriver& driver_;
  const CudaDeviceOptions options_;
  std::optional<ModuleCache> cache_;
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
  int sm_ = 0;        // 90
  std::string arch_;  // "sm_90"
  std::string model_;  // "NVIDIA H200"
  std::vector<CUstream> streams_;
  std::vector<CUevent> events_;
  std::optional<void*> caller_;  // the caller's stream, in place of streams_[0]
  bool recording_ = false;
  std::unique_ptr<CudaKernels> support_;
  CUfunction set_table_ = nullptr, copy_strided_ = nullptr, spin_ = nullptr;
  const CublasLibrary* cublas_ = nullptr;  // both when the first matmul is loaded
  cublasLtHandle_t cublas_handle_ = nullptr;
  std::map<std::string, std::shared_ptr<const CublasMatMul>> matmuls_;  // by key
  std::unique_ptr<CudaAttention> attention_;
};

CudaDevice::~CudaDevice() {
  if (context_ == nullptr) return;
  support_.reset();
  matmuls_.clear();
  {
    const CurrentContext current(driver_, context_);
    if (current.status().ok()) {
      attention_.reset();
      if (cublas_handle_ != nullptr) cublas_->Destroy(cublas_handle_);
      for (CUevent event : events_) driver_.EventDestroy(event);
      for (CUstream stream : streams_) driver_.StreamDestroy(stream);
    }
  }
  driver_.DevicePrimaryCtxRelease(device_);
}

absl::StatusOr<int> CudaDevice::Attribute(CUdevice_attribute attribute) const {
  int value = 0;
  RG_CUDA(driver_, DeviceGetAttribute, &value, attribute, device_);
  return value;
}

absl::Status CudaDevice::Start() {
  int devices = 0;
  RG_CUDA(driver_, DeviceGetCount, &devices);
  if (options_.ordinal < 0 || options_.ordinal >= devices) {
    return absl::UnavailableError(absl::StrFormat(
        "cuda:%d: the driver shows %d devices, numbered from 0", options_.ordinal, devices));
  }
  RG_CUDA(driver_, DeviceGet, &device_, options_.ordinal);
  char name[256] = {};
  RG_CUDA(driver_, DeviceGetName, name, sizeof name, device_);
  model_ = name;
  RG_ASSIGN_OR_RETURN(const int major, Attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR));
  RG_ASSIGN_OR_RETURN(const int minor, Attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR));
  sm_ = 10 * major + minor;
  arch_ = absl::StrCat("sm_", sm_);
  if (major < 8) {
    return absl::UnimplementedError(absl::StrCat(
        "cuda:", options_.ordinal, " (", model_, ") is ", arch_, ": kernels want sm_80 or later"));
  }
  if (options_.cache) {
    absl::StatusOr<ModuleCache> opened = ModuleCache::Open(
        options_.cache_dir.empty() ? ModuleCache::DefaultDirectory("cuda") : options_.cache_dir,
        options_.cache_bytes);
    if (opened.ok()) cache_ = *std::move(opened);  // no reason to fail
  }
  RG_CUDA(driver_, DevicePrimaryCtxRetain, &context_, device_);
  RG_WITH_CONTEXT();
  RG_RETURN_IF_ERROR(Reserve(1, 0));
  attention_ = std::make_unique<CudaAttention>(options_.attention);
  RG_ASSIGN_OR_RETURN(const CompiledObject object,
                      CompileCudaCached(kCudaSupportKernels, arch_, options_.compile.rtc, Cache()));
  support_ = std::make_unique<CudaKernels>(driver_, context_);
  RG_RETURN_IF_ERROR(support_->AddModule(object.code));
  RG_ASSIGN_OR_RETURN(set_table_, support_->Find("rg_set_table"));
  RG_ASSIGN_OR_RETURN(copy_strided_, support_->Find("rg_copy_strided"));
  RG_ASSIGN_OR_RETURN(spin_, support_->Find("rg_spin"));
  return absl::OkStatus();
}

absl::StatusOr<void*> CudaDevice::Allocate(int64_t bytes) {
  if (bytes == 0) return nullptr;
  RG_WITH_CONTEXT();
  CUdeviceptr data = 0;
  const CUresult result = driver_.MemAlloc(&data, static_cast<size_t>(bytes));
  if (result == CUDA_ERROR_OUT_OF_MEMORY) {
    size_t free = 0, total = 0;
    driver_.MemGetInfo(&free, &total);
    return absl::ResourceExhaustedError(
        absl::StrFormat("%d bytes of memory asked for; of the %d of cuda:%d %d are free", bytes,
                        total, options_.ordinal, free));
  }
  RG_RETURN_IF_ERROR(CudaStatus(driver_, result, "cuMemAlloc"));
  return reinterpret_cast<void*>(data);
}

void CudaDevice::Free(void* data) {
  if (data == nullptr) return;
  const CurrentContext current(driver_, context_);
  if (current.status().ok()) driver_.MemFree(reinterpret_cast<CUdeviceptr>(data));
}

absl::Status CudaDevice::CopyIn(void* device, const void* host, int64_t bytes) {
  RG_WITH_CONTEXT();
  if (bytes == 0) return absl::OkStatus();
  RG_CUDA(driver_, MemcpyHtoDAsync, reinterpret_cast<CUdeviceptr>(device), host,
          static_cast<size_t>(bytes), Stream(0));
  RG_CUDA(driver_, StreamSynchronize, Stream(0));
  return absl::OkStatus();
}

absl::Status CudaDevice::CopyOut(void* host, const void* device, int64_t bytes) {
  RG_WITH_CONTEXT();
  if (bytes == 0) return absl::OkStatus();
  RG_CUDA(driver_, MemcpyDtoHAsync, host, reinterpret_cast<CUdeviceptr>(device),
          static_cast<size_t>(bytes), Stream(0));
  RG_CUDA(driver_, StreamSynchronize, Stream(0));
  return absl::OkStatus();
}

absl::Status CudaDevice::Reserve(int streams, int events) {
  RG_WITH_CONTEXT();
  while (static_cast<int>(streams_.size()) < streams) {
    CUstream stream = nullptr;
    RG_CUDA(driver_, StreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    streams_.push_back(stream);
  }
  while (static_cast<int>(events_.size()) < events) {
    CUevent event = nullptr;
    RG_CUDA(driver_, EventCreate, &event, CU_EVENT_DISABLE_TIMING);
    events_.push_back(event);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<CudaKernels>> CudaDevice::LoadKernels(
    absl::string_view source, absl::Span<const retrograd::Launch> launches) {
  auto loaded = std::make_unique<CudaKernels>(driver_, context_);
  if (!launches.empty()) {
    RG_ASSIGN_OR_RETURN(const std::vector<CompiledObject> objects,
                        CompileCudaParts(source, arch_, options_.compile, Cache()));
    for (const CompiledObject& object : objects) RG_RETURN_IF_ERROR(loaded->AddModule(object.code));
  }
  RG_RETURN_IF_ERROR(loaded->Prepare(launches));
  return loaded;
}

absl::StatusOr<std::unique_ptr<LoadedKernels>> CudaDevice::Load(
    absl::string_view source, absl::Span<const retrograd::Launch> launches) {
  RG_WITH_CONTEXT();
  return LoadKernels(source, launches);
}

absl::StatusOr<std::shared_ptr<const CublasMatMul>> CudaDevice::LibraryMatMul(
    const MatMulCall& call, const MatMulFacts& facts) {
  const std::string key = MatMulKey(call, facts);
  if (const auto known = matmuls_.find(key); known != matmuls_.end()) return known->second;
  if (cublas_ == nullptr) {
    RG_ASSIGN_OR_RETURN(cublas_, LoadCublas(options_.cublas_library));
  }
  if (cublas_handle_ == nullptr) {
    RG_RETURN_IF_ERROR(
        CublasStatus(*cublas_, cublas_->Create(&cublas_handle_), "cublasLtCreate"));
  }
  RG_ASSIGN_OR_RETURN(std::shared_ptr<CublasMatMul> made,
                      CublasMatMul::Make(*cublas_, cublas_handle_, call, facts));
  // A choice is the device's and the library's.
  const std::string entry = absl::StrCat("retrograd cublaslt choice 1\n", model_, " ", arch_, "\n",
                                         cublas_->GetVersion(), "\n", key);
  if (options_.time_matmuls && !(Cache() != nullptr && ReadChoice(*Cache(), entry, made.get()))) {
    const absl::Status timed = ChooseByTiming(driver_, streams_[0], call, made.get());
    // Without the memory for a measurement the library's favourite does.
    if (!timed.ok() && !absl::IsResourceExhausted(timed)) return timed;
    if (timed.ok() && Cache() != nullptr) WriteChoice(*Cache(), entry, *made);
  }
  matmuls_[key] = made;
  return made;
}

absl::StatusOr<std::unique_ptr<LoadedCall>> CudaDevice::Load(const MatMulCall& call,
                                                             const MatMulFacts& facts) {
  RG_WITH_CONTEXT();
  RG_ASSIGN_OR_RETURN(const Kernel kernel, FallbackMatMul(call, Dialect::kCuda));
  if (kernel.blocks == 0) return std::make_unique<CudaMatMul>(0);  // nothing to do
  absl::StatusOr<std::shared_ptr<const CublasMatMul>> library =
      call.k == 0 ? absl::UnimplementedError("an empty sum") : LibraryMatMul(call, facts);
  if (library.ok()) {
    auto loaded = std::make_unique<CudaMatMul>(
        static_cast<int64_t>((*library)->choice().workspace_bytes));
    loaded->library = *library;
    loaded->offsets[0] = call.a.offset;
    loaded->offsets[1] = call.b.offset;
    loaded->offsets[2] = call.d.offset;
    return loaded;
  }
  if (!absl::IsUnimplemented(library.status())) return library.status();
  auto loaded = std::make_unique<CudaMatMul>(0);
  const std::vector<LaunchArg> args = {{.slot = 0}, {.slot = 1}, {.slot = 2, .written = true}};
  RG_ASSIGN_OR_RETURN(loaded->fallback,
                      LoadKernels(Prelude(Dialect::kCuda) + kernel.source,
                                  {{kernel.name, kernel.blocks, kernel.threads, args}}));
  return loaded;
}

absl::StatusOr<std::unique_ptr<LoadedCall>> CudaDevice::Load(
    const AttentionCall& call, absl::Span<const DType> operand_dtypes) {
  RG_WITH_CONTEXT();
  return attention_->Load({*this, sm_, model_, Stream(0), Cache()}, call, operand_dtypes);
}

absl::Status CudaDevice::AttentionBackward(int stream, LoadedCall& call,
                                           const AttentionPointers& pointers, void* scratch) {
  RG_WITH_CONTEXT();
  return static_cast<CudaAttentionCall&>(call).Run(*this, stream, Stream(stream), pointers,
                                                   scratch);
}

absl::Status CudaDevice::UseStream(std::optional<void*> native) {
  if (native == caller_) return absl::OkStatus();
  if (native && *native != nullptr) {
    RG_WITH_CONTEXT();
    CUcontext owner = nullptr;
    RG_CUDA(driver_, StreamGetCtx, static_cast<CUstream>(*native), &owner);
    if (owner != context_) {
      return absl::InvalidArgumentError(
          absl::StrFormat("the stream belongs to another device or context than cuda:%d's primary "
                          "one, in which the program was loaded",
                          options_.ordinal));
    }
  }
  caller_ = native;
  return absl::OkStatus();
}

absl::Status CudaDevice::Bind(int stream, LoadedKernels& kernels, absl::Span<void* const> table) {
  RG_WITH_CONTEXT();
  return static_cast<CudaKernels&>(kernels).Bind(Stream(stream), set_table_, table);
}

absl::Status CudaDevice::Launch(int stream, LoadedKernels& kernels, size_t launch) {
  RG_WITH_CONTEXT();
  return static_cast<CudaKernels&>(kernels).Run(Stream(stream), launch);
}

absl::Status CudaDevice::MatMul(int stream, LoadedCall& call, const MatMulPointers& pointers,
                                void* scratch) {
  RG_WITH_CONTEXT();
  auto& matmul = static_cast<CudaMatMul&>(call);
  if (matmul.library != nullptr) {
    return matmul.library->Run(Stream(stream), pointers, matmul.offsets, scratch);
  }
  if (matmul.fallback == nullptr) return absl::OkStatus();
  void* const table[] = {const_cast<void*>(pointers.a), const_cast<void*>(pointers.b), pointers.d};
  RG_RETURN_IF_ERROR(matmul.fallback->Bind(Stream(stream), set_table_, table));
  return matmul.fallback->Run(Stream(stream), 0);
}

absl::Status CudaDevice::CopyStrided(int stream, DType dtype, absl::Span<const int64_t> shape,
                                     void* to, absl::Span<const int64_t> to_strides,
                                     const void* from, absl::Span<const int64_t> from_strides) {
  RG_WITH_CONTEXT();
  StridedCopy copy{.to = reinterpret_cast<uint64_t>(to),
                   .from = reinterpret_cast<uint64_t>(from),
                   .rank = static_cast<int32_t>(shape.size()),
                   .element_bytes = static_cast<int32_t>(SizeBytes(dtype)),
                   .elements = Elements(shape)};
  if (copy.elements == 0) return absl::OkStatus();
  bool dense = true;
  int64_t stride = 1;
  for (size_t d = shape.size(); d-- > 0;) {
    copy.shape[d] = shape[d];
    copy.to_strides[d] = to_strides[d];
    copy.from_strides[d] = from_strides[d];
    dense = dense && (shape[d] == 1 || (to_strides[d] == stride && from_strides[d] == stride));
    stride *= shape[d];
  }
  if (dense) {
    RG_CUDA(driver_, MemcpyDtoDAsync, copy.to, copy.from,
            static_cast<size_t>(copy.elements * copy.element_bytes), Stream(stream));
    return absl::OkStatus();
  }
  const int64_t blocks =
      std::min<int64_t>((copy.elements + kCopyThreads - 1) / kCopyThreads, int64_t{1} << 20);
  void* parameters[] = {&copy};
  RG_CUDA(driver_, LaunchKernel, copy_strided_, static_cast<unsigned>(blocks), 1, 1, kCopyThreads,
          1, 1, 0, Stream(stream), parameters, nullptr);
  return absl::OkStatus();
}

absl::Status CudaDevice::Record(int stream, int event) {
  RG_WITH_CONTEXT();
  RG_CUDA(driver_, EventRecord, events_[event], Stream(stream));
  return absl::OkStatus();
}

absl::Status CudaDevice::Wait(int stream, int event) {
  RG_WITH_CONTEXT();
  RG_CUDA(driver_, StreamWaitEvent, Stream(stream), events_[event], 0);
  return absl::OkStatus();
}

absl::Status CudaDevice::Synchronize() {
  RG_WITH_CONTEXT();
  for (size_t i = 1; i < streams_.size(); ++i) RG_CUDA(driver_, StreamSynchronize, streams_[i]);
  RG_CUDA(driver_, StreamSynchronize, Stream(0));
  return absl::OkStatus();
}

absl::Status CudaDevice::BeginRecording() {
  RG_WITH_CONTEXT();
  RG_CUDA(driver_, StreamBeginCapture, streams_[0], CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
  recording_ = true;
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Recording>> CudaDevice::EndRecording(
    std::unique_ptr<Recording> old) {
  recording_ = false;
  RG_WITH_CONTEXT();
  CUgraph graph = nullptr;
  RG_CUDA(driver_, StreamEndCapture, streams_[0], &graph);
  std::unique_ptr<CudaRecording> recording(static_cast<CudaRecording*>(old.release()));
  if (recording == nullptr) recording = std::make_unique<CudaRecording>(driver_, context_);
  const absl::Status status = recording->Become(graph);
  driver_.GraphDestroy(graph);
  RG_RETURN_IF_ERROR(status);
  return recording;
}

absl::Status CudaDevice::Replay(Recording& recording) {
  RG_WITH_CONTEXT();
  RG_CUDA(driver_, GraphLaunch, static_cast<CudaRecording&>(recording).exec(), Stream(0));
  return absl::OkStatus();
}

absl::StatusOr<bool> CudaDevice::CallerRecords() {
  RG_WITH_CONTEXT();
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  RG_CUDA(driver_, StreamIsCapturing, Stream(0), &status);
  return status != CU_STREAM_CAPTURE_STATUS_NONE;
}

// One repetition. The spinning kernel ends after everything behind it has been issued.
absl::Status CudaDevice::TimeOnce(absl::FunctionRef<absl::Status()> work, int64_t spin_cycles,
                                  CUdeviceptr flushed, size_t flushed_bytes, CUevent begin,
                                  CUevent end, double* microseconds) {
  if (flushed != 0) RG_CUDA(driver_, MemsetD8Async, flushed, 0, flushed_bytes, Stream(0));
  void* parameters[] = {&spin_cycles};
  RG_CUDA(driver_, LaunchKernel, spin_, 1, 1, 1, 1, 1, 1, 0, Stream(0), parameters, nullptr);
  RG_CUDA(driver_, EventRecord, begin, Stream(0));
  RG_RETURN_IF_ERROR(work());
  RG_CUDA(driver_, EventRecord, end, Stream(0));
  RG_CUDA(driver_, EventSynchronize, end);
  float ms = 0;
  RG_CUDA(driver_, EventElapsedTime, &ms, begin, end);
  *microseconds = 1e3 * static_cast<double>(ms);
  return absl::OkStatus();
}

absl::StatusOr<TimeSamples> CudaDevice::Time(absl::FunctionRef<absl::Status()> work,
                                             int repetitions, bool cold) {
  RG_WITH_CONTEXT();
  RG_ASSIGN_OR_RETURN(const int clock_khz, Attribute(CU_DEVICE_ATTRIBUTE_CLOCK_RATE));
  RG_ASSIGN_OR_RETURN(const int l2_bytes, Attribute(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE));
  const size_t flushed_bytes = cold ? size_t{4} * static_cast<size_t>(l2_bytes) : 0;
  // The host's time for issuing the work, the first time of which may prepare things.
  std::chrono::duration<double, std::milli> host{};
  for (int i = 0; i < 2; ++i) {
    const auto start = std::chrono::steady_clock::now();
    RG_RETURN_IF_ERROR(work());
    host = std::chrono::steady_clock::now() - start;
    RG_RETURN_IF_ERROR(Synchronize());
  }
  const double spin_ms = std::min(2 * host.count() + 0.1, 50.0);
  const int64_t spin_cycles = static_cast<int64_t>(spin_ms * clock_khz);

  void* flushed = nullptr;
  if (flushed_bytes > 0) {
    RG_ASSIGN_OR_RETURN(flushed, Allocate(static_cast<int64_t>(flushed_bytes)));
  }
  CUevent begin = nullptr, end = nullptr;
  absl::Status status =
      CudaStatus(driver_, driver_.EventCreate(&begin, CU_EVENT_DEFAULT), "cuEventCreate");
  if (status.ok()) {
    status = CudaStatus(driver_, driver_.EventCreate(&end, CU_EVENT_DEFAULT), "cuEventCreate");
  }
  TimeSamples samples;
  for (int i = 0; i < repetitions && status.ok(); ++i) {
    status = TimeOnce(work, spin_cycles, reinterpret_cast<CUdeviceptr>(flushed), flushed_bytes,
                      begin, end, &samples.emplace_back());
  }
  for (CUevent event : {begin, end}) {
    if (event != nullptr) driver_.EventDestroy(event);
  }
  Free(flushed);
  RG_RETURN_IF_ERROR(status);
  return samples;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Device>> MakeCudaDevice(const CudaDeviceOptions& options) {
  RG_ASSIGN_OR_RETURN(const CudaDriver* driver, LoadCudaDriver(options.driver_library));
  auto device = std::make_unique<CudaDevice>(*driver, options);
  RG_RETURN_IF_ERROR(device->Start());
  return device;
}

}  // namespace retrograd

#endif  // RETROGRAD_HAVE_CUDA
