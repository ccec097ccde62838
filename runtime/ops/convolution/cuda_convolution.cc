#include "runtime/ops/convolution/cuda_convolution.h"

#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "graph/base/status.h"
#include "runtime/gpu/cuda/cudnn_choice.h"
#include "runtime/gpu/kernels_digest.h"
#include "runtime/ops/convolution/convolution_class.h"
#include "runtime/ops/convolution/generated_convolution.h"
#include "runtime/ops/convolution/widened_call.h"
#include "runtime/trials/loaded_calls.h"

namespace retrograd {
namespace {

constexpr absl::string_view kCudnnName = "cudnn";
constexpr absl::string_view kCudnnCastName = "cudnn and a cast";  // widened_call.h

bool Refused(const absl::Status& status) {
  return absl::IsUnimplemented(status) || absl::IsUnavailable(status);
}

// Where another implementation would not help either.
bool EndsLoading(const absl::Status& status) {
  return absl::IsResourceExhausted(status) || absl::IsCancelled(status);
}

std::string TimeOf(double us) { return us > 0 ? absl::StrFormat(": %.1f us", us) : ""; }

using Schedules = std::vector<std::unique_ptr<LoadedCall>>;

// One way in which the library makes a call.
struct LibraryWay {
  std::string name;
  std::unique_ptr<LoadedCall> call;
};

// Who makes a call: the name of a schedule, or of one of the library's ways.
struct Maker {
  std::string name;
  double us = 0;
  std::string others;  // lines for people
};

class CudaConvolutionLoader : public CallLoader {
 public:
  CudaConvolutionLoader(GpuDevice& device, int sm, const CudaConvolutionOptions& options,
                        std::unique_ptr<CallLoader> fallback)
      : device_(device),
        sm_(sm),
        options_(options),
        cudnn_("convolution 2", {.library = options.cudnn_library, .allow = options.allow_cudnn}),
        fallback_(std::move(fallback)) {}

  std::vector<Kernel> KernelsOf(const Call& call, const CallFacts& facts) override {
    if (!Has(options_.backends.Of(call.op), ConvolutionBackend::kRetrograd)) return {};
    const Call timed = TimedFor(call);
    std::vector<Kernel> kernels =
        GeneratedConvolutionKernels(device_, timed, facts, kMostSchedules);
    if (NarrowOf(timed)) kernels.push_back(WideningKernel(timed, facts, device_.dialect()));
    return kernels;
  }
  absl::StatusOr<std::unique_ptr<LoadedCall>> Load(const Call& call,
                                                   const CallFacts& facts) override;

 private:
  absl::StatusOr<std::shared_ptr<CudnnPlans>> Library(const Call& call, const CallFacts& facts);
  // timed: the call that the schedules are of, by which one is chosen.
  absl::StatusOr<std::unique_ptr<LoadedCall>> LoadOurs(Schedules schedules, const Call& timed,
                                                       const Call& call, const CallFacts& facts);
  // Programs for several sizes have a call timed by that of its class.
  Call TimedFor(const Call& call) const {
    return device_.sizes_vary() ? ConvolutionRepresentativeOf(call) : call;
  }
  absl::StatusOr<Maker> Choose(const Schedules& schedules, const Call& call,
                               const CallFacts& facts);
  absl::StatusOr<std::unique_ptr<LoadedCall>> LoadLibrary(const Call& call, const CallFacts& facts,
                                                          std::string beside);
  // The library's call into the operands' dtype, and a cast. Unimplemented where that is no other.
  absl::StatusOr<std::unique_ptr<LoadedCall>> LoadLibraryAndCast(const Call& call,
                                                                 const CallFacts& facts);
  // What of the library was loaded, under its names; refusals leave an implementation out.
  absl::StatusOr<std::vector<LibraryWay>> LibraryWays(const Call& call, const CallFacts& facts);

