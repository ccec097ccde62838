#if defined(RETROGRAD_HAVE_CUDA)

#include "runtime/ops/matmul/cublas_loader.h"

#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "graph/base/status.h"
#include "runtime/ops/matmul/cublas_matmul.h"

namespace retrograd {
namespace {

// What was found to be fastest before. False if nothing was, or if it does not hold any more.
bool ReadChoice(const ModuleCache& cache, absl::string_view key, CublasMatMul* matmul) {
  const std::optional<std::string> entry = cache.Read(key);
  CublasMatMul::Choice choice;
  if (!entry.has_value() || entry->size() != sizeof choice) return false;
  std::memcpy(&choice, entry->data(), sizeof choice);
  return matmul->Choose(choice);
}

void WriteChoice(const ModuleCache& cache, absl::string_view key, const CublasMatMul& matmul) {
  const CublasMatMul::Choice& choice = matmul.choice();
  cache.Write(key, {reinterpret_cast<const char*>(&choice), sizeof choice}).IgnoreError();
}

class CublasLoader : public GpuMatMulLoader {
 public:
  CublasLoader(GpuDevice& device, const CublasLoaderOptions& options)
      : GpuMatMulLoader(device), options_(options) {}
  ~CublasLoader() override {
    known_.clear();
    if (handle_ != nullptr) library_->Destroy(handle_);
  }

 protected:
  absl::StatusOr<std::shared_ptr<const LibraryMatMul>> Prepare(const MatMulCall& call,
                                                               const MatMulFacts& facts) override;

 private:
  const CublasLoaderOptions options_;
  const CublasLibrary* library_ = nullptr;  // both when the first matmul is loaded
  cublasLtHandle_t handle_ = nullptr;
  std::map<std::string, std::shared_ptr<const CublasMatMul>> known_;  // by key
};

absl::StatusOr<std::shared_ptr<const LibraryMatMul>> CublasLoader::Prepare(
    const MatMulCall& call, const MatMulFacts& facts) {
  const std::string key = MatMulKey(call, facts);
  if (const auto known = known_.find(key); known != known_.end()) return known->second;
  if (library_ == nullptr) {
    RG_ASSIGN_OR_RETURN(library_, LoadCublas(options_.library));
  }
  if (handle_ == nullptr) {
    RG_RETURN_IF_ERROR(CublasStatus(*library_, library_->Create(&handle_), "cublasLtCreate"));
  }
  RG_ASSIGN_OR_RETURN(std::shared_ptr<CublasMatMul> made,
                      CublasMatMul::Make(*library_, handle_, call, facts));
  // A choice is the device's and the library's.
  const ModuleCache* const cache = device().Cache();
  const std::string entry =
      absl::StrCat("retrograd cublaslt choice 1\n", device().facts().model, " ",
                   device().facts().arch, "\n", library_->GetVersion(), "\n", key);
  if (options_.time && !(cache != nullptr && ReadChoice(*cache, entry, made.get()))) {
    const absl::Status timed =
        ChooseByTiming(device().driver(), device().OwnStream(), call, made.get());
    // Without the memory for a measurement the library's favourite does.
    if (!timed.ok() && !absl::IsResourceExhausted(timed)) return timed;
    if (timed.ok() && cache != nullptr) WriteChoice(*cache, entry, *made);
  }
  known_[key] = made;
  return made;
}

}  // namespace

std::unique_ptr<CallLoader> MakeCublasLoader(GpuDevice& device,
                                             const CublasLoaderOptions& options) {
  return std::make_unique<CublasLoader>(device, options);
}

}  // namespace retrograd

#endif  // RETROGRAD_HAVE_CUDA
