// For the few files that include cudnn-frontend: headers that build a graph out of small operations
// and hand it to cuDNN's C interface. They throw where a library or a function of one is missing,
// so every use of them is guarded. Empty where the build has no such headers.
#ifndef RETROGRAD_RUNTIME_GPU_CUDA_CUDNN_FRONTEND_CALLS_H_
#define RETROGRAD_RUNTIME_GPU_CUDA_CUDNN_FRONTEND_CALLS_H_

#ifdef RETROGRAD_HAVE_CUDNN

#include <exception>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "graph/base/tensor_type.h"

#define NV_CUDNN_FRONTEND_USE_DYNAMIC_LOADING
#include <cudnn_frontend.h>

namespace retrograd {

using CudnnTensor = std::shared_ptr<cudnn_frontend::graph::Tensor_attributes>;

// What the library says, without the lines that name its own source files.
std::string CudnnFirstLine(absl::string_view text);

// Unimplemented for what cuDNN refuses, Internal for what fails.
absl::Status CudnnFrontendStatus(cudnn_frontend::error_t error, absl::string_view step);

// Runs `work`; what it throws becomes Unavailable.
template <typename Work>
absl::Status CudnnGuarded(absl::string_view step, Work&& work) {
  try {
    return work();
  } catch (const std::exception& error) {
    return absl::UnavailableError(
        absl::StrCat("cuDNN, ", step, ": ", CudnnFirstLine(error.what())));
  }
}

// NOT_SET for what cuDNN has no operand of.
cudnn_frontend::DataType_t CudnnDataType(DType dtype);

}  // namespace retrograd

#endif  // RETROGRAD_HAVE_CUDNN

#endif  // RETROGRAD_RUNTIME_GPU_CUDA_CUDNN_FRONTEND_CALLS_H_
