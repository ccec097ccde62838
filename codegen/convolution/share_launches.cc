#include "codegen/convolution/share_launches.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "codegen/print/merge_kernels.h"

namespace retrograd {

SharedConvolutionKernels ShareLaunches(const std::vector<ConvolutionKernels>& gradients) {
  size_t launches = 0;
  for (const ConvolutionKernels& gradient : gradients) {
    launches = std::max(launches, gradient.launches.size());
  }
  SharedConvolutionKernels shared;
  for (size_t l = 0; l < launches; ++l) {
    SharedConvolutionKernels::Launch launch;
    std::vector<Kernel> kernels;
    std::vector<uint32_t> from;
    for (size_t g = 0; g < gradients.size(); ++g) {
      if (l >= gradients[g].launches.size()) continue;
      const ConvolutionKernels::Launch& own = gradients[g].launches[l];
      kernels.push_back(own.kernel);
      from.push_back(static_cast<uint32_t>(g));
      for (const ConvolutionSlot slot : own.args) launch.args.emplace_back(g, slot);
      if (own.boxes) launch.boxes.emplace_back(g, *own.boxes);
    }
    launch.kernel = MergeKernels(kernels, from,
                                 absl::StrCat("// ", kernels.size(), " products in one launch\n"));
    shared.launches.push_back(std::move(launch));
  }
  return shared;
}

}  // namespace retrograd
