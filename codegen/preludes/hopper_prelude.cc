#include "codegen/preludes/hopper_prelude.h"

namespace retrograd {
namespace {

constexpr char kHopper[] = R"(
struct alignas(64) rg_map { char opaque[128]; };

RG_INLINE unsigned rg_shared_address(const void* p) {
  return static_cast<unsigned>(__cvta_generic_to_shared(p));
}
RG_INLINE void rg_bar_init(unsigned bar, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(arrivals) : "memory");
}
RG_INLINE void rg_bar_expect(unsigned bar, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes)
               : "memory");
}
RG_INLINE void rg_bar_wait(unsigned bar, unsigned parity) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
      "@p bra done;\n"
      "bra again;\n"
      "done:\n"
      "}\n" ::"r"(bar), "r"(parity) : "memory");
}
RG_INLINE void rg_bar_arrive(unsigned bar) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory");
}

#define RG_FOUR(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define RG_SIXTEEN(d, i) RG_FOUR(d, i), RG_FOUR(d, i + 4), RG_FOUR(d, i + 8), RG_FOUR(d, i + 12)
)";

}  // namespace

std::string HopperPrelude() { return kHopper; }

}  // namespace retrograd
