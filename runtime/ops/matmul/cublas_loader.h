// Who loads matmuls on the cuda device: cuBLASLt's algorithms, timed once for each shape.
#ifndef RETROGRAD_RUNTIME_OPS_MATMUL_CUBLAS_LOADER_H_
#define RETROGRAD_RUNTIME_OPS_MATMUL_CUBLAS_LOADER_H_

#include <memory>
#include <string>

#include "runtime/gpu/gpu_device.h"

namespace retrograd {

struct CublasLoaderOptions {
  std::string library;  // a path; empty: where it is usually found
};

// Nothing is loaded before the first matmul.
std::unique_ptr<CallLoader> MakeCublasLoader(GpuDevice& device, const CublasLoaderOptions& options);

}  // namespace retrograd

#endif  // RETROGRAD_RUNTIME_OPS_MATMUL_CUBLAS_LOADER_H_
