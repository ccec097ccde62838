#include "runtime/ops/matmul/gpu_matmul.h"

#include <utility>
#include <vector>

#include "graph/base/status.h"
#include "runtime/ops/matmul/fallback_matmul.h"

namespace retrograd {
namespace {

class GpuMatMul : public LoadedCall {
 public:
  // By the library; without one there is nothing to do.
  GpuMatMul(GpuDevice& device, const MatMulCall& call, std::shared_ptr<const LibraryMatMul> library)
      : LoadedCall(library != nullptr ? library->workspace_bytes() : 0),
        device_(device),
        library_(std::move(library)),
        offsets_{call.a.offset, call.b.offset, call.d.offset} {}
  GpuMatMul(GpuDevice& device, std::unique_ptr<LoadedKernels> kernel)
      : LoadedCall(0), device_(device), kernel_(std::move(kernel)) {}

  absl::Status Run(int stream, const CallPointers& pointers, void* scratch) override {
    const MatMulPointers matrices = MatMulPointersOf(pointers);
    if (library_ != nullptr) {
      const CurrentContext current(device_.driver(), device_.context());
      RG_RETURN_IF_ERROR(current.status());
      return library_->Run(device_.Stream(stream), matrices, offsets_, scratch);
    }
    if (kernel_ == nullptr) return absl::OkStatus();
    void* const table[] = {const_cast<void*>(matrices.a), const_cast<void*>(matrices.b),
                           matrices.d};
    RG_RETURN_IF_ERROR(device_.Bind(stream, *kernel_, table));
    return device_.Launch(stream, *kernel_, 0);
  }

  std::string Describe() const override {
    return library_ != nullptr ? "the library" : "a kernel of ours";
  }

 private:
  GpuDevice& device_;
  std::shared_ptr<const LibraryMatMul> library_;
  int64_t offsets_[3] = {};  // of a, b and d, in elements
  std::unique_ptr<LoadedKernels> kernel_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<LoadedCall>> GpuMatMulLoader::Load(const Call& call,
                                                                  const CallFacts& facts) {
  const MatMulCall matmul = MatMulOf(call);
  RG_ASSIGN_OR_RETURN(const Kernel kernel, FallbackMatMul(matmul, device_.dialect()));
  if (kernel.blocks == 0) return std::make_unique<GpuMatMul>(device_, matmul, nullptr);
  absl::StatusOr<std::shared_ptr<const LibraryMatMul>> library =
      matmul.k == 0 ? absl::UnimplementedError("an empty sum")
                    : Prepare(matmul, MatMulFactsOf(facts));
  if (library.ok()) return std::make_unique<GpuMatMul>(device_, matmul, *std::move(library));
  if (!absl::IsUnimplemented(library.status())) return library.status();
  const std::vector<LaunchArg> args = {{.slot = 0}, {.slot = 1}, {.slot = 2, .written = true}};
  RG_ASSIGN_OR_RETURN(std::unique_ptr<LoadedKernels> loaded,
                      device_.Load({kernel}, {{kernel.name, kernel.blocks, kernel.threads, args}}));
  return std::make_unique<GpuMatMul>(device_, std::move(loaded));
}

}  // namespace retrograd
