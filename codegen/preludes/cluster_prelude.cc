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
)";

}  // namespace

std::string ClusterPrelude() { return kClusters; }

}  // namespace retrograd
