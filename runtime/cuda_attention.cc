#include "runtime/cuda_attention.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "graph/status.h"
#include "runtime/fallback_attention.h"

namespace retrograd {
namespace {

constexpr int kTimedRuns = 3;

void AppendKey(const AttentionOperand& t, std::string* key) {
  absl::StrAppend(key, " [", absl::StrJoin(t.shape, ","), "]@", t.offset, ":",
                  absl::StrJoin(t.strides, ","));
}

// Equal for calls that differ in nothing but where their values lie.
std::string Key(const AttentionCall& call, absl::Span<const DType> operand_dtypes) {
  std::string key = absl::StrCat(Name(call.dtype), " ", call.causal, " ", call.scale);
  for (size_t i = 0; i < call.operands.size(); ++i) {
    AppendKey(call.operands[i], &key);
    absl::StrAppend(&key, Name(operand_dtypes[i]));
  }
  for (const AttentionOperand& result : call.results) AppendKey(result, &key);
  return key;
}

// Elements from the stored value's first to past the last that the call touches.
int64_t SpanOf(const AttentionOperand& t) {
  int64_t last = t.offset;
  for (size_t axis = 0; axis < t.shape.size(); ++axis) last += (t.shape[axis] - 1) * t.strides[axis];
  return last + 1;
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

// Runs every plan on memory of its own, whatever that holds: no plan's time depends on values.
absl::Status ChooseByTiming(Device& device, void* stream, const AttentionCall& call,
                            absl::Span<const DType> operand_dtypes, CudnnAttention* library) {
  Arena arena(device);
  std::vector<const void*> operands;
  std::vector<void*> results;
  for (size_t i = 0; i < call.operands.size(); ++i) {
    RG_ASSIGN_OR_RETURN(operands.emplace_back(),
                        arena.Take(SpanOf(call.operands[i]) * SizeBytes(operand_dtypes[i])));
  }
  for (const AttentionOperand& result : call.results) {
    RG_ASSIGN_OR_RETURN(results.emplace_back(), arena.Take(SpanOf(result) * SizeBytes(call.dtype)));
  }
  RG_ASSIGN_OR_RETURN(void* const workspace, arena.Take(library->most_workspace_bytes()));
  const AttentionPointers pointers{operands, operand_dtypes, absl::MakeSpan(results)};
  const auto time = [&](absl::FunctionRef<absl::Status()> run) -> absl::StatusOr<double> {
    RG_ASSIGN_OR_RETURN(TimeSamples samples, device.Time(run, kTimedRuns, /*cold=*/false));
    std::sort(samples.begin(), samples.end());
    return samples[samples.size() / 2];
  };
  return library->TakeFastest(time, stream, pointers, workspace);
}

}  // namespace

absl::Status CudaAttentionCall::Run(Device& device, int stream, void* native,
                                    const AttentionPointers& pointers, void* scratch) {
  if (library_ != nullptr) return library_->Run(native, pointers, scratch);
  return RunFallbackAttention(device, stream, *kernels_, launches_, pointers, scratch);
}

std::string CudaAttentionCall::Describe() const {
  if (library_ == nullptr) return absl::StrCat("our kernels, because ", refusal_.message());
  std::string text = absl::StrFormat("cuDNN, plan %d of %d", library_->chosen() + 1,
                                     library_->plans().size());
  for (const CudnnPlan& plan : library_->plans()) {
    absl::StrAppendFormat(&text, "\n  %s: %.1f us, workspace %d bytes", plan.name,
                          plan.microseconds, plan.workspace_bytes);
  }
  return text;
}

absl::StatusOr<std::shared_ptr<CudnnAttention>> CudaAttention::Library(
    const Place& place, const AttentionCall& call, absl::Span<const DType> operand_dtypes) {
  RG_RETURN_IF_ERROR(CudnnRefusal(call, operand_dtypes));
  const std::string key = Key(call, operand_dtypes);
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
          CudnnAttention::Restore(call, operand_dtypes, *plan, *handle_);
      if (restored.ok()) return known_[key] = *std::move(restored);
    }
  }
  RG_ASSIGN_OR_RETURN(std::shared_ptr<CudnnAttention> made,
                      CudnnAttention::Prepare(call, operand_dtypes, options_.cudnn, *handle_));
  if (options_.time_plans) {
    absl::Status timed = absl::OkStatus();
    if (made->plans().size() > 1) {
      timed = ChooseByTiming(place.device, place.stream, call, operand_dtypes, made.get());
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

absl::StatusOr<std::unique_ptr<LoadedCall>> CudaAttention::Load(
    const Place& place, const AttentionCall& call, absl::Span<const DType> operand_dtypes) {
  absl::StatusOr<std::shared_ptr<CudnnAttention>> library = Library(place, call, operand_dtypes);
  if (library.ok()) {
    auto loaded = std::make_unique<CudaAttentionCall>((*library)->workspace_bytes());
    loaded->library_ = *std::move(library);
    return loaded;
  }
  if (!absl::IsUnimplemented(library.status()) && !absl::IsUnavailable(library.status())) {
    return library.status();
  }
  RG_ASSIGN_OR_RETURN(const FallbackAttention fallback,
                      MakeFallbackAttention(call, operand_dtypes, place.device.dialect()));
  auto loaded = std::make_unique<CudaAttentionCall>(fallback.scratch_bytes);
  RG_ASSIGN_OR_RETURN(loaded->kernels_, place.device.Load(fallback.source, fallback.launches));
  loaded->launches_ = fallback.launches.size();
  loaded->refusal_ = library.status();
  return loaded;
}

}  // namespace retrograd
