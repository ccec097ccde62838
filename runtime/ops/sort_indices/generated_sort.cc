#include "runtime/ops/sort_indices/generated_sort.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "codegen/sort/emit_index_sort.h"
#include "fusion/kernel/ir/scale.h"
#include "graph/base/status.h"

namespace retrograd {
namespace {

// Memory that a call holds from run to run: scratch memory, then the list.
class KeptList {
 public:
  // No indices are known yet.
  static absl::StatusOr<std::unique_ptr<KeptList>> Make(Device& device, const IndexSort& sort) {
    const SortScratch scratch = SortScratchOf(sort);
    const int64_t list = CeilDiv(4 * scratch.words, kArenaAlignment) * kArenaAlignment;
    const int64_t bytes = list + 4 * sort.sorted.elements();
    RG_ASSIGN_OR_RETURN(void* const data, device.Allocate(bytes));
    auto kept = std::unique_ptr<KeptList>(new KeptList(device, data, list, bytes));
    const std::vector<int32_t> nothing(scratch.known_end, 0);
    RG_RETURN_IF_ERROR(device.CopyIn(data, nothing.data(), 4 * scratch.known_end));
    return kept;
  }
  ~KeptList() { device_.Free(data_); }
  KeptList(const KeptList&) = delete;
  KeptList& operator=(const KeptList&) = delete;

  void* scratch() const { return data_; }
  void* list() const { return static_cast<char*>(data_) + list_; }
  int64_t bytes() const { return bytes_; }

 private:
  KeptList(Device& device, void* data, int64_t list, int64_t bytes)
      : device_(device), data_(data), list_(list), bytes_(bytes) {}

  Device& device_;
  void* const data_;
  const int64_t list_, bytes_;
};

class GeneratedSort : public LoadedCall {
 public:
  // early: by launch. kept: null where the caller has list and scratch memory.
  GeneratedSort(Device& device, std::unique_ptr<LoadedKernels> kernels, std::vector<bool> early,
                std::unique_ptr<KeptList> kept, int64_t scratch_bytes, std::string how)
      : LoadedCall(kept == nullptr ? scratch_bytes : 0),
        device_(device),
        kernels_(std::move(kernels)),
        early_(std::move(early)),
        kept_(std::move(kept)),
        how_(std::move(how)) {}

  absl::Status Run(int stream, const CallPointers& pointers, void* scratch) override {
    void* table[kSortSlots];
    table[kSortIndex] = const_cast<void*>(pointers.operands[0]);
    table[kSortScratch] = kept_ == nullptr ? scratch : kept_->scratch();
    table[kSortResult] = kept_ == nullptr ? pointers.results[0] : kept_->list();
    RG_RETURN_IF_ERROR(device_.Bind(stream, *kernels_, table));
    for (size_t i = 0; i < early_.size(); ++i) {
      const bool early = early_[i] && may_start_early(i);
      RG_RETURN_IF_ERROR(early ? device_.LaunchEarly(stream, *kernels_, i)
                               : device_.Launch(stream, *kernels_, i));
    }
    return absl::OkStatus();
  }
  std::string Describe() const override { return how_; }
  void* kept_result() const override { return kept_ == nullptr ? nullptr : kept_->list(); }
  int64_t kept_bytes() const override { return kept_ == nullptr ? 0 : kept_->bytes(); }

 private:
  Device& device_;
  const std::unique_ptr<LoadedKernels> kernels_;
  const std::vector<bool> early_;
  const std::unique_ptr<KeptList> kept_;
  const std::string how_;
};

LaunchArg ArgOf(const SortLaunch::Arg& made, const Call& call, const IndexSort& sort) {
  LaunchArg arg{.slot = static_cast<uint32_t>(made.slot), .written = made.written};
  if (made.slot == kSortIndex) {
    arg.bytes = SpanOf(call.operands[0]) * SizeBytes(sort.index_dtype);
    arg.alignment = SizeBytes(sort.index_dtype);
    return arg;
  }
  const bool scratch = made.slot == kSortScratch;
  arg.bytes = 4 * (scratch ? SortScratchOf(sort).words : sort.sorted.elements());
  arg.alignment = kStoredAlignment;
  arg.contents = made.fresh ? Contents::kFresh : Contents::kWritten;
  return arg;
}

Launch LaunchOf(const SortLaunch& made, const Call& call, const IndexSort& sort) {
  Launch launch{
      .kernel = made.kernel.name, .blocks = made.kernel.blocks, .threads = made.kernel.threads};
  launch.direct = made.kernel.direct;
  launch.starts_early = made.kernel.starts_early;
  for (const SortLaunch::Arg& arg : made.args) launch.args.push_back(ArgOf(arg, call, sort));
  return launch;
}

std::vector<Kernel> DistinctKernels(const std::vector<SortLaunch>& launches) {
  std::vector<Kernel> kernels;
  for (const SortLaunch& launch : launches) {
    bool known = false;
    for (const Kernel& kernel : kernels) known = known || kernel.name == launch.kernel.name;
    if (!known) kernels.push_back(launch.kernel);
  }
  return kernels;
}

class GeneratedSortLoader : public CallLoader {
 public:
  GeneratedSortLoader(Device& device, bool direct) : device_(device), direct_(direct) {}

  std::vector<Kernel> KernelsOf(const Call& call, const CallFacts& facts) override {
    return DistinctKernels(EmitIndexSort(IndexSortOf(call, facts), device_.dialect(), direct_));
  }
  absl::StatusOr<std::unique_ptr<LoadedCall>> Load(const Call& call,
                                                   const CallFacts& facts) override {
    return LoadGeneratedSort(device_, call, IndexSortOf(call, facts), direct_);
  }

 private:
  Device& device_;
  const bool direct_;
};

}  // namespace

IndexSort IndexSortOf(const Call& call, const CallFacts& facts) {
  IndexSort sort = IndexSortOf(call);
  const int64_t bytes = KeptBytes(sort);
  sort.kept = bytes > 0 && bytes <= facts.most_kept_bytes;
  return sort;
}

absl::StatusOr<std::unique_ptr<LoadedCall>> LoadGeneratedSort(Device& device, const Call& call,
                                                              const IndexSort& sort, bool direct) {
  const std::vector<SortLaunch> made = EmitIndexSort(sort, device.dialect(), direct);
  std::vector<Launch> launches;
  std::vector<bool> early;
  for (const SortLaunch& launch : made) {
    // What stands before the call is not known.
    early.push_back(!early.empty() && launch.kernel.starts_early);
    launches.push_back(LaunchOf(launch, call, sort));
  }
  RG_ASSIGN_OR_RETURN(std::unique_ptr<LoadedKernels> loaded,
                      device.Load(DistinctKernels(made), launches));
  std::unique_ptr<KeptList> kept;
  if (sort.kept) {
    RG_ASSIGN_OR_RETURN(kept, KeptList::Make(device, sort));
  }
  return std::make_unique<GeneratedSort>(
      device, std::move(loaded), std::move(early), std::move(kept), 4 * SortScratchOf(sort).words,
      absl::StrCat("kernels of ours, ", Describe(sort), sort.kept ? ", kept" : ""));
}

std::unique_ptr<CallLoader> MakeGeneratedSortLoader(Device& device, bool direct) {
  return std::make_unique<GeneratedSortLoader>(device, direct);
}

}  // namespace retrograd
