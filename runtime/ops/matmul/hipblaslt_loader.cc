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
      : GpuMatMulLoader(device), path_(options.library) {}
  ~HipblasltLoader() override { Forget(); }

 protected:
  absl::StatusOr<std::unique_ptr<LibraryMatMul>> Make(const MatMulCall& call,
                                                      const MatMulFacts& facts) override {
    RG_RETURN_IF_ERROR(LoadHandle());
    return handle_->MakeMatMul(call, facts);
  }
  std::string LibraryVersion() const override {
    return absl::StrCat("hipblaslt ", handle_->version());
  }

 private:
  absl::Status LoadHandle() {
    if (handle_ != nullptr) return absl::OkStatus();
    RG_RETURN_IF_ERROR(no_handle_);
    absl::StatusOr<std::unique_ptr<HipblasltHandle>> made = HipblasltHandle::Create(path_);
    if (absl::IsUnavailable(made.status())) {
      return no_handle_ = absl::UnimplementedError(made.status().message());
    }
    RG_RETURN_IF_ERROR(made.status());
    handle_ = *std::move(made);
    return absl::OkStatus();
  }

  const std::string path_;
  std::unique_ptr<HipblasltHandle> handle_;  // when the first matmul is loaded
  absl::Status no_handle_;                   // why there is none, once tried
};

}  // namespace

std::unique_ptr<CallLoader> MakeHipblasltLoader(GpuDevice& device,
                                                const HipblasltLoaderOptions& options) {
  return std::make_unique<HipblasltLoader>(device, options);
}

}  // namespace retrograd
