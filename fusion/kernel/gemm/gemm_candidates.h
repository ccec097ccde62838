// The tiles that a GEMM kernel may have on a device, and how their times compare.
#ifndef RETROGRAD_FUSION_KERNEL_GEMM_GEMM_CANDIDATES_H_
#define RETROGRAD_FUSION_KERNEL_GEMM_GEMM_CANDIDATES_H_

#include <vector>

#include "fusion/device/device_spec.h"
#include "fusion/kernel/gemm/gemm_tile.h"

namespace retrograd {

struct GemmCandidate {
  GemmTile tile;
  // The multiplying's time over that of the row's reference tile (128 x 128, clusters of two) for
  // the same matmul, parts per million.
  int64_t time_ppm = 1'000'000;
};

// The tiles of the device's row that fit a result of m x n, in the row's order; the reference tile
// alone where the row lists none. Never empty. A matmul takes
//
//   waves of clusters over the SMs x elements of a tile x the tile's factor
//
// against the same of the reference tile: small tiles leave fewer SMs idle and load more for each
// product.
std::vector<GemmCandidate> GemmCandidates(const MatMulEpilogue& row, int64_t m, int64_t n,
                                          const DeviceSpec& device);

// The candidate of the least time; the first of equal ones.
GemmCandidate BestGemmTile(const MatMulEpilogue& row, int64_t m, int64_t n,
                           const DeviceSpec& device);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_KERNEL_GEMM_GEMM_CANDIDATES_H_
