#include "runtime/ops/matmul/gpu_matmul.h"

#include <optional>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "graph/base/status.h"
#include "runtime/gpu/autotune.h"
#include "runtime/ops/matmul/blas_operands.h"
#include "runtime/ops/matmul/fallback_matmul.h"
#include "runtime/ops/matmul/matmul_class.h"

namespace retrograd {
namespace {

// "the library, algorithm 66: 12.3 us", and a line for each that was not chosen. timed: the call
// that the times are of, if it is another.
std::string Told(const Choice& choice, const std::string& timed) {
  std::string text = "the library";
  if (!choice.timed()) return text;
  if (!timed.empty()) absl::StrAppend(&text, ", by the times of ", timed);
  absl::StrAppendFormat(&text, ", %s: %.1f us", choice.name(), choice.us());
  for (size_t i = 0; i < choice.candidates.size(); ++i) {
    const TimedCandidate& c = choice.candidates[i];
    if (i != choice.chosen) absl::StrAppendFormat(&text, "\n  %s: %.1f us", c.name, c.us);
  }
  return text;
}

class GpuMatMul : public LoadedCall {
 public:
  // By the library; without one there is nothing to do.
  GpuMatMul(GpuDevice& device, const MatMulCall& call, std::shared_ptr<const LibraryMatMul> library,
            const Choice& choice, const std::string& timed)
      : LoadedCall(library != nullptr ? library->workspace_bytes() : 0,
                   timed.empty() ? choice.us() : 0),
        device_(device),
        library_(std::move(library)),
        told_(Told(choice, timed)),
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

  std::string Describe() const override { return library_ != nullptr ? told_ : "a kernel of ours"; }

 private:
  GpuDevice& device_;
  std::shared_ptr<const LibraryMatMul> library_;
  std::string told_;         // of the library's algorithms
  int64_t offsets_[3] = {};  // of a, b and d, in elements
  std::unique_ptr<LoadedKernels> kernel_;
};

class Algorithms : public Implementations {
 public:
  Algorithms(GpuDevice& device, LibraryMatMul& matmul) : device_(device), matmul_(matmul) {}
  std::string State() const override { return matmul_.ChosenState(); }
  int count() const override { return matmul_.algorithms(); }
  int64_t most_workspace_bytes() const override { return matmul_.most_workspace_bytes(); }
  absl::Status Choose(int algorithm) override { return matmul_.Choose(algorithm); }
  absl::Status Run(const CallPointers& pointers, void* workspace) override {
    constexpr int64_t kNoOffsets[3] = {};
    return matmul_.Run(device_.Stream(0), MatMulPointersOf(pointers), kNoOffsets, workspace);
  }
  std::string Name(int algorithm) const override { return matmul_.Name(algorithm); }

