#include "runtime/ops/grouped_matmul/generated_grouped_matmul.h"

#include <string>
#include <utility>
#include <vector>

#include "codegen/grouped_matmul/emit_grouped_matmul.h"
#include "graph/base/status.h"

namespace retrograd {
namespace {

class GeneratedGroupedMatMul : public LoadedCall {
 public:
  GeneratedGroupedMatMul(Device& device, std::unique_ptr<LoadedKernels> kernels, std::string how,
                         double us = 0)
      : LoadedCall(0, us), device_(device), kernels_(std::move(kernels)), how_(std::move(how)) {}

  absl::Status Run(int stream, const CallPointers& pointers, void*) override {
    if (kernels_ == nullptr) return absl::OkStatus();
    void* table[kGroupedSlots];
    table[kGroupedA] = const_cast<void*>(pointers.operands[0]);
    table[kGroupedB] = const_cast<void*>(pointers.operands[1]);
    table[kGroupedEnds] = const_cast<void*>(pointers.operands[2]);
    const bool scaled = pointers.operands.size() > kGroupedColumnScales;
    table[kGroupedRowScales] =
        scaled ? const_cast<void*>(pointers.operands[kGroupedRowScales]) : nullptr;
    table[kGroupedColumnScales] =
        scaled ? const_cast<void*>(pointers.operands[kGroupedColumnScales]) : nullptr;
    table[kGroupedResult] = pointers.results[0];
    RG_RETURN_IF_ERROR(device_.Bind(stream, *kernels_, table));
    return device_.Launch(stream, *kernels_, 0);
  }
  std::string Describe() const override { return how_; }

 private:
  Device& device_;
  const std::unique_ptr<LoadedKernels> kernels_;  // null: the result has no elements
  const std::string how_;
};

bool HasElements(const Call& call) { return Elements(call.results[0].shape) > 0; }

class GeneratedGroupedMatMulLoader : public CallLoader {
 public:
  explicit GeneratedGroupedMatMulLoader(Device& device) : device_(device) {}

  std::vector<Kernel> KernelsOf(const Call& call, const CallFacts& facts) override {
    if (!HasElements(call)) return {};
    auto made = LaunchGroupedMatMul(call, facts, device_);
    if (!made.ok()) return {};
    return {std::move(made->kernel)};
  }
  absl::StatusOr<std::unique_ptr<LoadedCall>> Load(const Call& call,
                                                   const CallFacts& facts) override {
    return LoadGeneratedGroupedMatMul(device_, call, facts);
  }

 private:
  Device& device_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<LoadedCall>> LoadGroupedMatMulLaunch(
    Device& device, const GroupedMatMulLaunch& made) {
  RG_ASSIGN_OR_RETURN(std::unique_ptr<LoadedKernels> loaded,
                      device.Load({made.kernel}, {made.launch}));
  return std::make_unique<GeneratedGroupedMatMul>(device, std::move(loaded), made.how, made.us);
}

absl::StatusOr<std::unique_ptr<LoadedCall>> LoadGeneratedGroupedMatMul(Device& device,
                                                                       const Call& call,
                                                                       const CallFacts& facts) {
  RG_RETURN_IF_ERROR(GroupedMatMulRefusal(GroupedMatMulOf(call)));
  if (!HasElements(call)) {
    return std::make_unique<GeneratedGroupedMatMul>(device, nullptr, "no elements");
  }
  RG_ASSIGN_OR_RETURN(const GroupedMatMulLaunch made, LaunchGroupedMatMul(call, facts, device));
  return LoadGroupedMatMulLaunch(device, made);
}

std::unique_ptr<CallLoader> MakeGeneratedGroupedMatMulLoader(Device& device) {
  return std::make_unique<GeneratedGroupedMatMulLoader>(device);
}

}  // namespace retrograd
