#if defined(RETROGRAD_HAVE_CUDA)

#include "runtime/ops/matmul/cublas_loader.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "graph/base/status.h"
#include "runtime/ops/matmul/cublas_matmul.h"

namespace retrograd {
namespace {

class CublasLoader : public GpuMatMulLoader {
 public:
  CublasLoader(GpuDevice& device, const CublasLoaderOptions& options)
      : GpuMatMulLoader(device), path_(options.library) {}
  ~CublasLoader() override {
    Forget();
    if (handle_ != nullptr) library_->Destroy(handle_);
  }

 protected:
  absl::StatusOr<std::unique_ptr<LibraryMatMul>> Make(const MatMulCall& call,
                                                      const MatMulFacts& facts) override;
  absl::StatusOr<std::unique_ptr<LibraryMatMul>> MakeWithoutAlgorithms(
      const MatMulCall& call, const MatMulFacts& facts) override;
  std::string LibraryVersion() const override {
    return absl::StrCat("cublaslt ", library_->GetVersion());
  }

 private:
  absl::Status Open();

  const std::string path_;
  const CublasLibrary* library_ = nullptr;  // both when the first matmul is loaded
  cublasLtHandle_t handle_ = nullptr;
};

absl::Status CublasLoader::Open() {
  if (library_ == nullptr) {
    RG_ASSIGN_OR_RETURN(library_, LoadCublas(path_));
  }
  if (handle_ == nullptr) {
    RG_RETURN_IF_ERROR(CublasStatus(*library_, library_->Create(&handle_), "cublasLtCreate"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<LibraryMatMul>> CublasLoader::Make(const MatMulCall& call,
                                                                  const MatMulFacts& facts) {
  RG_RETURN_IF_ERROR(Open());
  return CublasMatMul::Make(*library_, handle_, call, facts, /*ask=*/true);
}

absl::StatusOr<std::unique_ptr<LibraryMatMul>> CublasLoader::MakeWithoutAlgorithms(
    const MatMulCall& call, const MatMulFacts& facts) {
  RG_RETURN_IF_ERROR(Open());
  return CublasMatMul::Make(*library_, handle_, call, facts, /*ask=*/false);
}

}  // namespace

std::unique_ptr<CallLoader> MakeCublasLoader(GpuDevice& device,
                                             const CublasLoaderOptions& options) {
  return std::make_unique<CublasLoader>(device, options);
}

}  // namespace retrograd

#endif  // RETROGRAD_HAVE_CUDA
