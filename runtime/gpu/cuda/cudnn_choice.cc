#include "runtime/gpu/cuda/cudnn_choice.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "graph/base/status.h"
#include "runtime/trials/autotune.h"

namespace retrograd {
namespace {

// No plan of cuDNN's takes a time that depends on values.
class Plans : public Implementations {
 public:
  Plans(CudnnPlans& plans, GpuDevice& device) : plans_(plans), device_(device) {}
  int count() const override { return static_cast<int>(plans_.plans().size()); }
  // The filter has said how many.
  int most_candidates() const override { return count(); }
  std::string Name(int plan) const override {
    return plans_.plans()[static_cast<size_t>(plan)].name;
  }
  // "eng9" of "eng9_k2=8_k13=1": knobs do not make it another one.
  std::string Engine(int plan) const override {
    const std::string name = Name(plan);
    return name.substr(0, name.find('_'));
  }
  int64_t most_workspace_bytes() const override { return plans_.most_workspace_bytes(); }
  absl::Status Choose(int plan) override { return plans_.Take(static_cast<size_t>(plan)); }
  absl::Status Run(const CallPointers& pointers, void* workspace) override {
    return plans_.Run(device_.Stream(0), pointers, workspace);
  }
  // What cannot be written down is prepared again the next time.
  std::string State() const override { return plans_.Serialize().value_or(""); }

 private:
  CudnnPlans& plans_;
  GpuDevice& device_;
};

CallMemory MemoryOf(const CudnnRequest& request) {
  CallMemory memory;
  for (const CudnnStored& stored : request.operands) memory.operands.push_back(stored.values);
  for (const CudnnStored& stored : request.results) memory.results.push_back(stored.values);
  return memory;
}

}  // namespace

// The device's streams go behind it, and the handle may stay.
CudnnChoice::~CudnnChoice() {
  if (handle_ == nullptr) return;
  known_.clear();
  const auto lock = handle_->Lock();
  handle_->UseStream(nullptr).IgnoreError();
}

absl::Status CudnnChoice::LoadHandle(const CudnnPlace& place) {
  if (handle_ != nullptr) return absl::OkStatus();
  if (!options_.allow) return absl::UnavailableError("cuDNN is switched off");
  RG_RETURN_IF_ERROR(no_handle_);
  absl::StatusOr<std::shared_ptr<CudnnHandle>> handle =
      CudnnHandle::Shared(options_.library, place.sm, place.device.context());
  if (!handle.ok()) return no_handle_ = handle.status();
  handle_ = *std::move(handle);
  return absl::OkStatus();
}

ChoiceKey CudnnChoice::KeyOf(const CudnnPlace& place, const CudnnRequest& request) const {
  return place.device.tuner().Key(absl::StrCat("cudnn plan of ", kind_), handle_->version(),
                                  request.key);
}

absl::StatusOr<std::string> CudnnChoice::Version(const CudnnPlace& place) {
  RG_RETURN_IF_ERROR(LoadHandle(place));
  return absl::StrCat(handle_->version());
}

absl::StatusOr<std::shared_ptr<CudnnPlans>> CudnnChoice::Choose(const CudnnPlace& place,
                                                                const CudnnRequest& request) {
  const auto known = known_.find(request.key);
  if (known == known_.end()) RG_RETURN_IF_ERROR(LoadHandle(place));
  const CudnnContext context{place.device.driver(), place.device.context()};
  Tuner& tuner = place.device.tuner();
  const ChoiceKey key = KeyOf(place, request);
  if (known != known_.end()) {
    tuner.Uses(key);
    return known->second;
  }
  if (const std::optional<Choice> choice = tuner.Recall(key); choice && choice->timed()) {
    absl::StatusOr<std::shared_ptr<CudnnPlans>> restored =
        choice->state.empty() ? CudnnPlans::Prepare(request, context, *handle_, choice->name())
                              : CudnnPlans::Restore(request, choice->state, *handle_);
    if (restored.ok()) {
      (*restored)->SetMicroseconds(0, choice->us());
      return known_[request.key] = *std::move(restored);
    }
  }
  RG_ASSIGN_OR_RETURN(std::shared_ptr<CudnnPlans> made,
                      CudnnPlans::Prepare(request, context, *handle_));
  Plans plans(*made, place.device);
  RG_ASSIGN_OR_RETURN(const Choice choice, tuner.ChooseFastest(key, MemoryOf(request), plans));
  for (size_t i = 0; i < choice.candidates.size(); ++i) {
    made->SetMicroseconds(i, choice.candidates[i].us);
  }
  known_[request.key] = made;
  return made;
}

absl::StatusOr<std::shared_ptr<CudnnPlans>> CudnnChoice::ChooseLike(const CudnnPlace& place,
                                                                    const CudnnRequest& request,
                                                                    const CudnnRequest& timed) {
  if (request.key == timed.key) return Choose(place, request);
  RG_RETURN_IF_ERROR(LoadHandle(place));
  // Asked each time: the tuner learns whom the choice serves. Where it is known, that plan itself
  // is not wanted.
  std::string name;
  const std::optional<Choice> choice = place.device.tuner().Recall(KeyOf(place, timed));
  if (choice && choice->timed()) {
    name = choice->name();
  } else {
    const absl::StatusOr<std::shared_ptr<CudnnPlans>> like = Choose(place, timed);
    if (!like.ok()) return Choose(place, request);
    name = (*like)->plans()[(*like)->chosen()].name;
  }
  if (const auto known = known_.find(request.key); known != known_.end()) return known->second;
  const CudnnContext context{place.device.driver(), place.device.context()};
  absl::StatusOr<std::shared_ptr<CudnnPlans>> made =
      CudnnPlans::Prepare(request, context, *handle_, name);
  if (!made.ok()) return Choose(place, request);
  return known_[request.key] = *std::move(made);
}

}  // namespace retrograd
