#include "runtime/ops/attention/cuda_attention.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "codegen/attention/emit_tiled_attention.h"
#include "graph/base/status.h"
#include "runtime/ops/attention/fallback_attention.h"

namespace retrograd {
namespace {

constexpr int kTimedRuns = 3;
constexpr size_t kBias = 6;  // operand

void AppendKey(const AttentionOperand& t, std::string* key) {
  absl::StrAppend(key, " [", absl::StrJoin(t.shape, ","), "]@", t.offset, ":",
                  absl::StrJoin(t.strides, ","));
}

// Equal for calls that differ in nothing but where their values lie.
std::string Key(const AttentionCall& call, const AttentionFacts& facts) {
  std::string key =
      absl::StrCat(Name(call.dtype), " ", call.causal, " ", call.scale, " ", facts.dropout_p);
  for (size_t i = 0; i < call.operands.size(); ++i) {
    AppendKey(call.operands[i], &key);
    absl::StrAppend(&key, Name(facts.operand_dtypes[i]));
  }
  for (const AttentionOperand& result : call.results) AppendKey(result, &key);
  return key;
}

// Memory for a measurement, given back in the end.
class Arena {
 public:
  explicit Arena(Device& device) : device_(device) {}
  ~Arena() {
    for (void* data : taken_) device_.Free(data);
  }
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  absl::StatusOr<void*> Take(int64_t bytes) {
    RG_ASSIGN_OR_RETURN(void* const data, device_.Allocate(bytes));
    taken_.push_back(data);
    return data;
  }

