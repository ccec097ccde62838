#include "tests/support/allocation_count.h"

#include <malloc.h>

#include <cstdlib>
#include <new>

namespace {

thread_local int64_t allocations = 0, held_bytes = 0, given_bytes = 0;

void* Counted(void* p) {
  const auto bytes = static_cast<int64_t>(malloc_usable_size(p));
  ++allocations;
  held_bytes += bytes;
  given_bytes += bytes;
  return p;
}

void Free(void* p) {
  held_bytes -= static_cast<int64_t>(malloc_usable_size(p));
  std::free(p);
}

}  // namespace

// Out of line, as the compiler would otherwise see free() called on what new returned.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  if (void* p = std::malloc(bytes)) return Counted(p);
  throw std::bad_alloc();
}
[[gnu::noinline]] void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return Counted(std::malloc(bytes));
}
[[gnu::noinline]] void operator delete(void* p) noexcept { Free(p); }
[[gnu::noinline]] void operator delete(void* p, std::size_t) noexcept { Free(p); }

namespace retrograd {

int64_t AllocationCount() { return allocations; }
int64_t AllocatedBytes() { return held_bytes; }
int64_t GivenBytes() { return given_bytes; }

}  // namespace retrograd
