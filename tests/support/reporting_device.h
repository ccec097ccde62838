// A device that compiles and runs nothing: it notes what it is asked to load, and reports of
// kernels what the test has it report. So what would run on a GPU of any model can be seen on any
// machine.
#ifndef RETROGRAD_TESTS_SUPPORT_REPORTING_DEVICE_H_
#define RETROGRAD_TESTS_SUPPORT_REPORTING_DEVICE_H_

#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/device/device.h"

namespace retrograd {

// What the device says of a kernel, by the number of the load (from 0) and the kernel's name.
using Spills = std::function<int64_t(int load, const std::string& kernel)>;

// What the device is.
struct ReportingFacts {
  DeviceFacts facts = {.model = "NVIDIA H200", .arch = "sm_90", .sms = 132};
  Dialect dialect = Dialect::kCuda;
  bool epilogues = false;
  bool clusters = true;
  std::function<double(const Call&)> call_us = nullptr;  // what it measured of a call; 0: nothing
  const ModuleCache* cache = nullptr;
};

class ReportingDevice : public Device {
 public:
  explicit ReportingDevice(ReportingFacts what, Spills spills = nullptr)
      : what_(std::move(what)), spills_(std::move(spills)) {}
  int loads() const { return static_cast<int>(kernels_.size()); }
  // Names of the kernels of each load.
  const std::vector<std::set<std::string>>& kernels() const { return kernels_; }
  // Every launch and library call of all loads, in their order.
  const std::vector<std::string>& work() const { return work_; }
  int fused() const { return fused_; }  // launches that multiply

  absl::string_view name() const override {
    return what_.dialect == Dialect::kHip ? "hip" : "cuda";
  }
  DeviceFacts Describe() const override { return what_.facts; }
  Dialect dialect() const override { return what_.dialect; }
  bool multiplies_with_epilogues() const override { return what_.epilogues; }
  bool runs_clusters() const override { return what_.clusters; }
  const ModuleCache* Cache() const override { return what_.cache; }
  absl::StatusOr<void*> Allocate(int64_t bytes) override { return std::malloc(bytes + 1); }
  void Free(void* data) override { std::free(data); }
  absl::Status Reserve(int, int) override { return absl::OkStatus(); }
  absl::StatusOr<std::unique_ptr<LoadedKernels>> Load(
      absl::Span<const Kernel> kernels, absl::Span<const retrograd::Launch> launches) override {
    auto loaded = std::make_unique<ReportedKernels>();
    const int load = loads();
    kernels_.emplace_back();
    for (const Kernel& kernel : kernels) {
      kernels_.back().insert(kernel.name);
      loaded->reported.push_back({.name = kernel.name,
                                  .registers = 40,
                                  .spill_bytes = spills_ ? spills_(load, kernel.name) : 0});
    }
    for (const retrograd::Launch& launch : launches) {
      work_.push_back(absl::StrCat(launch.kernel, " ", launch.blocks, "x", launch.threads));
      fused_ += !launch.maps.empty();
    }
    return loaded;
  }
  absl::StatusOr<std::unique_ptr<LoadedCall>> Load(const Call& call, const CallFacts&) override {
    struct NoCall : LoadedCall {
      explicit NoCall(double us) : LoadedCall(0, us) {}
      absl::Status Run(int, const CallPointers&, void*) override { return Never(); }
    };
    work_.push_back(absl::StrCat("call of ", Name(call.op)));
    return std::make_unique<NoCall>(what_.call_us ? what_.call_us(call) : 0);
  }
  absl::Status CopyIn(void*, const void*, int64_t) override { return absl::OkStatus(); }

  // Nothing runs.
  absl::Status CopyOut(void*, const void*, int64_t) override { return Never(); }
  absl::Status UseStream(std::optional<void*>) override { return Never(); }
  absl::Status Bind(int, LoadedKernels&, absl::Span<void* const>) override { return Never(); }
  absl::Status Launch(int, LoadedKernels&, size_t) override { return Never(); }
  absl::Status CopyStrided(int, DType, absl::Span<const int64_t>, void*, absl::Span<const int64_t>,
                           const void*, absl::Span<const int64_t>) override {
    return Never();
  }
  absl::Status Record(int, int) override { return Never(); }
  absl::Status Wait(int, int) override { return Never(); }
  absl::Status Synchronize() override { return Never(); }
  absl::StatusOr<TimeSamples> Time(absl::FunctionRef<absl::Status()>, int, bool) override {
    return Never();
  }

 private:
  struct ReportedKernels : LoadedKernels {
    std::vector<KernelResources> reported;
    absl::Span<const KernelResources> resources() const override { return reported; }
  };
  static absl::Status Never() { return absl::UnimplementedError("nothing runs here"); }

  const ReportingFacts what_;
  const Spills spills_;
  std::vector<std::set<std::string>> kernels_;
  std::vector<std::string> work_;
  int fused_ = 0;
};

}  // namespace retrograd

#endif  // RETROGRAD_TESTS_SUPPORT_REPORTING_DEVICE_H_
