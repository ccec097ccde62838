// What is taken to cost nothing before there are kernels to price. A device's own numbers: how many
// bytes a launch hides, and how much arithmetic a read.
#ifndef RETROGRAD_FUSION_ANALYSIS_FREE_READS_H_
#define RETROGRAD_FUSION_ANALYSIS_FREE_READS_H_

#include <cstdint>

#include "fusion/device/device_spec.h"

namespace retrograd {

struct FreeReads {
  // Tensors of fewer elements (a loss, a norm's weight) connect nothing: reading them twice is
  // free.
  int64_t large_elements = 1 << 14;
  // So many pointwise ops in a row, none dearer than a division, cost no more than to read what
  // they make.
  int64_t remade_ops = 4;
};

inline FreeReads FreeReadsOf(const DeviceSpec& device) {
  return {.large_elements = device.large_elements, .remade_ops = device.remade_ops};
}

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_ANALYSIS_FREE_READS_H_
