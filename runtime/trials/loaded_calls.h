// Loaded calls that do the same, as implementations to choose from.
#ifndef RETROGRAD_RUNTIME_TRIALS_LOADED_CALLS_H_
#define RETROGRAD_RUNTIME_TRIALS_LOADED_CALLS_H_

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "runtime/device/device.h"
#include "runtime/trials/autotune.h"

namespace retrograd {

class LoadedCalls : public Implementations {
 public:
  struct Made {
    std::string name;
    LoadedCall* call;
  };
  explicit LoadedCalls(std::vector<Made> made) : made_(std::move(made)) {}

  int count() const override { return static_cast<int>(made_.size()); }
  int64_t most_workspace_bytes() const override {
    int64_t most = 0;
    for (const Made& made : made_) most = std::max(most, made.call->scratch_bytes());
    return most;
  }
  absl::Status Choose(int implementation) override {
    chosen_ = static_cast<size_t>(implementation);
    return absl::OkStatus();
  }
  absl::Status Run(const CallPointers& pointers, void* workspace) override {
    return made_[chosen_].call->Run(0, pointers, workspace);
  }
  std::string Name(int implementation) const override {
    return made_[static_cast<size_t>(implementation)].name;
  }

 protected:
  const std::string& chosen_name() const { return made_[chosen_].name; }

 private:
  const std::vector<Made> made_;
  size_t chosen_ = 0;
};

}  // namespace retrograd

#endif  // RETROGRAD_RUNTIME_TRIALS_LOADED_CALLS_H_
