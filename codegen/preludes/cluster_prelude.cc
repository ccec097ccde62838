#include "codegen/preludes/cluster_prelude.h"

namespace retrograd {
namespace {

constexpr char kClusters[] = R"(
// --- clusters of blocks: sm_90 ---

#define RG_KERNEL_CLUSTER(name, threads, arguments, blocks)                                   \
  extern "C" __global__ void __cluster_dims__(blocks, 1, 1) __launch_bounds__(threads) name( \
      void* const* __restrict__ rg_table, const RG_GRID_CONSTANT rg_slots<arguments> rg_slot)
#define RG_KERNEL_CLUSTER_RESIDENT(name, threads, arguments, blocks, resident)                          \
  extern "C" __global__ void __cluster_dims__(blocks, 1, 1) __launch_bounds__(threads, resident) name( \
      void* const* __restrict__ rg_table, const RG_GRID_CONSTANT rg_slots<arguments> rg_slot)

RG_INLINE unsigned rg_cluster_rank() {
  unsigned rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
// Threads of a warp may come one after the other.
#define RG_CLUSTER_ARRIVE() asm volatile("barrier.cluster.arrive.release;" ::: "memory")
#define RG_CLUSTER_DONE() asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory")
#define RG_CLUSTER_WAIT() asm volatile("barrier.cluster.wait.acquire;" ::: "memory")
// All threads of a warp together.
RG_INLINE void rg_cluster_barrier() {
  asm volatile(
      "barrier.cluster.arrive.release.aligned;\n"
      "barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

RG_INLINE unsigned rg_peer_address(const void* own, int rank) {
  unsigned there;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
               : "=r"(there)
               : "r"(static_cast<unsigned>(__cvta_generic_to_shared(own))), "r"(rank));
  return there;
}
RG_INLINE float rg_peer(const float* own, int rank) {
  float out;
  asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(out) : "r"(rg_peer_address(own, rank)) : "memory");
  return out;
}
RG_INLINE double rg_peer(const double* own, int rank) {
  double out;
  asm volatile("ld.shared::cluster.f64 %0, [%1];" : "=d"(out) : "r"(rg_peer_address(own, rank)) : "memory");
  return out;
}
RG_INLINE int32_t rg_peer(const int32_t* own, int rank) {
  int32_t out;
  asm volatile("ld.shared::cluster.s32 %0, [%1];" : "=r"(out) : "r"(rg_peer_address(own, rank)) : "memory");
  return out;
}
RG_INLINE int64_t rg_peer(const int64_t* own, int rank) {
  int64_t out;
  asm volatile("ld.shared::cluster.s64 %0, [%1];" : "=l"(out) : "r"(rg_peer_address(own, rank)) : "memory");
  return out;
}
#define RG_PEER(array, rank, i) rg_peer(array + (i), rank)

// A meeting is done when its block has said how many bytes will come, and they have.
RG_INLINE unsigned rg_own_address(const void* own) {
  return static_cast<unsigned>(__cvta_generic_to_shared(own));
}
RG_INLINE void rg_begin_meetings(const int64_t* meetings, int count) {
  if (threadIdx.x == 0) {
    for (int i = 0; i < count; ++i) {
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(rg_own_address(meetings + i)) : "memory");
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory");
}
#define RG_BEGIN_MEETINGS(meetings, count) rg_begin_meetings(meetings, count)
#define RG_MEETINGS_BEGUN() RG_CLUSTER_WAIT()
#define RG_END_MEETINGS()
RG_INLINE void rg_expect_bytes(const int64_t* meeting, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(rg_own_address(meeting)),
               "r"(bytes)
               : "memory");
}
#define RG_EXPECT(meetings, m, bytes) rg_expect_bytes(meetings + (m), bytes)
#define RG_PUSH_AS(T, ptx, constraint)                                                                 \
  RG_INLINE void rg_push(const T* place, const int64_t* meeting, int rank, T value) {                  \
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes." ptx " [%0], %1, [%2];" ::"r"( \
                     rg_peer_address(place, rank)),                                                    \
                 constraint(value), "r"(rg_peer_address(meeting, rank))                                \
                 : "memory");                                                                          \
  }
RG_PUSH_AS(float, "f32", "f")
RG_PUSH_AS(double, "f64", "d")
RG_PUSH_AS(int32_t, "s32", "r")
RG_PUSH_AS(int64_t, "s64", "l")
#define RG_PUSH(array, first, own, rank, value, meetings, m) \
  rg_push(array + ((first) + (own)), meetings + (m), rank, value)
#define RG_PUSHED(array, first, from) array[(first) + (from)]
RG_INLINE void rg_meet(const int64_t* meeting, int parity) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
      "@p bra done;\n"
      "bra again;\n"
      "done:\n"
      "}\n" ::"r"(rg_own_address(meeting)),
      "r"(parity)
      : "memory");
}
#define RG_MEET(meetings, m, parity) rg_meet(meetings + (m), parity)
)";

}  // namespace

std::string ClusterPrelude() { return kClusters; }

}  // namespace retrograd
