// GpuDevice: what the devices of NVIDIA's and AMD's GPUs share: memory, streams, kernels compiled
// at run time, recordings and times. What differs is the driver, and who loads the calls of each
// op, which the vendor's own device brings.
#ifndef RETROGRAD_RUNTIME_GPU_GPU_DEVICE_H_
#define RETROGRAD_RUNTIME_GPU_GPU_DEVICE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/device/device.h"
#include "runtime/device/lift_launches.h"
#include "runtime/device/shared_kernels.h"
#include "runtime/gpu/gpu_driver.h"
#include "runtime/gpu/gpu_kernels.h"
#include "runtime/gpu/gpu_module.h"
#include "runtime/gpu/kernel_compiler.h"
#include "runtime/trials/autotune.h"

namespace retrograd {

struct GpuDeviceOptions {
  int ordinal = 0;  // among the devices that the driver shows
  GpuCompileOptions compile;
  bool cache = true;      // keep compiled kernels and timed choices on disk
  std::string cache_dir;  // empty: ModuleCache::DefaultDirectory of the device's name
  int64_t cache_bytes = int64_t{512} << 20;
  bool time_calls = true;          // try implementations for each library call and keep the fastest
  std::shared_ptr<Tuning> tuning;  // shared with other devices; null: of its own
  // Shared with other devices, each of which loads a program that differs from the others' in sizes
  // alone; null: kernels hold their sizes as literals.
  std::shared_ptr<SharedKernels<SharedCode>> shared_kernels;
};

class GpuDevice : public Device {
 public:
  GpuDevice(const GpuDriver& driver, const GpuDeviceOptions& options)
      : driver_(driver), options_(options) {}
  ~GpuDevice() override;

  DeviceFacts Describe() const override {
    return {.model = facts_.model,
            .arch = facts_.arch,
            .sms = facts_.sms,
            .cache_bytes = facts_.cache_bytes,
            .warp = dialect() == Dialect::kHip ? 64 : 32,
            .shared_bytes = facts_.shared_bytes};
  }
  absl::StatusOr<void*> Allocate(int64_t bytes) override;
  void Free(void* data) override;
  absl::Status CopyIn(void* device, const void* host, int64_t bytes) override;
  absl::Status CopyOut(void* host, const void* device, int64_t bytes) override;

  absl::Status Reserve(int streams, int events) override;
  void Expect(absl::Span<const ExpectedCall> calls, absl::Span<const Kernel> kernels,
              absl::Span<const retrograd::Launch> launches) override;
  absl::StatusOr<std::unique_ptr<LoadedKernels>> Load(
      absl::Span<const Kernel> kernels, absl::Span<const retrograd::Launch> launches) override;
  absl::StatusOr<std::unique_ptr<LoadedCall>> Load(const Call& call,
                                                   const CallFacts& facts) override;
  absl::StatusOr<std::unique_ptr<LoadedCall>> LoadTogether(
      absl::Span<const ExpectedCall> calls) override;

  absl::Status UseStream(std::optional<void*> native) override;
  absl::Status Bind(int stream, LoadedKernels& kernels, absl::Span<void* const> table) override;
  absl::Status Launch(int stream, LoadedKernels& kernels, size_t launch) override;
  absl::Status LaunchEarly(int stream, LoadedKernels& kernels, size_t launch) override;
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
  absl::StatusOr<std::unique_ptr<Recording>> EndMovableRecording() override;
  absl::Status EndComparison(Recording& of, absl::Span<const int64_t> moved) override;
  absl::Status Move(Recording& recording, absl::Span<const int64_t> moved) override;
  void Assume(LoadedKernels& kernels, absl::Span<void* const> table) override;
  absl::StatusOr<bool> CallerRecords() override;
  absl::StatusOr<TimeSamples> Time(absl::FunctionRef<absl::Status()> work, int repetitions,
                                   bool cold) override;
  absl::Status ReserveMarks(int marks) override;
  absl::Status Mark(int stream, int mark) override;
  absl::StatusOr<std::vector<double>> MarkTimes(int marks) override;

