// The tensors of a library call in the host's memory.
#ifndef RETROGRAD_TESTS_SUPPORT_CALL_MEMORY_H_
#define RETROGRAD_TESTS_SUPPORT_CALL_MEMORY_H_

#include <cstdint>
#include <vector>

#include "runtime/device/device.h"

namespace retrograd {

// Calls fn(element, address) in row-major order, addresses counted in elements.
template <typename Fn>
void ForElements(const CallTensor& t, Fn fn) {
  const int64_t elements = Elements(t.shape);
  for (int64_t i = 0; i < elements; ++i) {
    int64_t rest = i, at = t.offset;
    for (size_t d = t.shape.size(); d-- > 0;) {
      at += rest % t.shape[d] * t.strides[d];
      rest /= t.shape[d];
    }
    fn(i, at);
  }
}

// Room for a tensor at an address that `alignment` divides, in bytes, and no more than it need.
class CallMemory {
 public:
  CallMemory(const CallTensor& t, int64_t alignment) : bytes_(SpanOf(t) * SizeBytes(t.dtype) + 48) {
    const auto at = reinterpret_cast<uintptr_t>(bytes_.data());
    data_ = bytes_.data() + (16 - at % 16) % 16 + (alignment % 16 == 0 ? 0 : alignment);
  }
  void* data() { return data_; }

 private:
  std::vector<char> bytes_;
  char* data_;
};

}  // namespace retrograd

#endif  // RETROGRAD_TESTS_SUPPORT_CALL_MEMORY_H_
