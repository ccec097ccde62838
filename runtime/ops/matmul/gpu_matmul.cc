#include "runtime/ops/matmul/gpu_matmul.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "graph/base/status.h"
#include "runtime/gpu/kernels_digest.h"
#include "runtime/ops/matmul/blas_operands.h"
#include "runtime/ops/matmul/fallback_matmul.h"
#include "runtime/ops/matmul/matmul_class.h"
#include "runtime/trials/autotune.h"

namespace retrograd {
namespace {

// "the library, algorithm 66: 12.3 us", and a line for each that was not chosen. who: who makes
// the call. timed: the call that the times are of, if it is another.
std::string Told(absl::string_view who, const Choice& choice, const std::string& timed) {
  std::string text(who);
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
  // By the library or by tiles of ours; with neither there is nothing to do.
  GpuMatMul(GpuDevice& device, const MatMulCall& call, const MatMulMaker& maker,
            const Choice& choice, const std::string& timed)
      : LoadedCall(maker.library != nullptr ? maker.library->workspace_bytes() : 0,
                   timed.empty() ? choice.us() : 0),
        device_(device),
        maker_(maker),
        told_(Told(maker.tiles != nullptr ? "kernels of ours" : "the library", choice, timed)),
        offsets_{call.a.offset, call.b.offset, call.d.offset} {}
  GpuMatMul(GpuDevice& device, std::unique_ptr<LoadedKernels> kernel)
      : LoadedCall(0), device_(device), told_("a kernel of ours"), kernel_(std::move(kernel)) {}

  absl::Status Run(int stream, const CallPointers& pointers, void* scratch) override {
    const MatMulPointers matrices = MatMulPointersOf(pointers);
    if (maker_.tiles != nullptr) return maker_.tiles->Run(stream, matrices, offsets_);
    if (maker_.library != nullptr) {
      const CurrentContext current(device_.driver(), device_.context());
      RG_RETURN_IF_ERROR(current.status());
      return maker_.library->Run(device_.Stream(stream), matrices, offsets_, scratch);
    }
    if (kernel_ == nullptr) return absl::OkStatus();
    void* const table[] = {const_cast<void*>(matrices.a), const_cast<void*>(matrices.b),
                           matrices.d};
    RG_RETURN_IF_ERROR(device_.Bind(stream, *kernel_, table));
    return device_.Launch(stream, *kernel_, 0);
  }

  std::string Describe() const override { return told_; }

 private:
  GpuDevice& device_;
  const MatMulMaker maker_;
  const std::string told_;
  int64_t offsets_[3] = {};  // of a, b and d, in elements
  std::unique_ptr<LoadedKernels> kernel_;
};

constexpr int64_t kNoOffsets[3] = {};

class Algorithms : public Implementations {
 public:
  Algorithms(GpuDevice& device, LibraryMatMul& matmul) : device_(device), matmul_(matmul) {}
  std::string State() const override { return matmul_.ChosenState(); }
  int count() const override { return matmul_.algorithms(); }
  int64_t most_workspace_bytes() const override { return matmul_.most_workspace_bytes(); }
  absl::Status Choose(int algorithm) override { return matmul_.Choose(algorithm); }
  absl::Status Run(const CallPointers& pointers, void* workspace) override {
    return matmul_.Run(device_.Stream(0), MatMulPointersOf(pointers), kNoOffsets, workspace);
  }
  std::string Name(int algorithm) const override { return matmul_.Name(algorithm); }

 private:
  GpuDevice& device_;
  LibraryMatMul& matmul_;
};

// The library's algorithms, and behind them tiles of ours, whose kernels are compiled when they are
// first chosen.
class AlgorithmsAndTiles : public Implementations {
 public:
  AlgorithmsAndTiles(GpuDevice& device, LibraryMatMul& matmul, const MatMulCall& call,
                     const MatMulFacts& facts, std::vector<MatMulTile> tiles)
      : device_(device),
        algorithms_(device, matmul),
        call_(call),
        facts_(facts),
        tiles_(std::move(tiles)),
        loaded_(tiles_.size()) {}

