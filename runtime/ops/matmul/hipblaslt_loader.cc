#include "runtime/ops/matmul/hipblaslt_loader.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "graph/base/status.h"
#include "runtime/ops/matmul/hipblaslt_matmul.h"

namespace retrograd {
namespace {

// Without the library matmuls run through a kernel of ours: correct, and slow.
class HipblasltLoader : public GpuMatMulLoader {
 public:
  HipblasltLoader(GpuDevice& device, const HipblasltLoaderOptions& options)
      : GpuMatMulLoader(device), options_(options) {}

 protected:
  absl::StatusOr<std::shared_ptr<const LibraryMatMul>> Prepare(const MatMulCall& call,
                                                               const MatMulFacts& facts) override {
    if (matmuls_ == nullptr) {
      RG_RETURN_IF_ERROR(no_matmuls_);
      absl::StatusOr<std::unique_ptr<HipblasltMatMuls>> made =
          HipblasltMatMuls::Create(options_.library);
      if (absl::IsUnavailable(made.status())) {
        return no_matmuls_ = absl::UnimplementedError(made.status().message());
      }
      RG_RETURN_IF_ERROR(made.status());
      matmuls_ = *std::move(made);
    }
    return matmuls_->Prepare(
        {.driver = device().driver(),
         .stream = device().OwnStream(),
         .device = absl::StrCat(device().facts().model, " ", device().facts().arch),
         .cache = device().Cache(),
         .time = options_.time},
        call, facts);
  }

 private:
  const HipblasltLoaderOptions options_;
  std::unique_ptr<HipblasltMatMuls> matmuls_;  // when the first matmul is loaded
  absl::Status no_matmuls_;                    // why there are none, once tried
};

}  // namespace

std::unique_ptr<CallLoader> MakeHipblasltLoader(GpuDevice& device,
                                                const HipblasltLoaderOptions& options) {
  return std::make_unique<HipblasltLoader>(device, options);
}

}  // namespace retrograd
