#include "codegen/preludes/gpu/parts.h"

namespace retrograd {

const char kCudaCopies[] = R"(
// From device into shared memory without passing through registers; a batch of copies is sent off, and
// RG_COPIES_WAIT(n) waits until no more than the last n batches are under way. Fewer than four bytes are copied
// at once.
template <int bytes>
__device__ __forceinline__ void rg_copy_bytes(void* to, const void* from) {
  [[maybe_unused]] const unsigned at = static_cast<unsigned>(__cvta_generic_to_shared(to));
  if constexpr (bytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at), "l"(from) : "memory");
  } else if constexpr (bytes == 2) {
    *static_cast<unsigned short*>(to) = *static_cast<const unsigned short*>(from);
  } else if constexpr (bytes == 1) {
    *static_cast<unsigned char*>(to) = *static_cast<const unsigned char*>(from);
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(at), "l"(from), "n"(bytes) : "memory");
  }
}
// Of a part of a line of 128 bytes: the second-level cache fetches all of the line, whose other parts blocks
// nearby copy soon.
template <int bytes>
__device__ __forceinline__ void rg_copy_bytes_of_line(void* to, const void* from) {
  if constexpr (bytes == 16) {
    const unsigned at = static_cast<unsigned>(__cvta_generic_to_shared(to));
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(at), "l"(from) : "memory");
  } else {
    rg_copy_bytes<bytes>(to, from);
  }
}
#define RG_COPIES_SENT() asm volatile("cp.async.commit_group;" ::: "memory")
#define RG_COPIES_WAIT(n) asm volatile("cp.async.wait_group %0;" ::"n"(n) : "memory")
)";

}  // namespace retrograd
