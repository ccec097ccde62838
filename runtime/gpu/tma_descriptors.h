// How the copy engine of an NVIDIA GPU is told where an operand lies. Only for the files
// that make up the cuda device.
#ifndef RETROGRAD_RUNTIME_GPU_TMA_DESCRIPTORS_H_
#define RETROGRAD_RUNTIME_GPU_TMA_DESCRIPTORS_H_

#include "absl/status/statusor.h"
#include "runtime/device/device.h"

namespace retrograd {

// The vendor's descriptor, as a kernel's parameter.
struct alignas(64) OperandDescriptor {
  char opaque[128];
};

// Whether the driver that this process has loaded can describe operands.
bool DescribesOperands();

// Whether it can describe images (OperandMap::images), too.
bool DescribesImages();

// Of boxes of 64 x 64 elements of a matrix, swizzled by 128 bytes, with zeros outside of it; of an
// fp32 one, boxes of a whole run, as it lies there; of images, boxes of 64 pixels x 64 channels,
// swizzled and with zeros as those of a matrix.
absl::StatusOr<OperandDescriptor> DescribeOperand(const OperandMap& map, const void* data);

}  // namespace retrograd

#endif  // RETROGRAD_RUNTIME_GPU_TMA_DESCRIPTORS_H_
