// The devices of GPUs on the drivers that the test suite brings along (tests/fake_gpu), so that no
// GPU is needed: a small program loaded on one of them, tensors in its memory, and the driver's
// controls.
#ifndef RETROGRAD_TESTS_SUPPORT_FAKE_GPU_H_
#define RETROGRAD_TESTS_SUPPORT_FAKE_GPU_H_

#include <cstdint>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "graph/ir/backward_graph.h"
#include "graph/reference/reference.h"
#include "models/models.h"
#include "runtime/device/device.h"
#include "runtime/device/shared_kernels.h"
#include "runtime/gpu/gpu_driver.h"
#include "runtime/gpu/loaded_module.h"
#include "runtime/program/compile.h"
#include "runtime/program/program.h"
#include "runtime/tuning/tuning.h"
#include "tests/catch.h"
#include "tests/fake_gpu/control.h"

namespace retrograd {

struct Vendor {
  const char* device;   // its name
  const char* library;  // the fake: driver, run-time compiler and matmuls in one
  const char* spec;     // to plan for
  Dialect dialect;
  bool cuda() const { return dialect == Dialect::kCuda; }
};
inline constexpr Vendor kVendors[] = {
    {"hip", RETROGRAD_FAKE_HIP, "mi250x", Dialect::kHip},
#if defined(RETROGRAD_FAKE_CUDA)
    {"cuda", RETROGRAD_FAKE_CUDA, "h200", Dialect::kCuda},
#endif
};

// Runs the test case for each vendor in turn.
#define RG_EACH_VENDOR() kVendors[GENERATE(range(size_t{0}, std::size(kVendors)))]

// Failures that the drivers are told to return, as CUresult and hipError_t number them.
inline constexpr int kLaunchFailed = 719, kCaptureUnsupported = 900, kUpdateFailure = 910;
// HIP's internal error, and none of cuBLAS that means more.
inline constexpr int kBlasExecutionFailed = 6;

// What is known of gradients that went through fp32 kernels: within this of the reference, as a
// part of the largest.
inline constexpr double kFp32Error = 2e-5;

// The vendor's name for an entry point, by its name in the table of both.
std::string EntryName(const Vendor& vendor, const std::string& entry);

// The controls of a vendor's driver, see control.h. As new when made, and again when gone.
class FakeDriver {
 public:
  explicit FakeDriver(const Vendor& vendor);
  ~FakeDriver() { reset(); }
  FakeDriver(const FakeDriver&) = delete;
  FakeDriver& operator=(const FakeDriver&) = delete;

  // Entry points by their names in the table of both vendors, or by their own.
  void fail(const std::string& entry, int nth, int result) const;
  void fail_nothing() const { fail_("", 0, 0); }
  int calls(const std::string& entry) const;

  decltype(&fake_gpu_reset) reset;
  decltype(&fake_gpu_called) called;
  decltype(&fake_gpu_set) set;
  decltype(&fake_gpu_allocated) allocated;

 private:
  template <typename Function>
  Function* Get(const char* name) const;

  const Vendor& vendor_;
  void* library_;
  decltype(&fake_gpu_fail) fail_;
  decltype(&fake_gpu_calls) calls_;
};

// What the tests choose of either device's options.
struct FakeOptions {
  explicit FakeOptions(const Vendor& vendor)
      : vendor(vendor), driver(vendor.library), blas(vendor.library), rtc(vendor.library) {}
  const Vendor& vendor;
  int ordinal = 0;
  std::string driver, blas, rtc;
  std::string cache_dir;  // empty: no cache
  // Shared with other devices; null: of its own, and none.
  std::shared_ptr<Tuning> tuning;
  std::shared_ptr<SharedKernels<SharedCode>> shared_kernels;
};
absl::StatusOr<std::unique_ptr<Device>> MakeDevice(const FakeOptions& options);

// The vendor's driver itself, as the device under test loads it.
absl::StatusOr<const GpuDriver*> LoadDriver(const Vendor& vendor);

// A device and a program on it; without the latter, why.
struct LoadedProgram {
  std::unique_ptr<Device> device;
  std::unique_ptr<Program> program;
  absl::Status status;
};
LoadedProgram Load(const FakeOptions& device, const CompiledPlan& compiled,
                   const ProgramOptions& options = {});

// Inputs and outputs of a graph in device memory.
class DeviceTensors {
 public:
  DeviceTensors(Device* device, const BackwardGraph& graph, const std::vector<Values>& values);
  ~DeviceTensors();
  DeviceTensors(const DeviceTensors&) = delete;
  DeviceTensors& operator=(const DeviceTensors&) = delete;

  // The largest error of an output against the reference, as a part of its largest value.
  double Error(const std::vector<Values>& values) const;

  std::vector<const void*> inputs;
  std::vector<void*> outputs;

 private:
  Device* device_;
  const BackwardGraph& graph_;
};

struct FakeRunOptions {
  std::string model = "mlp:layers=2,tokens=24,in=8,hidden=20,out=12,dtype=fp32";
  int streams = 1;
  bool record = true;
  bool early = false;  // launches start early, however large
};

// A model's program on a vendor's device, with values for its inputs.
struct FakeRun {
  FakeRun(const Vendor& vendor, const FakeRunOptions& options);

  // The program on another device, made with these options.
  LoadedProgram LoadOn(const FakeOptions& device) const { return Load(device, compiled); }
  std::unique_ptr<DeviceTensors> NewTensors() const { return NewTensors(loaded); }
  std::unique_ptr<DeviceTensors> NewTensors(const LoadedProgram& on) const;
  // Runs once, which must go well, and returns the error of the gradients.
  double Run(const DeviceTensors& tensors) const { return Run(tensors, loaded); }
  double Run(const DeviceTensors& tensors, const LoadedProgram& on) const;
  const ProgramStats& stats() const { return loaded.program->stats(); }

  const Vendor& vendor;
  FakeDriver driver;
  BackwardGraph graph;
  std::vector<Values> values;
  CompiledPlan compiled;
  LoadedProgram loaded;
};

// The same for each vendor in turn; what follows the name are designated FakeRunOptions.
#define RG_ON_EACH_GPU(name, ...)                                    \
  const FakeRun name(RG_EACH_VENDOR(), FakeRunOptions{__VA_ARGS__}); \
  INFO("on " << name.vendor.device)

}  // namespace retrograd

#endif  // RETROGRAD_TESTS_SUPPORT_FAKE_GPU_H_
