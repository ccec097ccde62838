#include "runtime/gpu/cuda/cudnn_choice.h"

#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "graph/base/status.h"
#include "runtime/gpu/measurement.h"

namespace retrograd {
namespace {

// On memory of its own, whatever that holds: no plan of cuDNN's takes a time that depends on
// values.
absl::Status ChooseByTiming(const CudnnPlace& place, const CudnnRequest& request,
                            CudnnPlans* plans) {
  MeasurementMemory memory(place.device);
  std::vector<const void*> operands;
  std::vector<void*> results;
  for (const CudnnStored& stored : request.operands) {
    RG_ASSIGN_OR_RETURN(operands.emplace_back(), memory.Take(stored.bytes));
  }
  for (const CudnnStored& stored : request.results) {
    RG_ASSIGN_OR_RETURN(results.emplace_back(), memory.Take(stored.bytes));
  }
  RG_ASSIGN_OR_RETURN(void* const workspace, memory.Take(plans->most_workspace_bytes()));
  const auto time = [&](absl::FunctionRef<absl::Status()> run) {
    return MedianTime(place.device, run);
  };
  return plans->TakeFastest(time, place.stream, {operands, absl::MakeSpan(results)}, workspace);
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

absl::StatusOr<std::shared_ptr<CudnnPlans>> CudnnChoice::Choose(const CudnnPlace& place,
                                                                const CudnnRequest& request) {
  if (const auto known = known_.find(request.key); known != known_.end()) return known->second;
  RG_RETURN_IF_ERROR(LoadHandle(place.sm));
  // A plan is the device's and the library's.
  const std::string entry = absl::StrCat("retrograd cudnn ", kind_, "\n", place.model, " sm_",
                                         place.sm, "\n", handle_->version(), "\n", request.key);
  const ModuleCache* const cache = options_.time_plans ? place.cache : nullptr;
  if (cache != nullptr) {
    if (const std::optional<std::string> plan = cache->Read(entry)) {
      absl::StatusOr<std::shared_ptr<CudnnPlans>> restored =
          CudnnPlans::Restore(request, *plan, *handle_);
      if (restored.ok()) return known_[request.key] = *std::move(restored);
    }
  }
  RG_ASSIGN_OR_RETURN(std::shared_ptr<CudnnPlans> made, CudnnPlans::Prepare(request, *handle_));
  if (options_.time_plans) {
    absl::Status timed = absl::OkStatus();
    if (made->plans().size() > 1) {
      timed = ChooseByTiming(place, request, made.get());
      // Without the memory for a measurement the library's favourite does.
      if (!timed.ok() && !absl::IsResourceExhausted(timed)) return timed;
    }
    const absl::StatusOr<std::string> plan = made->Serialize();
    if (timed.ok() && plan.ok() && cache != nullptr) cache->Write(entry, *plan).IgnoreError();
  }
  known_[request.key] = made;
  return made;
}

}  // namespace retrograd