 private:
  GpuDevice& device_;
  LibraryMatMul& matmul_;
};

bool IsEmpty(const MatMulCall& call) {
  return call.m == 0 || call.n == 0 || absl::c_linear_search(call.batch, 0);
}

// Whether each operand of the call is aligned at least as that of the other one is.
bool AlignedAs(const MatMulCall& other, const MatMulCall& call, const MatMulFacts& facts) {
  const int64_t alignments[] = {facts.a_alignment, facts.b_alignment, facts.d_alignment};
  for (int i = 0; i < 3; ++i) {
    if (OperandAlignment(call, i, alignments[i]) < OperandAlignment(other, i, alignments[i])) {
      return false;
    }
  }
  return true;
}

CallMemory MemoryOf(const MatMulCall& call) {
  const auto bytes = [&](int operand, DType dtype) {
    return OperandSpan(call, operand) * SizeBytes(dtype);
  };
  return {.operands = {bytes(0, call.in_dtype), bytes(1, call.in_dtype)},
          .results = {bytes(2, call.out_dtype)}};
}

}  // namespace

ChoiceKey GpuMatMulLoader::KeyOf(const std::string& matmul_key) const {
  return device_.tuner().Key("matmul 1", LibraryVersion(), matmul_key);
}

absl::StatusOr<GpuMatMulLoader::Prepared> GpuMatMulLoader::Prepare(const MatMulCall& call,
                                                                   const MatMulFacts& facts) {
  const std::string key = MatMulKey(call, facts);
  if (const auto known = known_.find(key); known != known_.end()) {
    device_.tuner().Uses(KeyOf(key));
    return known->second;
  }
  if (device_.sizes_vary()) {
    const MatMulCall timed = RepresentativeOf(call);
    if (timed != call) {
      RG_ASSIGN_OR_RETURN(Prepared prepared, PrepareLike(timed, call, facts));
      return known_[key] = std::move(prepared);
    }
  }
  RG_ASSIGN_OR_RETURN(std::unique_ptr<LibraryMatMul> made, Make(call, facts));
  Algorithms algorithms(device_, *made);
  RG_ASSIGN_OR_RETURN(Choice choice,
                      device_.tuner().Choose(KeyOf(key), MemoryOf(call), algorithms));
  return known_[key] = Prepared{std::move(made), std::move(choice)};
}

absl::StatusOr<GpuMatMulLoader::Prepared> GpuMatMulLoader::PrepareByState(
    const MatMulCall& timed, const MatMulCall& call, const MatMulFacts& facts) {
  if (!AlignedAs(timed, call, facts)) return Prepared{};
  RG_ASSIGN_OR_RETURN(std::unique_ptr<LibraryMatMul> made, MakeWithoutAlgorithms(call, facts));
  if (made == nullptr) return Prepared{};
  std::optional<Choice> choice = device_.tuner().Recall(KeyOf(MatMulKey(timed, facts)));
  const bool known = choice && choice->timed() && !choice->state.empty();
  if (!known || !made->ChooseByState(choice->state).ok()) return Prepared{};
  return Prepared{std::move(made), *std::move(choice), Describe(timed)};
}

absl::StatusOr<GpuMatMulLoader::Prepared> GpuMatMulLoader::PrepareLike(const MatMulCall& timed,
                                                                       const MatMulCall& call,
                                                                       const MatMulFacts& facts) {
  RG_ASSIGN_OR_RETURN(Prepared known, PrepareByState(timed, call, facts));
  if (known.matmul != nullptr) return known;
  RG_ASSIGN_OR_RETURN(std::unique_ptr<LibraryMatMul> made, Make(call, facts));
  const absl::StatusOr<Prepared> like = Prepare(timed, facts);
  Prepared prepared;
  if (like.ok() && like->choice.timed()) {
    const Algorithms algorithms(device_, *made);
    const std::vector<std::string> names = NamesOf(algorithms);
    const auto same = absl::c_find(names, like->choice.name());
    const auto number = static_cast<int>(same - names.begin());
    if (same != names.end() && made->Choose(number).ok()) {
      prepared.choice = like->choice;
      prepared.timed = Describe(timed);
    }
  }
  if (prepared.timed.empty()) RG_RETURN_IF_ERROR(made->Choose(0));
  prepared.matmul = std::move(made);
  return prepared;
}

absl::StatusOr<std::unique_ptr<LoadedCall>> GpuMatMulLoader::Load(const Call& call,
                                                                  const CallFacts& facts) {
  const MatMulCall matmul = MatMulOf(call);
  if (IsEmpty(matmul)) return std::make_unique<GpuMatMul>(device_, matmul, nullptr, Choice{}, "");
  absl::StatusOr<Prepared> library = matmul.k == 0 ? absl::UnimplementedError("an empty sum")
                                                   : Prepare(matmul, MatMulFactsOf(facts));
  if (library.ok()) {
    return std::make_unique<GpuMatMul>(device_, matmul, std::move(library->matmul), library->choice,
                                       library->timed);
  }
  if (!absl::IsUnimplemented(library.status())) return library.status();
  RG_ASSIGN_OR_RETURN(const Kernel kernel, FallbackMatMul(matmul, device_.dialect()));
  const std::vector<LaunchArg> args = {{.slot = 0}, {.slot = 1}, {.slot = 2, .written = true}};
  RG_ASSIGN_OR_RETURN(std::unique_ptr<LoadedKernels> loaded,
                      device_.Load({kernel}, {{kernel.name, kernel.blocks, kernel.threads, args}}));
  return std::make_unique<GpuMatMul>(device_, std::move(loaded));
}

}  // namespace retrograd
