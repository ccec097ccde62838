#include "runtime/ops/matmul/gpu_matmul.h"

#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "graph/base/status.h"
#include "runtime/gpu/autotune.h"
#include "runtime/ops/matmul/blas_operands.h"
#include "runtime/ops/matmul/fallback_matmul.h"

namespace retrograd {
namespace {

class GpuMatMul : public LoadedCall {
 public:
  // By the library; without one there is nothing to do.
  GpuMatMul(GpuDevice& device, const MatMulCall& call, std::shared_ptr<const LibraryMatMul> library,
            double us)
      : LoadedCall(library != nullptr ? library->workspace_bytes() : 0, us),
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

class Algorithms : public Implementations {
 public:
  Algorithms(GpuDevice& device, LibraryMatMul& matmul) : device_(device), matmul_(matmul) {}
  int count() const override { return matmul_.algorithms(); }
  int64_t most_workspace_bytes() const override { return matmul_.most_workspace_bytes(); }
  absl::Status Choose(int algorithm) override { return matmul_.Choose(algorithm); }
  absl::Status Run(const CallPointers& pointers, void* workspace) override {
    constexpr int64_t kNoOffsets[3] = {};
    return matmul_.Run(device_.Stream(0), MatMulPointersOf(pointers), kNoOffsets, workspace);
  }
  absl::StatusOr<std::string> Serialize() const override { return matmul_.Serialize(); }

 private:
  GpuDevice& device_;
  LibraryMatMul& matmul_;
};

CallMemory MemoryOf(const MatMulCall& call) {
  const auto bytes = [&](int operand, DType dtype) {
    return OperandSpan(call, operand) * SizeBytes(dtype);
  };
  return {.operands = {bytes(0, call.in_dtype), bytes(1, call.in_dtype)},
          .results = {bytes(2, call.out_dtype)}};
}

}  // namespace

// Microseconds; 0: not timed.
absl::StatusOr<double> GpuMatMulLoader::ChooseAlgorithm(const MatMulCall& call,
                                                        absl::string_view key,
                                                        LibraryMatMul& matmul) {
  const AutotuneOptions options{.cache = device_.Cache(), .time = time_};
  const std::string entry = absl::StrCat("matmul\n", device_.facts().model, " ",
                                         device_.facts().arch, "\n", LibraryVersion(), "\n", key);
  if (const std::optional<ImplementationTimes> known = RecallTimes(options, entry);
      known && matmul.Restore(known->chosen)) {
    return known->least_us();
  }
  Algorithms algorithms(device_, matmul);
  RG_ASSIGN_OR_RETURN(const ImplementationTimes times,
                      ChooseFastest(device_, options, entry, MemoryOf(call), algorithms));
  return times.least_us();
}

absl::StatusOr<GpuMatMulLoader::Prepared> GpuMatMulLoader::Prepare(const MatMulCall& call,
                                                                   const MatMulFacts& facts) {
  const std::string key = MatMulKey(call, facts);
  if (const auto known = known_.find(key); known != known_.end()) return known->second;
  RG_ASSIGN_OR_RETURN(std::unique_ptr<LibraryMatMul> made, Make(call, facts));
  RG_ASSIGN_OR_RETURN(const double us, ChooseAlgorithm(call, key, *made));
  return known_[key] = Prepared{std::move(made), us};
}

absl::StatusOr<std::unique_ptr<LoadedCall>> GpuMatMulLoader::Load(const Call& call,
                                                                  const CallFacts& facts) {
  const MatMulCall matmul = MatMulOf(call);
  RG_ASSIGN_OR_RETURN(const Kernel kernel, FallbackMatMul(matmul, device_.dialect()));
  if (kernel.blocks == 0) return std::make_unique<GpuMatMul>(device_, matmul, nullptr, 0);
  absl::StatusOr<Prepared> library = matmul.k == 0 ? absl::UnimplementedError("an empty sum")
                                                   : Prepare(matmul, MatMulFactsOf(facts));
  if (library.ok()) {
    return std::make_unique<GpuMatMul>(device_, matmul, std::move(library->matmul), library->us);
  }
  if (!absl::IsUnimplemented(library.status())) return library.status();
  const std::vector<LaunchArg> args = {{.slot = 0}, {.slot = 1}, {.slot = 2, .written = true}};
  RG_ASSIGN_OR_RETURN(std::unique_ptr<LoadedKernels> loaded,
                      device_.Load({kernel}, {{kernel.name, kernel.blocks, kernel.threads, args}}));
  return std::make_unique<GpuMatMul>(device_, std::move(loaded));
}

}  // namespace retrograd
