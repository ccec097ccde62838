// What is taken to cost nothing before there are kernels to price. A device's own numbers: how many
// bytes a launch hides, and how much arithmetic a read.
#ifndef RETROGRAD_FUSION_ANALYSIS_FREE_READS_H_
#define RETROGRAD_FUSION_ANALYSIS_FREE_READS_H_

#include <array>
#include <cstdint>

#include "fusion/device/device_spec.h"
#include "graph/ir/op.h"

namespace retrograd {

struct FreeReads {
  // Tensors of fewer elements (a loss, a norm's weight) connect nothing: reading them twice is
  // free.
  int64_t large_elements = 1 << 14;
  // So many pointwise ops in a row, none dearer than a division, cost no more than to read what
  // they make.
  int64_t remade_ops = 4;
  // Femtoseconds in which memory brings in a byte, and in which all units evaluate one fp32 op of
  // each CostClass; the rate of fp64 ops, as a share of that. With no device nothing takes any
  // time, and nothing dearer is made again.
  int64_t byte_fs = 0;
  std::array<int64_t, kNumCostClasses> op_fs = {};
  int64_t fp64_ppm = 1'000'000;
};

FreeReads FreeReadsOf(const DeviceSpec& device);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_ANALYSIS_FREE_READS_H_
