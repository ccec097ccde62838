#include "runtime/ops/attention/cuda_attention.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "codegen/attention/emit_tiled_attention.h"
#include "graph/base/status.h"
#include "runtime/gpu/kernels_digest.h"
#include "runtime/ops/attention/attention_class.h"
#include "runtime/ops/attention/attention_gradients.h"
#include "runtime/ops/attention/fallback_attention.h"
#include "runtime/trials/loaded_calls.h"

namespace retrograd {
namespace {

constexpr absl::string_view kTiledName = "tiled", kCudnnName = "cudnn";

// The cuDNN whose masks are test data (tests/data/attention_masks).
constexpr absl::string_view kKnownCudnn = "cuDNN 9.19.";

CallMemory MemoryOf(const AttentionCall& call, const AttentionFacts& facts) {
  CallMemory memory;
  for (size_t i = 0; i < call.operands.size(); ++i) {
    memory.operands.push_back(TrialOperand(call, facts, i));
  }
  for (const AttentionOperand& result : call.results) {
    memory.results.push_back({call.dtype, SpanOf(result)});
  }
  return memory;
}

// What a bias is taken to hold when our kernels are timed, which pass over what is masked: one for
// all heads is a causal mask, one for each of them, or for all queries, holds other numbers.
absl::Status FillBias(Device& device, const AttentionOperand& bias, DType dtype, void* data) {
  const size_t rank = bias.shape.size();
  const auto extent = [&](size_t axis) {
    return axis + rank < 4 ? 1 : bias.shape[axis + rank - 4];
  };
  const auto stride = [&](size_t axis) {
    return extent(axis) == 1 ? 0 : bias.strides[axis + rank - 4];
  };
  const bool mask = (extent(1) == 1 || stride(1) == 0) && extent(2) > 1 && stride(2) != 0;
  const uint32_t number = dtype == DType::kFp32   ? (mask ? 0xff800000u : 0x3f800000u)
                          : dtype == DType::kBf16 ? (mask ? 0xff80u : 0x3f80u)
                                                  : (mask ? 0xfc00u : 0x3c00u);
  const int64_t bytes = SizeBytes(dtype);
  std::vector<char> host(static_cast<size_t>(SpanOf(bias) * bytes));
  for (int64_t b = 0; b < extent(0); ++b) {
    for (int64_t h = 0; h < extent(1); ++h) {
      for (int64_t i = 0; i < extent(2); ++i) {
        for (int64_t j = mask ? i + 1 : 0; j < extent(3); ++j) {
          const int64_t at =
              bias.offset + b * stride(0) + h * stride(1) + i * stride(2) + j * stride(3);
          std::memcpy(host.data() + at * bytes, &number, static_cast<size_t>(bytes));
        }
      }
    }
  }
  return device.CopyIn(data, host.data(), static_cast<int64_t>(host.size()));
}

// How cuDNN draws dropout may change from version to version, so with one whose masks are not known
// ours is only used where both give the same gradients.
bool DrawsAsCudnn(const AttentionCall& call) {
  return call.dropout_p > 0 && DropoutOf(call) == DropoutVariant::kCudnn;
}

// What cuDNN refuses whatever the order of its sums has another reason than equal bits.
absl::Status WithoutCudnn(const AttentionCall& call, const AttentionFacts& facts,
                          const absl::Status& refusal, bool deterministic) {
  const bool for_equal_bits =
      deterministic && absl::IsUnimplemented(refusal) && CudnnRefusal(call, facts).ok();
  return absl::Status(
      refusal.code(),
      absl::StrFormat("attention_backward %%%d drops out with p = %g by cuDNN's random numbers, "
                      "which are those of a cuDNN that takes the call: %s%s",
                      Index(call.node), call.dropout_p, refusal.message(),
                      for_equal_bits ? " (it may take the call with --nondeterministic, where two "
                                       "runs need not give the same bits)"
                                     : ""));
}

bool InBoxes(const AttentionCall& call, const AttentionFacts& facts) {
  return BiasComesInBoxes(call, facts.operand_dtypes, facts.operand_alignment);
}

AttentionKernels TiledKernels(const AttentionCall& call, const AttentionFacts& facts, int64_t sms) {
  return EmitTiledAttention(
      call, facts.operand_dtypes,
      ChooseAttentionTiles(call, static_cast<int>(sms), InBoxes(call, facts)));
}

// cuDNN's fastest plan and our kernels for tensor cores.
class CudnnOrTiled : public LoadedCalls {
 public:
  CudnnOrTiled(Device& device, const AttentionCall& call, const AttentionFacts& facts,
               std::vector<Made> made)
      : LoadedCalls(std::move(made)), device_(device), call_(call), facts_(facts) {}

