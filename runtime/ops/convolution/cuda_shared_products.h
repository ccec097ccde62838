// Products that share launches on the cuda device: in one launch or one after the other, whichever
// is the faster. Both are compiled and loaded before one is chosen.
#ifndef RETROGRAD_RUNTIME_OPS_CONVOLUTION_CUDA_SHARED_PRODUCTS_H_
#define RETROGRAD_RUNTIME_OPS_CONVOLUTION_CUDA_SHARED_PRODUCTS_H_

#include <memory>

#include "runtime/gpu/gpu_device.h"

namespace retrograd {

// Of a device that loads boxes.
std::unique_ptr<SharedCallLoader> MakeCudaSharedProductsLoader(GpuDevice& device);

}  // namespace retrograd

#endif  // RETROGRAD_RUNTIME_OPS_CONVOLUTION_CUDA_SHARED_PRODUCTS_H_
