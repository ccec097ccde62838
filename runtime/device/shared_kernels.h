// SharedKernels: what devices share whose programs differ in sizes alone: which kernels serve
// several of them, and the code of each kernel that was compiled.
#ifndef RETROGRAD_RUNTIME_DEVICE_SHARED_KERNELS_H_
#define RETROGRAD_RUNTIME_DEVICE_SHARED_KERNELS_H_

#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "runtime/compiler/kernel_families.h"

namespace retrograd {

// Code: what holds compiled kernels, one or more. For several threads at once.
template <typename Code>
class SharedKernels {
 public:
  KernelFamilies& families() { return families_; }

  // What was added for the key; null: nothing.
  std::shared_ptr<Code> Find(const std::string& key) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = code_.find(key);
    return found != code_.end() ? found->second : nullptr;
  }
  size_t size() const {  // kernels that were compiled
    const std::lock_guard<std::mutex> lock(mutex_);
    return code_.size();
  }
  void Add(const std::string& key, std::shared_ptr<Code> code) {
    const std::lock_guard<std::mutex> lock(mutex_);
    code_[key] = std::move(code);
  }

 private:
  KernelFamilies families_;
  mutable std::mutex mutex_;
  absl::flat_hash_map<std::string, std::shared_ptr<Code>> code_;
};

}  // namespace retrograd

#endif  // RETROGRAD_RUNTIME_DEVICE_SHARED_KERNELS_H_
