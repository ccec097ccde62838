#include "runtime/gpu/cuda/cudnn_choice.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "graph/base/status.h"
#include "runtime/gpu/autotune.h"

namespace retrograd {
namespace {

// No plan of cuDNN's takes a time that depends on values.
class Plans : public Implementations {
 public:
  Plans(CudnnPlans& plans, GpuDevice& device) : plans_(plans), device_(device) {}
  int count() const override { return static_cast<int>(plans_.plans().size()); }
  int64_t most_workspace_bytes() const override { return plans_.most_workspace_bytes(); }
  absl::Status Choose(int plan) override { return plans_.Take(static_cast<size_t>(plan)); }
  absl::Status Run(const CallPointers& pointers, void* workspace) override {
    return plans_.Run(device_.Stream(0), pointers, workspace);
  }
  absl::StatusOr<std::string> Serialize() const override { return plans_.Serialize(); }

 private:
  CudnnPlans& plans_;
  GpuDevice& device_;
};

CallMemory MemoryOf(const CudnnRequest& request) {
  CallMemory memory;
  for (const CudnnStored& stored : request.operands) memory.operands.push_back(stored.bytes);
  for (const CudnnStored& stored : request.results) memory.results.push_back(stored.bytes);
  return memory;
}

}  // namespace

absl::Status CudnnChoice::LoadHandle(int sm) {
  if (handle_ != nullptr) return absl::OkStatus();
  if (!options_.allow) return absl::UnavailableError("cuDNN is switched off");
  RG_RETURN_IF_ERROR(no_handle_);
  absl::StatusOr<std::unique_ptr<CudnnHandle>> handle = CudnnHandle::Create(options_.library, sm);
  if (!handle.ok()) return no_handle_ = handle.status();
  handle_ = *std::move(handle);
  return absl::OkStatus();
}

absl::StatusOr<std::string> CudnnChoice::Version(int sm) {
  RG_RETURN_IF_ERROR(LoadHandle(sm));
  return absl::StrCat(handle_->version());
}

absl::StatusOr<std::shared_ptr<CudnnPlans>> CudnnChoice::Choose(const CudnnPlace& place,
                                                                const CudnnRequest& request) {
  if (const auto known = known_.find(request.key); known != known_.end()) return known->second;
  RG_RETURN_IF_ERROR(LoadHandle(place.sm));
  const AutotuneOptions autotune{.cache = place.cache, .time = options_.time_plans};
  const std::string entry = absl::StrCat("cudnn ", kind_, "\n", place.model, " sm_", place.sm, "\n",
                                         handle_->version(), "\n", request.key);
  if (const std::optional<ImplementationTimes> times = RecallTimes(autotune, entry)) {
    absl::StatusOr<std::shared_ptr<CudnnPlans>> restored =
        CudnnPlans::Restore(request, times->chosen, *handle_);
    if (restored.ok()) {
      (*restored)->SetMicroseconds(0, times->least_us());
      return known_[request.key] = *std::move(restored);
    }
  }
  RG_ASSIGN_OR_RETURN(std::shared_ptr<CudnnPlans> made, CudnnPlans::Prepare(request, *handle_));
  Plans plans(*made, place.device);
  RG_ASSIGN_OR_RETURN(const ImplementationTimes times,
                      ChooseFastest(place.device, autotune, entry, MemoryOf(request), plans));
  for (size_t i = 0; i < times.us.size(); ++i) made->SetMicroseconds(i, times.us[i]);
  known_[request.key] = made;
  return made;
}

}  // namespace retrograd