  absl::Status Fill(const CallPointers& pointers) override {
    if (HasBias(call_)) {
      RG_RETURN_IF_ERROR(FillBias(device_, call_.operands[kAttentionBias],
                                  facts_.operand_dtypes[kAttentionBias],
                                  const_cast<void*>(pointers.operands[kAttentionBias])));
    }
    return DrawsAsCudnn(call_) ? FillAttention(device_, call_, facts_, pointers) : absl::OkStatus();
  }
  absl::Status Check(const CallPointers& pointers) override {
    if (!DrawsAsCudnn(call_)) return absl::OkStatus();
    const bool tiled = chosen_name() == kTiledName;
    RG_ASSIGN_OR_RETURN(Gradients gradients, GradientsOf(device_, call_, pointers));
    if (!tiled) cudnns_ = std::move(gradients);
    return tiled ? SameGradients(call_, gradients, cudnns_) : absl::OkStatus();
  }

 private:
  Device& device_;
  const AttentionCall& call_;
  const AttentionFacts& facts_;
  Gradients cudnns_;  // of what Fill wrote; of a call that draws as cuDNN does
};

// Programs for several sizes have a call timed by that of its class.
AttentionCall TimedFor(const GpuDevice& device, const AttentionCall& call) {
  return device.sizes_vary() ? RepresentativeOf(call) : call;
}

}  // namespace

absl::Status CudaAttentionCall::Run(int stream, const CallPointers& pointers, void* scratch) {
  const AttentionPointers typed{pointers.operands, dtypes_, pointers.results};
  const CurrentContext current(device_.driver(), device_.context());
  RG_RETURN_IF_ERROR(current.status());
  if (library_ != nullptr) return library_->Run(device_.Stream(stream), pointers, scratch);
  return RunFallbackAttention(device_, stream, *kernels_, launches_, typed, scratch);
}

std::string CudaAttentionCall::Describe() const {
  const auto times = [](double us) {
    return us == 0 ? std::string() : absl::StrFormat(": %.1f us", us);
  };
  if (tiled_) {
    std::string text = absl::StrCat("our kernels for tensor cores", times(tiled_us_));
    if (library_us_ != 0) absl::StrAppend(&text, "\n  cuDNN", times(library_us_));
    return text;
  }
  if (library_ == nullptr) return absl::StrCat("our kernels, because ", refusal_.message());
  std::string text = library_->Describe();
  if (tiled_us_ != 0) absl::StrAppend(&text, "\n  our kernels for tensor cores", times(tiled_us_));
  if (!tiled_refusal_.ok()) {
    absl::StrAppend(&text, "\n  not our kernels for tensor cores: ", tiled_refusal_.message());
  }
  return text;
}

CudaAttention::CudaAttention(const CudaAttentionOptions& options)
    : options_(options),
      cudnn_("attention 2", {.library = options.cudnn_library, .allow = options.allow_cudnn}) {}

absl::StatusOr<std::shared_ptr<CudnnPlans>> CudaAttention::Library(const Place& place,
                                                                   const AttentionCall& call,
                                                                   const AttentionFacts& facts) {
  RG_RETURN_IF_ERROR(CudnnRefusal(call, facts));
  const AttentionCall timed = TimedFor(place.device, call);
  return cudnn_.ChooseLike(place.cudnn, CudnnAttentionRequest(call, facts, options_.cudnn),
                           CudnnAttentionRequest(timed, facts, options_.cudnn));
}

std::string CudaAttention::TiledKey(const AttentionCall& call, const AttentionFacts& facts) const {
  return absl::StrCat(CudnnAttentionRequest(call, facts, options_.cudnn).key,
                      InBoxes(call, facts) ? " bias in boxes" : "");
}

absl::StatusOr<const FallbackAttention*> CudaAttention::TiledLaunches(const Place& place,
                                                                      const AttentionCall& call,
                                                                      const AttentionFacts& facts) {
  std::string key = TiledKey(call, facts);
  if (const auto known = tiled_.find(key); known != tiled_.end()) return &known->second;
  RG_ASSIGN_OR_RETURN(FallbackAttention made,
                      AttentionLaunches(call, {facts.operand_dtypes},
                                        TiledKernels(call, facts, place.device.facts().sms)));
  return &(tiled_[std::move(key)] = std::move(made));
}

const std::string& CudaAttention::TiledDigest(const Place& place, const AttentionCall& call,
                                              const AttentionFacts& facts) {
  std::string& digest = digests_[TiledKey(call, facts)];
  if (!digest.empty()) return digest;
  std::vector<Kernel> kernels;
  for (const auto& launch : TiledKernels(call, facts, place.device.facts().sms).launches) {
    kernels.push_back(launch.kernel);
  }
  return digest = KernelsDigest(Dialect::kCuda, kernels);
}

absl::StatusOr<std::unique_ptr<CudaAttentionCall>> CudaAttention::LoadTiled(
    const Place& place, const AttentionCall& call, const AttentionFacts& facts,
    const Maker& maker) {
  RG_ASSIGN_OR_RETURN(const FallbackAttention* const made, TiledLaunches(place, call, facts));
  auto loaded =
      std::make_unique<CudaAttentionCall>(place.device, facts, made->scratch_bytes, maker.tiled_us);
  RG_ASSIGN_OR_RETURN(loaded->kernels_, place.device.Load(made->kernels, made->launches));
  loaded->launches_ = made->launches.size();
  loaded->tiled_ = true;
  loaded->tiled_us_ = maker.tiled_us;
  loaded->library_us_ = maker.library_us;
  return loaded;
}

std::unique_ptr<CudaAttentionCall> CudaAttention::LoadLibrary(const Place& place,
                                                              const AttentionFacts& facts,
                                                              std::shared_ptr<CudnnPlans> plans,
                                                              const Maker& maker) {
  const double us = maker.library_us > 0 ? maker.library_us : plans->microseconds();
  auto loaded =
      std::make_unique<CudaAttentionCall>(place.device, facts, plans->workspace_bytes(), us);
  loaded->library_ = std::move(plans);
  loaded->tiled_us_ = maker.tiled_us;
  loaded->tiled_refusal_ = maker.tiled_refusal;
  return loaded;
}

absl::StatusOr<CudaAttention::Maker> CudaAttention::Choose(const Place& place,
                                                           const AttentionCall& call,
                                                           const AttentionFacts& facts) {
  // Where one of both cannot be had, the other needs no timing, and may be had the next time.
  if (!options_.allow_cudnn) return Maker{.tiled = true};
  const bool draws_as_cudnn = DrawsAsCudnn(call);
  const bool repeats_bits = !HasBias(call) && options_.cudnn.deterministic;
  // Without a bias, ours took 0.7 of the time of the fastest plan that repeats its bits in the
  // shapes measured (docs/benchmarks.md), and to build cuDNN's plans takes seconds.
  if (repeats_bits && !draws_as_cudnn) return Maker{.tiled = true};
  const absl::StatusOr<std::string> version = cudnn_.Version(place.cudnn);
  if (!version.ok()) return Maker{.tiled = !draws_as_cudnn};
  if (repeats_bits && absl::StartsWith(*version, kKnownCudnn)) return Maker{.tiled = true};
  return ChooseByTime(place, TimedFor(place.device, call), facts, *version);
}

absl::StatusOr<CudaAttention::Maker> CudaAttention::ChooseByTime(const Place& place,
                                                                 const AttentionCall& call,
                                                                 const AttentionFacts& facts,
                                                                 const std::string& version) {
  // What stays where nothing is timed stands first: ours want the least memory, but their time
  // depends on what a bias masks.
  const bool draws_as_cudnn = DrawsAsCudnn(call), tiled_first = !HasBias(call) && !draws_as_cudnn;
  const auto maker_of = [&](const Choice& choice) {
    if (!choice.timed()) return Maker{.tiled = tiled_first};
    return Maker{.tiled = choice.name() == kTiledName,
                 .tiled_us = choice.candidates[tiled_first ? 0 : 1].us,
                 .library_us = choice.candidates[tiled_first ? 1 : 0].us};
  };
  std::vector<std::string> names = {std::string(kTiledName), std::string(kCudnnName)};
  if (!tiled_first) std::swap(names[0], names[1]);
  Tuner& tuner = place.device.tuner();
  const std::string shape = CudnnAttentionRequest(call, facts, options_.cudnn).key;
  const ChoiceKey key = tuner.Key("attention 4",
                                  absl::StrCat(version, ", ", place.device.Compiler(), ", kernels ",
                                               TiledDigest(place, call, facts)),
                                  shape);
  if (const std::optional<Choice> known =
          tuner.Recall(key, [&](const Choice& choice) { return choice.HasNames(names); })) {
    return maker_of(*known);
  }
  absl::StatusOr<std::shared_ptr<CudnnPlans>> plans = Library(place, call, facts);
  if (!plans.ok()) return Maker{.tiled = !draws_as_cudnn};
  const absl::StatusOr<std::unique_ptr<CudaAttentionCall>> tiled =
      LoadTiled(place, call, facts, {});
  if (!tiled.ok()) return Maker{.tiled_refusal = tiled.status()};
  const std::unique_ptr<CudaAttentionCall> library =
      LoadLibrary(place, facts, *std::move(plans), {});
  std::vector<CudnnOrTiled::Made> made = {{std::string(kTiledName), tiled->get()},
                                          {std::string(kCudnnName), library.get()}};
  if (!tiled_first) std::swap(made[0], made[1]);
  CudnnOrTiled implementations(place.device, call, facts, std::move(made));
  RG_ASSIGN_OR_RETURN(const Choice choice,
                      tuner.ChooseFastest(key, MemoryOf(call, facts), implementations));
  return maker_of(choice);
}

absl::StatusOr<std::unique_ptr<LoadedCall>> CudaAttention::Load(const Place& place,
                                                                const AttentionCall& call,
                                                                const AttentionFacts& facts) {
  Maker maker;
  if (options_.allow_tiled && place.device.multiplies_with_epilogues()) {
    maker.tiled_refusal = TiledAttentionRefusal(call, facts.operand_dtypes);
    if (maker.tiled_refusal.ok()) {
      RG_ASSIGN_OR_RETURN(maker, Choose(place, call, facts));
    }
  }
  if (maker.tiled) {
    absl::StatusOr<std::unique_ptr<CudaAttentionCall>> loaded =
        LoadTiled(place, call, facts, maker);
    if (loaded.ok()) return *std::move(loaded);
    // What does not compile here may still be the library's.
    if (absl::IsResourceExhausted(loaded.status())) return loaded.status();
    maker.tiled_refusal = loaded.status();
  }
  absl::StatusOr<std::shared_ptr<CudnnPlans>> library = Library(place, call, facts);
  if (library.ok()) {
    return LoadLibrary(place, facts, *std::move(library), maker);
  }
  if (!absl::IsUnimplemented(library.status()) && !absl::IsUnavailable(library.status())) {
    return library.status();
  }
  if (DrawsAsCudnn(call) && options_.allow_cudnn) {
    return WithoutCudnn(call, facts, library.status(), options_.cudnn.deterministic);
  }
  RG_ASSIGN_OR_RETURN(const FallbackAttention fallback,
                      MakeFallbackAttention(call, facts, AttentionTarget(place.device)));
  auto loaded =
      std::make_unique<CudaAttentionCall>(place.device, facts, fallback.scratch_bytes, /*us=*/0);
  RG_ASSIGN_OR_RETURN(loaded->kernels_, place.device.Load(fallback.kernels, fallback.launches));
  loaded->launches_ = fallback.launches.size();
  loaded->refusal_ = library.status();
  return loaded;
}

namespace {

class CudaAttentionLoader : public CallLoader {
 public:
  CudaAttentionLoader(GpuDevice& device, int sm, const CudaAttentionOptions& options)
      : device_(device), sm_(sm), attention_(options) {}

  absl::StatusOr<std::unique_ptr<LoadedCall>> Load(const Call& call,
                                                   const CallFacts& facts) override {
    const AttentionRequest request(call, facts);
    RG_RETURN_IF_ERROR(CheckDropout(request));
    return attention_.Load({device_, {device_, sm_}}, request.call, request.facts());
  }

 private:
  GpuDevice& device_;
  const int sm_;
  CudaAttention attention_;
};

}  // namespace

std::unique_ptr<CallLoader> MakeCudaAttentionLoader(GpuDevice& device, int sm,
                                                    const CudaAttentionOptions& options) {
  return std::make_unique<CudaAttentionLoader>(device, sm, options);
}

}  // namespace retrograd
