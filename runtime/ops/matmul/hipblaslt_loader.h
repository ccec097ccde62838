// Who loads matmuls on the hip device: hipBLASLt. Never run on AMD hardware.
#ifndef RETROGRAD_RUNTIME_OPS_MATMUL_HIPBLASLT_LOADER_H_
#define RETROGRAD_RUNTIME_OPS_MATMUL_HIPBLASLT_LOADER_H_

#include <memory>
#include <string>

#include "runtime/gpu/gpu_device.h"

namespace retrograd {

struct HipblasltLoaderOptions {
  std::string library;  // a path; empty: where it is usually found
};

// Nothing is loaded before the first matmul.
std::unique_ptr<CallLoader> MakeHipblasltLoader(GpuDevice& device,
                                                const HipblasltLoaderOptions& options);

}  // namespace retrograd

#endif  // RETROGRAD_RUNTIME_OPS_MATMUL_HIPBLASLT_LOADER_H_
