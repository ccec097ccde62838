// SharedArrays: the shared memory of the block being run on the host.
#ifndef RETROGRAD_RUNTIME_HOST_SANITIZER_SHARED_ARRAYS_H_
#define RETROGRAD_RUNTIME_HOST_SANITIZER_SHARED_ARRAYS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace retrograd {

class SharedArrays {
 public:
  // More than any GPU gives to a block (H200: 227 KiB), so that limits are the planner's matter.
  static constexpr int64_t kBytes = int64_t{256} << 10;

  struct Array {
    const void* key;
    const char* name;
    int64_t offset, bytes;
    int element_bytes;
  };

  // So that kernels of usual size allocate nothing while they run.
  void Reserve() {
    if (memory_ != nullptr) return;
    memory_ = std::make_unique<Memory>();
    arrays_.reserve(64);
  }

  // Forgets all arrays; their bytes stay, so that a fast build sees what a GPU might.
  void Clear() {
    arrays_.clear();
    used_ = 0;
  }

  // The array that key stands for, made at its first use; null if the memory is used up. It stays
  // where it is until the next is made.
  const Array* Find(const void* key, const char* name, int64_t bytes, int element_bytes) {
    for (const Array& array : arrays_) {
      if (array.key == key) return &array;
    }
    Reserve();
    if (bytes < 0 || bytes > kBytes - used_) return nullptr;
    arrays_.push_back({key, name, used_, bytes, element_bytes});
    used_ += (bytes + 15) / 16 * 16;
    return &arrays_.back();
  }
  // The array whose first byte is data.
  const Array* At(const void* data) const {
    for (const Array& array : arrays_) {
      if (Data(array) == data) return &array;
    }
    return nullptr;
  }
  void* Data(const Array& array) const { return memory_->bytes + array.offset; }

 private:
  struct Memory {
    alignas(64) char bytes[kBytes];
  };
  std::unique_ptr<Memory> memory_;
  std::vector<Array> arrays_;
  int64_t used_ = 0;
};

}  // namespace retrograd

#endif  // RETROGRAD_RUNTIME_HOST_SANITIZER_SHARED_ARRAYS_H_