  const Choices* choices() const override { return tuner_ ? &tuner_->choices() : nullptr; }
  std::vector<std::string> TakeNotes() override {
    return tuner_ ? tuner_->TakeNotes() : std::vector<std::string>{};
  }

  // For those who load and run calls on it.
  const GpuDriver& driver() const { return driver_; }
  const GpuContext& context() const { return *context_; }
  bool open() const { return context_.has_value(); }
  Tuner& tuner() { return *tuner_; }
  // Of kernels, as choices between them name it: "NVRTC 13.0"; empty where there is none.
  std::string Compiler() const {
    return CompilerName(dialect(), options_.compile.rtc).value_or("");
  }
  const GpuFacts& facts() const { return facts_; }
  // Whether programs that differ in sizes alone are loaded on devices like this.
  bool sizes_vary() const { return options_.shared_kernels != nullptr; }
  const ModuleCache* Cache() const override { return cache_ ? &*cache_ : nullptr; }
  // A recording is made on streams of the device's own.
  GpuStream Stream(int stream) const {
    return stream == 0 && caller_ && !recording_ ? static_cast<GpuStream>(*caller_)
                                                 : streams_[stream];
  }
  GpuStream OwnStream() const { return streams_[0]; }

 protected:
  // Before anything else is asked of the device.
  absl::Status Start();
  // Lets go of everything, in the end.
  void Stop();

  // Who loads the calls of an op; several ops may share one.
  void SetLoader(Op op, std::shared_ptr<CallLoader> loader) { loaders_[op] = std::move(loader); }
  // Who loads calls that share launches, of which the first is of this op.
  void SetSharedLoader(Op op, std::shared_ptr<SharedCallLoader> loader) {
    shared_loaders_[op] = std::move(loader);
  }
  SharedCallLoader* SharedLoaderOf(absl::Span<const ExpectedCall> calls) const;
  void ExpectTogether(absl::Span<const ExpectedCall> calls);

 private:
  absl::Status LoadSupport();
  // Ends a capture, with what is done to each captured graph.
  absl::StatusOr<GpuGraph> EndCapture();
  // Of the kernels those that no program has compiled.
  std::vector<Kernel> Missing(absl::Span<const Kernel> kernels, absl::string_view arch) const;
  void ExpectKernels(absl::Span<const Kernel> kernels, absl::string_view arch);
  absl::StatusOr<std::unique_ptr<GpuKernels>> LoadShared(const LiftedLaunches& lifted);
  absl::StatusOr<std::unique_ptr<GpuKernels>> LoadKernels(
      absl::Span<const Kernel> kernels, absl::Span<const retrograd::Launch> launches);
  absl::Status TimeOnce(absl::FunctionRef<absl::Status()> work, int64_t spin_cycles, void* flushed,
                        size_t flushed_bytes, GpuEvent begin, GpuEvent end, double* microseconds);

  const GpuDriver& driver_;
  const GpuDeviceOptions options_;
  std::optional<ModuleCache> cache_;
  std::optional<GpuContext> context_;
  GpuFacts facts_;
  std::optional<Tuner> tuner_;
  std::vector<GpuStream> streams_;
  std::vector<GpuEvent> events_;
  std::vector<GpuEvent> marks_;
  std::optional<void*> caller_;  // the caller's stream, in place of streams_[0]
  bool recording_ = false;
  std::map<Op, std::shared_ptr<CallLoader>> loaders_;
  std::map<Op, std::shared_ptr<SharedCallLoader>> shared_loaders_;
  std::unique_ptr<GpuKernels> support_;
  std::optional<KernelCompiler> compiler_;
  int64_t program_ = 0;  // of options_.shared_kernels
  GpuFunction set_table_ = nullptr, copy_strided_ = nullptr, spin_ = nullptr, fill_ = nullptr;
};

}  // namespace retrograd

// What begins a function that works in the device's context.
#define RG_WITH_CONTEXT()                               \
  const CurrentContext rg_current(driver(), context()); \
  RG_RETURN_IF_ERROR(rg_current.status())

#endif  // RETROGRAD_RUNTIME_GPU_GPU_DEVICE_H_
