// SharedArrays: the shared memory of the block being run on the host.
#ifndef RETROGRAD_RUNTIME_HOST_SANITIZER_SHARED_ARRAYS_H_
#define RETROGRAD_RUNTIME_HOST_SANITIZER_SHARED_ARRAYS_H_

#include <cstddef>
#include <cstdint>
#include <memory>

namespace retrograd {

class SharedArrays {
 public:
  // More than any GPU gives to a block (H200: 227 KiB), so that limits are the planner's matter.
  static constexpr int64_t kBytes = int64_t{256} << 10;
  static constexpr int kMostArrays = 64;

  struct Array {
    const void* key;
    const char* name;
    int64_t offset, bytes;
    int element_bytes;
  };

  void Reserve() {
    if (memory_ == nullptr) memory_ = std::make_unique<Memory>();
  }

  // Forgets all arrays; their bytes stay, so that a fast build sees what a GPU might.
  void Clear() { count_ = used_ = 0; }

  // The array that key stands for, made at its first use; null if memory or slots are used up.
  const Array* Find(const void* key, const char* name, int64_t bytes, int element_bytes) {
    for (int i = 0; i < count_; ++i) {
      if (arrays_[i].key == key) return &arrays_[i];
    }
    Reserve();
    if (count_ == kMostArrays || bytes < 0 || bytes > kBytes - used_) return nullptr;
    arrays_[count_] = {key, name, used_, bytes, element_bytes};
    used_ += (bytes + 15) / 16 * 16;
    return &arrays_[count_++];
  }
  // The array whose first byte is data.
  const Array* At(const void* data) const {
    for (int i = 0; i < count_; ++i) {
      if (Data(arrays_[i]) == data) return &arrays_[i];
    }
    return nullptr;
  }
  void* Data(const Array& array) const { return memory_->bytes + array.offset; }

 private:
  struct Memory {
    alignas(64) char bytes[kBytes];
  };
  std::unique_ptr<Memory> memory_;
  Array arrays_[kMostArrays];
  int count_ = 0;
  int64_t used_ = 0;
};

}  // namespace retrograd

#endif  // RETROGRAD_RUNTIME_HOST_SANITIZER_SHARED_ARRAYS_H_
