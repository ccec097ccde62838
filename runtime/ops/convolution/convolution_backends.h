// Who may make a convolution's gradients. The first of a list is who makes them where nothing is
// timed.
#ifndef RETROGRAD_RUNTIME_OPS_CONVOLUTION_CONVOLUTION_BACKENDS_H_
#define RETROGRAD_RUNTIME_OPS_CONVOLUTION_CONVOLUTION_BACKENDS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "graph/ir/backward_graph.h"

namespace retrograd {

enum class ConvolutionBackend : uint8_t {
  kCudnn,      // "cudnn"
  kRetrograd,  // "retrograd": kernels of ours
};

using ConvolutionBackendList = std::vector<ConvolutionBackend>;

struct ConvolutionBackends {
  ConvolutionBackendList input = {ConvolutionBackend::kCudnn, ConvolutionBackend::kRetrograd};
  ConvolutionBackendList weight = {ConvolutionBackend::kCudnn, ConvolutionBackend::kRetrograd};

  // Of a gradient's op; of convolution itself cuDNN alone.
  ConvolutionBackendList Of(Op op) const;
};

bool Has(const ConvolutionBackendList& list, ConvolutionBackend backend);

// "cudnn,retrograd". InvalidArgument for another name, one that stands twice, or none.
absl::StatusOr<ConvolutionBackendList> ParseConvolutionBackends(absl::string_view text);
std::string Print(const ConvolutionBackendList& list);

}  // namespace retrograd

#endif  // RETROGRAD_RUNTIME_OPS_CONVOLUTION_CONVOLUTION_BACKENDS_H_