  GpuDevice& device_;
  const int sm_;
  const CudaConvolutionOptions options_;
  CudnnChoice cudnn_;
  const std::unique_ptr<CallLoader> fallback_;
};

CallMemory MemoryOf(const Call& call) {
  CallMemory memory;
  AddMemoryOf(call, memory);
  return memory;
}

// What stays where nothing is timed stands first.
std::vector<std::string> NamesInOrder(const ConvolutionBackendList& order,
                                      const std::vector<std::string>& library,
                                      const Schedules& schedules) {
  std::vector<std::string> names;
  for (const ConvolutionBackend backend : order) {
    if (backend == ConvolutionBackend::kRetrograd) {
      for (const auto& schedule : schedules) names.push_back(schedule->Describe());
    } else {
      names.insert(names.end(), library.begin(), library.end());
    }
  }
  return names;
}

std::vector<std::string> NamesOf(const std::vector<LibraryWay>& ways) {
  std::vector<std::string> names;
  for (const LibraryWay& way : ways) names.push_back(way.name);
  return names;
}

// Those of the library's that a choice has.
std::vector<std::string> LibraryNamesOf(const Choice& choice) {
  std::vector<std::string> names;
  for (const TimedCandidate& candidate : choice.candidates) {
    if (candidate.name == kCudnnName || candidate.name == kCudnnCastName) {
      names.push_back(candidate.name);
    }
  }
  return names;
}

// The schedules in their order, and the library's calls where they are named.
std::vector<LoadedCalls::Made> Named(const std::vector<std::string>& names,
                                     const std::vector<LibraryWay>& library,
                                     const Schedules& schedules) {
  std::vector<LoadedCalls::Made> made;
  size_t next = 0;
  for (const std::string& name : names) {
    const auto way = std::find_if(library.begin(), library.end(),
                                  [&](const LibraryWay& w) { return w.name == name; });
    made.push_back({name, way != library.end() ? way->call.get() : schedules[next++].get()});
  }
  return made;
}

Maker MakerOf(const Choice& choice, const std::vector<std::string>& names) {
  Maker maker{.name = choice.timed() ? choice.name() : names[0], .us = choice.us()};
  for (const TimedCandidate& candidate : choice.candidates) {
    if (candidate.name == maker.name) continue;
    absl::StrAppend(&maker.others, "\n  ", candidate.name, TimeOf(candidate.us));
  }
  return maker;
}

// Of all schedules together, and of what casts a library's result.
std::string SchedulesDigest(const Call& call, const CallFacts& facts, Device& device) {
  const auto made = GenerateConvolution(ConvolutionOf(call), device.dialect(),
                                        ConvolutionLimits(device, facts), kMostSchedules);
  std::vector<Kernel> kernels = DistinctKernels(made.value_or(std::vector<ConvolutionKernels>{}));
  if (NarrowOf(call)) kernels.push_back(WideningKernel(call, facts, device.dialect()));
  return KernelsDigest(device.dialect(), kernels);
}

absl::StatusOr<std::shared_ptr<CudnnPlans>> CudaConvolutionLoader::Library(const Call& call,
                                                                           const CallFacts& facts) {
  if (!Has(options_.backends.Of(call.op), ConvolutionBackend::kCudnn)) {
    return absl::UnavailableError("cuDNN is no backend of this gradient");
  }
  RG_RETURN_IF_ERROR(CudnnConvolutionRefusal(call));
  const Call timed = TimedFor(call);
  return cudnn_.ChooseLike({device_, sm_}, CudnnConvolutionRequest(call, facts, options_.cudnn),
                           CudnnConvolutionRequest(timed, facts, options_.cudnn));
}

absl::StatusOr<Maker> CudaConvolutionLoader::Choose(const Schedules& schedules, const Call& call,
                                                    const CallFacts& facts) {
  const ConvolutionBackendList order = options_.backends.Of(call.op);
  // Without a library's version there is no library.
  const bool allowed = Has(order, ConvolutionBackend::kCudnn) && CudnnConvolutionRefusal(call).ok();
  const std::string version = allowed ? cudnn_.Version({device_, sm_}).value_or("") : "";
  Tuner& tuner = device_.tuner();
  const ChoiceKey key = tuner.Key(
      "convolution 3",
      absl::StrCat(version, version.empty() ? "" : ", ", device_.Compiler(), ", kernels ",
                   SchedulesDigest(call, facts, device_)),
      absl::StrCat(Print(order), " ", CudnnConvolutionRequest(call, facts, options_.cudnn).key));
  const auto names_of = [&](const Choice& choice) {
    return NamesInOrder(order, LibraryNamesOf(choice), schedules);
  };
  const std::optional<Choice> known =
      tuner.Recall(key, [&](const Choice& choice) { return choice.HasNames(names_of(choice)); });
  if (known && known->timed()) return MakerOf(*known, names_of(*known));
  std::vector<LibraryWay> library;
  if (!version.empty()) {
    RG_ASSIGN_OR_RETURN(library, LibraryWays(call, facts));
  }
  const std::vector<std::string> names = NamesInOrder(order, NamesOf(library), schedules);
  if (known) return MakerOf(*known, names);  // untimed: the default, as when it was met first
  LoadedCalls implementations(Named(names, library, schedules));
  RG_ASSIGN_OR_RETURN(const Choice choice,
                      tuner.ChooseFastest(key, MemoryOf(call), implementations));
  return MakerOf(choice, names);
}

absl::StatusOr<std::unique_ptr<LoadedCall>> CudaConvolutionLoader::LoadLibrary(
    const Call& call, const CallFacts& facts, std::string beside) {
  RG_ASSIGN_OR_RETURN(std::shared_ptr<CudnnPlans> plans, Library(call, facts));
  return std::make_unique<CudaConvolutionCall>(device_, std::move(plans), std::move(beside));
}

absl::StatusOr<std::unique_ptr<LoadedCall>> CudaConvolutionLoader::LoadLibraryAndCast(
    const Call& call, const CallFacts& facts) {
  const std::optional<Call> narrow = NarrowOf(call);
  if (!narrow) return absl::UnimplementedError("the result has the operands' dtype, or gaps");
  CallFacts of_narrow = facts;
  of_narrow.result_alignment.assign(1, kScratchAlignment);
  RG_ASSIGN_OR_RETURN(std::unique_ptr<LoadedCall> made, LoadLibrary(*narrow, of_narrow, ""));
  return LoadWidened(device_, call, facts, std::move(made));
}

absl::StatusOr<std::vector<LibraryWay>> CudaConvolutionLoader::LibraryWays(const Call& call,
                                                                           const CallFacts& facts) {
  std::vector<LibraryWay> ways;
  const auto add = [&](absl::string_view name, absl::StatusOr<std::unique_ptr<LoadedCall>> made) {
    if (made.ok()) ways.push_back({std::string(name), *std::move(made)});
    return made.ok() || Refused(made.status()) ? absl::OkStatus() : made.status();
  };
  RG_RETURN_IF_ERROR(add(kCudnnName, LoadLibrary(call, facts, "")));
  RG_RETURN_IF_ERROR(add(kCudnnCastName, LoadLibraryAndCast(call, facts)));
  return ways;
}

absl::StatusOr<std::unique_ptr<LoadedCall>> CudaConvolutionLoader::LoadOurs(
    Schedules schedules, const Call& timed, const Call& call, const CallFacts& facts) {
  RG_ASSIGN_OR_RETURN(const Maker maker, Choose(schedules, timed, facts));
  for (std::unique_ptr<LoadedCall>& schedule : schedules) {
    if (schedule->Describe() != maker.name) continue;
    if (timed == call) {
      return std::make_unique<CudaConvolutionCall>(device_, std::move(schedule), maker.us,
                                                   maker.others, absl::OkStatus());
    }
    absl::StatusOr<std::unique_ptr<LoadedCall>> like =
        LoadGeneratedConvolutionLike(device_, call, facts, maker.name);
    if (like.ok()) {
      return std::make_unique<CudaConvolutionCall>(device_, *std::move(like), 0, maker.others,
                                                   absl::OkStatus());
    }
    if (EndsLoading(like.status())) return like.status();
    break;  // what does not compile here may still be the library's
  }
  if (maker.name == kCudnnCastName) {
    RG_ASSIGN_OR_RETURN(std::unique_ptr<LoadedCall> made, LoadLibraryAndCast(call, facts));
    return std::make_unique<CudaConvolutionCall>(
        device_, std::move(made), timed == call ? maker.us : 0, maker.others, absl::OkStatus());
  }
  return LoadLibrary(call, facts, maker.others);
}

absl::StatusOr<std::unique_ptr<LoadedCall>> CudaConvolutionLoader::Load(const Call& call,
                                                                        const CallFacts& facts) {
  if (Has(options_.backends.Of(call.op), ConvolutionBackend::kRetrograd)) {
    const Call timed = TimedFor(call);
    absl::StatusOr<Schedules> schedules =
        LoadGeneratedConvolution(device_, timed, facts, kMostSchedules);
    // What does not compile here may still be the library's.
    if (EndsLoading(schedules.status())) return schedules.status();
    if (schedules.ok()) return LoadOurs(*std::move(schedules), timed, call, facts);
  }
  absl::StatusOr<std::unique_ptr<LoadedCall>> library = LoadLibrary(call, facts, "");
  if (!library.ok() && Refused(library.status()) && NarrowOf(call)) {
    library = LoadLibraryAndCast(call, facts);
  }
  if (library.ok() || !Refused(library.status()) || fallback_ == nullptr) return library;
  RG_ASSIGN_OR_RETURN(std::unique_ptr<LoadedCall> loaded, fallback_->Load(call, facts));
  return std::make_unique<CudaConvolutionCall>(device_, std::move(loaded), 0, "", library.status());
}

}  // namespace

CudaConvolutionCall::CudaConvolutionCall(GpuDevice& device, std::shared_ptr<CudnnPlans> library,
                                         std::string beside)
    : LoadedCall(library->workspace_bytes(), library->microseconds()),
      device_(device),
      library_(std::move(library)),
      beside_(std::move(beside)) {}

CudaConvolutionCall::CudaConvolutionCall(GpuDevice& device, std::unique_ptr<LoadedCall> ours,
                                         double us, std::string beside, absl::Status refusal)
    : LoadedCall(ours->scratch_bytes(), us),
      device_(device),
      ours_(std::move(ours)),
      beside_(std::move(beside)),
      refusal_(std::move(refusal)) {}

absl::Status CudaConvolutionCall::Run(int stream, const CallPointers& pointers, void* scratch) {
  if (ours_ != nullptr) return ours_->Run(stream, pointers, scratch);
  const CurrentContext current(device_.driver(), device_.context());
  RG_RETURN_IF_ERROR(current.status());
  return library_->Run(device_.Stream(stream), pointers, scratch);
}

std::string CudaConvolutionCall::Describe() const {
  if (library_ != nullptr) return absl::StrCat(library_->Describe(), beside_);
  const std::string ours = ours_->Describe();
  if (refusal_.ok()) return absl::StrCat(ours, TimeOf(measured_us()), beside_);
  return absl::StrCat(ours.empty() ? "the fallback" : ours, ", because ", refusal_.message());
}

std::unique_ptr<CallLoader> MakeCudaConvolutionLoader(GpuDevice& device, int sm,
                                                      const CudaConvolutionOptions& options,
                                                      std::unique_ptr<CallLoader> fallback) {
  return std::make_unique<CudaConvolutionLoader>(device, sm, options, std::move(fallback));
}

}  // namespace retrograd