  int count() const override { return Library() + static_cast<int>(tiles_.size()); }
  int most_candidates() const override { return count(); }
  int64_t most_workspace_bytes() const override { return algorithms_.most_workspace_bytes(); }
  std::string State() const override { return tiles() ? "" : algorithms_.State(); }
  std::string Name(int i) const override {
    return IsTile(i) ? absl::StrCat("kernels of ours, ", tiles_[TileAt(i)].Print())
                     : algorithms_.Name(i);
  }
  absl::Status Choose(int i) override {
    if (!IsTile(i)) {
      chosen_ = i;
      return algorithms_.Choose(i);
    }
    std::shared_ptr<const TiledMatMul>& loaded = loaded_[TileAt(i)];
    if (loaded == nullptr) {
      RG_ASSIGN_OR_RETURN(loaded, TiledMatMul::Load(device_, call_, facts_, tiles_[TileAt(i)]));
    }
    chosen_ = i;
    return absl::OkStatus();
  }
  absl::Status Run(const CallPointers& pointers, void* workspace) override {
    const auto chosen = tiles();
    return chosen ? chosen->Run(0, MatMulPointersOf(pointers), kNoOffsets)
                  : algorithms_.Run(pointers, workspace);
  }

  // What is chosen, if it is a tile.
  std::shared_ptr<const TiledMatMul> tiles() const {
    return IsTile(chosen_) ? loaded_[TileAt(chosen_)] : nullptr;
  }

 private:
  int Library() const { return std::min(algorithms_.count(), kMostCandidates); }
  bool IsTile(int i) const { return i >= Library(); }
  size_t TileAt(int i) const { return static_cast<size_t>(i - Library()); }

