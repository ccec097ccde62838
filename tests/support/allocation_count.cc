#include "tests/support/allocation_count.h"

#include <cstdlib>
#include <new>

namespace {
thread_local int64_t allocations = 0;
}

// Out of line, as the compiler would otherwise see free() called on what new returned.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  ++allocations;
  if (void* p = std::malloc(bytes)) return p;
  throw std::bad_alloc();
}
[[gnu::noinline]] void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  ++allocations;
  return std::malloc(bytes);
}
[[gnu::noinline]] void operator delete(void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, std::size_t) noexcept { std::free(p); }

namespace retrograd {

int64_t AllocationCount() { return allocations; }

}  // namespace retrograd
