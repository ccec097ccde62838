// grouped_matmul on GPUs that choose: warpgroups multiply by the tile that was found the fastest.
#ifndef RETROGRAD_RUNTIME_OPS_GROUPED_MATMUL_TUNED_GROUPED_MATMUL_H_
#define RETROGRAD_RUNTIME_OPS_GROUPED_MATMUL_TUNED_GROUPED_MATMUL_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/device/device.h"
#include "runtime/gpu/gpu_device.h"

namespace retrograd {

// Where groups of one size end that share out so many rows, or terms of sums: as tiles are timed.
std::vector<int32_t> EvenEnds(int64_t places, int64_t groups);

// Tiles are timed where the device's tuning asks for it, and else taken from what was found before:
// without either, that of the least price.
std::unique_ptr<CallLoader> MakeTunedGroupedMatMulLoader(GpuDevice& device);

}  // namespace retrograd

#endif  // RETROGRAD_RUNTIME_OPS_GROUPED_MATMUL_TUNED_GROUPED_MATMUL_H_