 private:
  Device& device_;
  std::vector<void*> taken_;
};

// The call's memory for a measurement, whatever that holds.
struct Measured {
  std::vector<const void*> operands;
  std::vector<void*> results;
  void* workspace = nullptr;
};
absl::StatusOr<Measured> TakeMemory(const AttentionCall& call, const AttentionFacts& facts,
                                    int64_t workspace_bytes, Arena* arena) {
  Measured memory;
  for (size_t i = 0; i < call.operands.size(); ++i) {
    RG_ASSIGN_OR_RETURN(memory.operands.emplace_back(),
                        arena->Take(SpanOf(call.operands[i]) * SizeBytes(facts.operand_dtypes[i])));
  }
  for (const AttentionOperand& result : call.results) {
    RG_ASSIGN_OR_RETURN(memory.results.emplace_back(),
                        arena->Take(SpanOf(result) * SizeBytes(call.dtype)));
  }
  RG_ASSIGN_OR_RETURN(memory.workspace, arena->Take(workspace_bytes));
  return memory;
}

absl::StatusOr<double> MedianTime(Device& device, absl::FunctionRef<absl::Status()> run) {
  RG_ASSIGN_OR_RETURN(TimeSamples samples, device.Time(run, kTimedRuns, /*cold=*/false));
  std::sort(samples.begin(), samples.end());
  return samples[samples.size() / 2];
}

// No plan of cuDNN's takes a time that depends on values.
absl::Status ChooseByTiming(Device& device, void* stream, const AttentionCall& call,
                            const AttentionFacts& facts, CudnnAttention* library) {
  Arena arena(device);
  RG_ASSIGN_OR_RETURN(Measured memory,
                      TakeMemory(call, facts, library->most_workspace_bytes(), &arena));
  const AttentionPointers pointers{memory.operands, facts.operand_dtypes,
                                   absl::MakeSpan(memory.results)};
  const auto time = [&](absl::FunctionRef<absl::Status()> run) { return MedianTime(device, run); };
  return library->TakeFastest(time, stream, pointers, memory.workspace);
}

// What a bias is taken to hold when our kernels are timed, which pass over what is masked: one for
// all heads is a causal mask, one for each of them holds other numbers.
absl::Status FillBias(Device& device, const AttentionOperand& bias, DType dtype, void* data) {
  const size_t rank = bias.shape.size();
  const auto extent = [&](size_t axis) {
    return axis + rank < 4 ? 1 : bias.shape[axis + rank - 4];
  };
  const auto stride = [&](size_t axis) {
    return extent(axis) == 1 ? 0 : bias.strides[axis + rank - 4];
  };
  const bool mask = extent(1) == 1 || stride(1) == 0;
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

// Nobody else draws cuDNN's dropout mask again. What it refuses whatever the order of its sums has
// another reason than equal bits.
absl::Status WithoutCudnn(const AttentionCall& call, const AttentionFacts& facts,
                          const absl::Status& refusal, bool deterministic) {
  const bool for_equal_bits =
      deterministic && absl::IsUnimplemented(refusal) && CudnnRefusal(call, facts).ok();
  return absl::Status(
      refusal.code(),
      absl::StrFormat("attention_backward %%%d drops out with p = %g by cuDNN's random numbers, "
                      "which only cuDNN draws again: %s%s",
                      Index(call.node), facts.dropout_p, refusal.message(),
                      for_equal_bits ? " (it may take the call with --nondeterministic, where two "
                                       "runs need not give the same bits)"
                                     : ""));
}

}  // namespace

absl::Status CudaAttentionCall::Run(int stream, const CallPointers& pointers, void* scratch) {
  const AttentionPointers typed{pointers.operands, dtypes_, pointers.results};
  const CurrentContext current(device_.driver(), device_.context());
  RG_RETURN_IF_ERROR(current.status());
  if (library_ != nullptr) return library_->Run(device_.Stream(stream), typed, scratch);
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
  std::string text =
      absl::StrFormat("cuDNN, plan %d of %d", library_->chosen() + 1, library_->plans().size());
  for (const CudnnPlan& plan : library_->plans()) {
    absl::StrAppendFormat(&text, "\n  %s: %.1f us, workspace %d bytes", plan.name,
                          plan.microseconds, plan.workspace_bytes);
  }
  if (tiled_us_ != 0) absl::StrAppend(&text, "\n  our kernels for tensor cores", times(tiled_us_));
  return text;
}

absl::StatusOr<std::shared_ptr<CudnnAttention>> CudaAttention::Library(
    const Place& place, const AttentionCall& call, const AttentionFacts& facts) {
  RG_RETURN_IF_ERROR(CudnnRefusal(call, facts));
  const std::string key = Key(call, facts);
  if (const auto known = known_.find(key); known != known_.end()) return known->second;
  if (handle_ == nullptr) {
    if (!options_.allow_cudnn) return absl::UnavailableError("cuDNN is switched off");
    RG_RETURN_IF_ERROR(no_handle_);
    absl::StatusOr<std::unique_ptr<CudnnHandle>> handle =
        CudnnHandle::Create(options_.cudnn_library, place.sm);
    if (!handle.ok()) return no_handle_ = handle.status();
    handle_ = *std::move(handle);
  }
  // A plan is the device's and the library's.
  const std::string entry =
      absl::StrCat("retrograd cudnn attention 1\n", place.model, " sm_", place.sm, "\n",
                   handle_->version(), "\n", options_.cudnn.deterministic, " ", key);
  if (options_.time_plans && place.cache != nullptr) {
    if (const std::optional<std::string> plan = place.cache->Read(entry)) {
      absl::StatusOr<std::shared_ptr<CudnnAttention>> restored =
          CudnnAttention::Restore(call, facts, *plan, *handle_);
      if (restored.ok()) return known_[key] = *std::move(restored);
    }
  }
  RG_ASSIGN_OR_RETURN(std::shared_ptr<CudnnAttention> made,
                      CudnnAttention::Prepare(call, facts, options_.cudnn, *handle_));
  if (options_.time_plans) {
    absl::Status timed = absl::OkStatus();
    if (made->plans().size() > 1) {
      timed = ChooseByTiming(place.device, place.stream, call, facts, made.get());
      // Without the memory for a measurement the library's favourite does.
      if (!timed.ok() && !absl::IsResourceExhausted(timed)) return timed;
    }
    const absl::StatusOr<std::string> plan = made->Serialize();
    if (timed.ok() && plan.ok() && place.cache != nullptr) {
      place.cache->Write(entry, *plan).IgnoreError();
    }
  }
  known_[key] = made;
  return made;
}

absl::StatusOr<std::unique_ptr<CudaAttentionCall>> CudaAttention::LoadTiled(
    const Place& place, const AttentionCall& call, const AttentionFacts& facts) {
  const int sms = static_cast<int>(place.device.Describe().sms);
  RG_ASSIGN_OR_RETURN(const FallbackAttention made,
                      AttentionLaunches(call, facts.operand_dtypes,
                                        EmitTiledAttention(call, facts.operand_dtypes, sms)));
  auto loaded = std::make_unique<CudaAttentionCall>(place.device, facts, made.scratch_bytes);
  RG_ASSIGN_OR_RETURN(loaded->kernels_, place.device.Load(made.kernels, made.launches));
  loaded->launches_ = made.launches.size();
  loaded->tiled_ = true;
  return loaded;
}

absl::StatusOr<CudaAttention::Choice> CudaAttention::Choose(const Place& place,
                                                            const AttentionCall& call,
                                                            const AttentionFacts& facts) {
  const std::string key = Key(call, facts);
  if (const auto known = choices_.find(key); known != choices_.end()) return known->second;
  // Where one of both cannot be had, the other needs no timing, and may be had the next time.
  if (!options_.allow_cudnn) return Choice{.tiled = true};
  Choice choice;
  const std::string entry =
      absl::StrCat("retrograd attention choice 1\n", place.model, " sm_", place.sm, "\n",
                   options_.cudnn_library, "\n", options_.cudnn.deterministic, " ", key);
  if (options_.time_plans && place.cache != nullptr) {
    if (const std::optional<std::string> times = place.cache->Read(entry)) {
      const std::vector<std::string> both = absl::StrSplit(*times, ' ');
      if (both.size() == 2 && absl::SimpleAtod(both[0], &choice.tiled_us) &&
          absl::SimpleAtod(both[1], &choice.library_us)) {
        choice.tiled = choice.tiled_us < choice.library_us;
        return choices_[key] = choice;
      }
    }
  }
  const absl::StatusOr<std::shared_ptr<CudnnAttention>> library = Library(place, call, facts);
  if (!library.ok()) return Choice{.tiled = true};
  const bool bias = call.operands.size() > kBias;
  if (!options_.time_plans) return choices_[key] = Choice{.tiled = !bias};
  const absl::StatusOr<std::unique_ptr<CudaAttentionCall>> tiled = LoadTiled(place, call, facts);
  if (!tiled.ok()) return Choice{};
  Arena arena(place.device);
  absl::StatusOr<Measured> memory = TakeMemory(
      call, facts, std::max((*library)->workspace_bytes(), (*tiled)->scratch_bytes()), &arena);
  // Without the memory for a measurement: that which needs the least.
  if (absl::IsResourceExhausted(memory.status())) return Choice{.tiled = !bias};
  RG_RETURN_IF_ERROR(memory.status());
  if (bias) {
    RG_RETURN_IF_ERROR(FillBias(place.device, call.operands[kBias], facts.operand_dtypes[kBias],
                                const_cast<void*>(memory->operands[kBias])));
  }
  const AttentionPointers pointers{memory->operands, facts.operand_dtypes,
                                   absl::MakeSpan(memory->results)};
  RG_ASSIGN_OR_RETURN(choice.library_us, MedianTime(place.device, [&] {
                        return (*library)->Run(place.stream, pointers, memory->workspace);
                      }));
  RG_ASSIGN_OR_RETURN(choice.tiled_us, MedianTime(place.device, [&] {
                        return (*tiled)->Run(0, {memory->operands, absl::MakeSpan(memory->results)},
                                             memory->workspace);
                      }));
  choice.tiled = choice.tiled_us < choice.library_us;
  if (place.cache != nullptr) {
    place.cache->Write(entry, absl::StrCat(choice.tiled_us, " ", choice.library_us)).IgnoreError();
  }
  return choices_[key] = choice;
}

absl::StatusOr<std::unique_ptr<LoadedCall>> CudaAttention::Load(const Place& place,
                                                                const AttentionCall& call,
                                                                const AttentionFacts& facts) {
  Choice choice;
  if (options_.allow_tiled && place.device.multiplies_with_epilogues() &&
      TiledAttentionRefusal(call, facts.operand_dtypes).ok()) {
    RG_ASSIGN_OR_RETURN(choice, Choose(place, call, facts));
  }
  if (choice.tiled) {
    absl::StatusOr<std::unique_ptr<CudaAttentionCall>> loaded = LoadTiled(place, call, facts);
    if (loaded.ok()) {
      (*loaded)->tiled_us_ = choice.tiled_us;
      (*loaded)->library_us_ = choice.library_us;
      return *std::move(loaded);
    }
    // What does not compile here may still be the library's.
    if (absl::IsResourceExhausted(loaded.status())) return loaded.status();
  }
  absl::StatusOr<std::shared_ptr<CudnnAttention>> library = Library(place, call, facts);
  if (library.ok()) {
    auto loaded =
        std::make_unique<CudaAttentionCall>(place.device, facts, (*library)->workspace_bytes());
    loaded->library_ = *std::move(library);
    loaded->tiled_us_ = choice.tiled_us;
    return loaded;
  }
  if (!absl::IsUnimplemented(library.status()) && !absl::IsUnavailable(library.status())) {
    return library.status();
  }
  if (facts.dropout_p > 0) {
    return WithoutCudnn(call, facts, library.status(), options_.cudnn.deterministic);
  }
  RG_ASSIGN_OR_RETURN(const FallbackAttention fallback,
                      MakeFallbackAttention(call, facts.operand_dtypes, place.device.dialect()));
  auto loaded = std::make_unique<CudaAttentionCall>(place.device, facts, fallback.scratch_bytes);
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

  absl::StatusOr<std::unique_ptr<LoadedCall>> Load(const Call& call, const CallFacts&) override {
    RG_RETURN_IF_ERROR(CheckDropout(call));
    const AttentionRequest request(call);
    return attention_.Load(
        {device_, sm_, device_.facts().model, device_.Stream(0), device_.Cache()}, request.call,
        request.facts());
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