  GpuDevice& device_;
  Algorithms algorithms_;
  const MatMulCall& call_;
  const MatMulFacts& facts_;
  const std::vector<MatMulTile> tiles_;
  std::vector<std::shared_ptr<const TiledMatMul>> loaded_;
  int chosen_ = 0;
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
  return {
      .operands = {{call.in_dtype, OperandSpan(call, 0)}, {call.in_dtype, OperandSpan(call, 1)}},
      .results = {{.dtype = call.out_dtype,
                   .elements = OperandSpan(call, 2),
                   .added_to = call.accumulate}}};
}

}  // namespace

ChoiceKey GpuMatMulLoader::KeyOf(const std::string& matmul_key) const {
  return device_.tuner().Key("matmul 1", LibraryVersion(), matmul_key);
}

absl::StatusOr<GpuMatMulLoader::Prepared> GpuMatMulLoader::Prepare(const MatMulCall& call,
                                                                   const MatMulFacts& facts) {
  const std::string key = MatMulKey(call, facts);
  if (const auto known = known_.find(key); known != known_.end()) {
    device_.tuner().Uses(known->second.key);
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
  std::vector<MatMulTile> tiles = TilesFor(call, facts);
  if (!tiles.empty()) {
    RG_ASSIGN_OR_RETURN(Prepared prepared, PrepareWithTiles(call, facts, std::move(made), tiles));
    return known_[key] = std::move(prepared);
  }
  Algorithms algorithms(device_, *made);
  const ChoiceKey choice_key = KeyOf(key);
  RG_ASSIGN_OR_RETURN(Choice choice,
                      device_.tuner().Choose(choice_key, MemoryOf(call), algorithms));
  return known_[key] = Prepared{{.library = std::move(made)}, std::move(choice), choice_key};
}

absl::StatusOr<GpuMatMulLoader::Prepared> GpuMatMulLoader::PrepareByState(
    const MatMulCall& timed, const MatMulCall& call, const MatMulFacts& facts) {
  if (!AlignedAs(timed, call, facts)) return Prepared{};
  RG_ASSIGN_OR_RETURN(std::unique_ptr<LibraryMatMul> made, MakeWithoutAlgorithms(call, facts));
  if (made == nullptr) return Prepared{};
  std::optional<Choice> choice = device_.tuner().Recall(KeyOf(MatMulKey(timed, facts)));
  const bool known = choice && choice->timed() && !choice->state.empty();
  if (!known || !made->ChooseByState(choice->state).ok()) return Prepared{};
  return Prepared{{.library = std::move(made)}, *std::move(choice), {}, Describe(timed)};
}

absl::StatusOr<GpuMatMulLoader::Prepared> GpuMatMulLoader::PrepareLike(const MatMulCall& timed,
                                                                       const MatMulCall& call,
                                                                       const MatMulFacts& facts) {
  RG_ASSIGN_OR_RETURN(Prepared known, PrepareByState(timed, call, facts));
  if (known.maker.library != nullptr) return known;
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
  prepared.maker.library = std::move(made);
  return prepared;
}

std::vector<MatMulTile> GpuMatMulLoader::TilesFor(const MatMulCall& call,
                                                  const MatMulFacts& facts) const {
  // Where sizes vary, kernels of one size would be compiled again and again.
  const bool worth = IsWorthTiles(call, AlignmentsOf(call, facts), device_.Describe().sms);
  return worth && !device_.sizes_vary() ? MatMulTilesOn(call, device_) : std::vector<MatMulTile>{};
}

absl::StatusOr<GpuMatMulLoader::Prepared> GpuMatMulLoader::PrepareWithTiles(
    const MatMulCall& call, const MatMulFacts& facts, std::unique_ptr<LibraryMatMul> library,
    const std::vector<MatMulTile>& tiles) {
  std::vector<Kernel> kernels;
  for (const MatMulTile& tile : tiles) {
    kernels.push_back(TiledMatMulKernel(call, facts, tile, device_));
  }
  const ChoiceKey key =
      device_.tuner().Key("matmul 2",
                          absl::StrCat(LibraryVersion(), ", ", device_.Compiler(), ", kernels ",
                                       KernelsDigest(device_.dialect(), kernels)),
                          MatMulKey(call, facts));
  AlgorithmsAndTiles ways(device_, *library, call, facts, tiles);
  RG_ASSIGN_OR_RETURN(Choice choice, device_.tuner().Choose(key, MemoryOf(call), ways));
  MatMulMaker maker{.tiles = ways.tiles()};
  if (maker.tiles == nullptr) maker.library = std::move(library);
  return Prepared{std::move(maker), std::move(choice), key};
}

std::vector<Kernel> GpuMatMulLoader::KernelsOf(const Call& call, const CallFacts& facts) {
  const MatMulCall matmul = MatMulOf(call);
  const MatMulFacts known = MatMulFactsOf(facts);
  std::vector<Kernel> kernels;
  for (const MatMulTile& tile : TilesFor(matmul, known)) {
    kernels.push_back(TiledMatMulKernel(matmul, known, tile, device_));
  }
  return kernels;
}

absl::StatusOr<std::unique_ptr<LoadedCall>> GpuMatMulLoader::LoadOurs(const MatMulCall& matmul,
                                                                      const MatMulFacts& facts) {
  const std::vector<MatMulTile> tiles =
      device_.sizes_vary() ? std::vector<MatMulTile>{} : MatMulTilesOn(matmul, device_);
  if (!tiles.empty()) {
    MatMulMaker maker;
    RG_ASSIGN_OR_RETURN(maker.tiles, TiledMatMul::Load(device_, matmul, facts, tiles[0]));
    return std::make_unique<GpuMatMul>(device_, matmul, maker, Choice{}, "");
  }
  RG_ASSIGN_OR_RETURN(const Kernel kernel, FallbackMatMul(matmul, device_.dialect()));
  const std::vector<LaunchArg> args = {{.slot = 0}, {.slot = 1}, {.slot = 2, .written = true}};
  RG_ASSIGN_OR_RETURN(std::unique_ptr<LoadedKernels> loaded,
                      device_.Load({kernel}, {{kernel.name, kernel.blocks, kernel.threads, args}}));
  return std::make_unique<GpuMatMul>(device_, std::move(loaded));
}

absl::StatusOr<std::unique_ptr<LoadedCall>> GpuMatMulLoader::Load(const Call& call,
                                                                  const CallFacts& facts) {
  const MatMulCall matmul = MatMulOf(call);
  if (IsEmpty(matmul)) {
    return std::make_unique<GpuMatMul>(device_, matmul, MatMulMaker{}, Choice{}, "");
  }
  const MatMulFacts known = MatMulFactsOf(facts);
  absl::StatusOr<Prepared> prepared =
      matmul.k == 0 ? absl::UnimplementedError("an empty sum") : Prepare(matmul, known);
  if (prepared.ok()) {
    return std::make_unique<GpuMatMul>(device_, matmul, prepared->maker, prepared->choice,
                                       prepared->timed);
  }
  if (!absl::IsUnimplemented(prepared.status())) return prepared.status();
  return LoadOurs(matmul, known);
}

}  // namespace retrograd
