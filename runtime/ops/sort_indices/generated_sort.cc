#include "runtime/ops/sort_indices/generated_sort.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "codegen/sort/emit_index_sort.h"
#include "fusion/kernel/ir/scale.h"
#include "fusion/ops/sort_indices/sort_price.h"
#include "graph/base/status.h"
#include "runtime/ops/sort_indices/kept_list.h"

namespace retrograd {
namespace {

// Of all sorts of a call, one behind the other.
struct Scratch {
  std::vector<int64_t> offsets;  // bytes, by sort
  int64_t bytes = 0;
};

Scratch ScratchOf(absl::Span<const IndexSort> sorts) {
  Scratch scratch;
  for (const IndexSort& sort : sorts) {
    scratch.offsets.push_back(scratch.bytes);
    scratch.bytes += CeilDiv(4 * SortScratchOf(sort).words, kArenaAlignment) * kArenaAlignment;
  }
  if (sorts.size() == 1) scratch.bytes = 4 * SortScratchOf(sorts[0]).words;
  return scratch;
}

using KeptLists = std::vector<std::unique_ptr<KeptList>>;

uint32_t SlotOf(size_t sort, SortSlot slot) {
  return static_cast<uint32_t>(sort * kSortSlots + static_cast<size_t>(slot));
}

class GeneratedSort : public LoadedCall {
 public:
  // early: by launch. kept: by sort, or empty where the caller has lists and scratch memory.
  GeneratedSort(Device& device, std::unique_ptr<LoadedKernels> kernels, std::vector<bool> early,
                KeptLists kept, Scratch scratch, std::string how)
      : LoadedCall(kept.empty() ? scratch.bytes : 0),
        device_(device),
        kernels_(std::move(kernels)),
        early_(std::move(early)),
        kept_(std::move(kept)),
        offsets_(std::move(scratch.offsets)),
        how_(std::move(how)),
        table_(offsets_.size() * kSortSlots) {}

  absl::Status Run(int stream, const CallPointers& pointers, void* scratch) override {
    for (size_t s = 0; s < offsets_.size(); ++s) {
      table_[SlotOf(s, kSortIndex)] = const_cast<void*>(pointers.operands[s]);
      table_[SlotOf(s, kSortScratch)] =
          kept_.empty() ? (scratch == nullptr ? nullptr : static_cast<char*>(scratch) + offsets_[s])
                        : kept_[s]->scratch();
      table_[SlotOf(s, kSortResult)] = kept_.empty() ? pointers.results[s] : kept_[s]->list();
    }
    RG_RETURN_IF_ERROR(device_.Bind(stream, *kernels_, absl::MakeSpan(table_)));
    for (size_t i = 0; i < early_.size(); ++i) {
      const bool early = early_[i] && may_start_early(i);
      RG_RETURN_IF_ERROR(early ? device_.LaunchEarly(stream, *kernels_, i)
                               : device_.Launch(stream, *kernels_, i));
    }
    return absl::OkStatus();
  }
  std::string Describe() const override { return how_; }
  std::vector<void*> kept_results() const override {
    std::vector<void*> lists;
    for (const auto& kept : kept_) lists.push_back(kept->list());
    return lists;
  }
  int64_t kept_bytes() const override {
    int64_t bytes = 0;
    for (const auto& kept : kept_) bytes += kept->bytes();
    return bytes;
  }

 private:
  Device& device_;
  const std::unique_ptr<LoadedKernels> kernels_;
  const std::vector<bool> early_;
  const KeptLists kept_;
  const std::vector<int64_t> offsets_;  // of scratch memory, by sort
  const std::string how_;
  std::vector<void*> table_;
};

// Sorts with the calls that they are of.
struct Sorts {
  std::vector<const Call*> calls;
  std::vector<IndexSort> sorts;
};

LaunchArg ArgOf(const SortLaunch::Arg& made, const Sorts& of) {
  const size_t s = static_cast<size_t>(made.sort);
  const IndexSort& sort = of.sorts[s];
  LaunchArg arg{.slot = SlotOf(s, made.slot), .written = made.written};
  if (made.slot == kSortIndex) {
    arg.bytes = SpanOf(of.calls[s]->operands[0]) * SizeBytes(sort.index_dtype);
    arg.alignment = SizeBytes(sort.index_dtype);
    return arg;
  }
  const bool scratch = made.slot == kSortScratch;
  arg.bytes = 4 * (scratch ? SortScratchOf(sort).words : sort.sorted.elements());
  arg.alignment = kStoredAlignment;
  arg.contents = made.fresh ? Contents::kFresh : Contents::kWritten;
  return arg;
}

Launch LaunchOf(const SortLaunch& made, const Sorts& of) {
  Launch launch{
      .kernel = made.kernel.name, .blocks = made.kernel.blocks, .threads = made.kernel.threads};
  launch.direct = made.kernel.direct;
  launch.starts_early = made.kernel.starts_early;
  for (const SortLaunch::Arg& arg : made.args) launch.args.push_back(ArgOf(arg, of));
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

// Lists for all sorts, or none, which are then not kept: a device without memory to spare sorts in
// each run.
absl::StatusOr<KeptLists> KeepLists(Device& device, std::vector<IndexSort>& sorts) {
  KeptLists lists;
  for (const IndexSort& sort : sorts) {
    if (!sort.kept) break;
    absl::StatusOr<std::unique_ptr<KeptList>> made = KeptList::Make(device, sort);
    if (absl::IsResourceExhausted(made.status())) break;
    RG_RETURN_IF_ERROR(made.status());
    lists.push_back(*std::move(made));
  }
  if (lists.size() == sorts.size()) return lists;
  for (IndexSort& sort : sorts) sort.kept = false;
  return KeptLists();
}

absl::StatusOr<std::unique_ptr<LoadedCall>> LoadSorts(Device& device, Sorts of, bool direct) {
  RG_ASSIGN_OR_RETURN(KeptLists kept, KeepLists(device, of.sorts));
  const std::vector<SortLaunch> made = EmitIndexSorts(of.sorts, device.dialect(), direct);
  std::vector<Launch> launches;
  std::vector<bool> early;
  for (const SortLaunch& launch : made) {
    // What stands before the call is not known.
    early.push_back(!early.empty() && launch.kernel.starts_early);
    launches.push_back(LaunchOf(launch, of));
  }
  RG_ASSIGN_OR_RETURN(std::unique_ptr<LoadedKernels> loaded,
                      device.Load(DistinctKernels(made), launches));
  const size_t count = of.sorts.size();
  std::string how =
      absl::StrCat("kernels of ours, ",
                   count > 1 ? absl::StrCat(count, " sorts that share launches, each ") : "",
                   Describe(of.sorts[0]), kept.empty() ? "" : ", kept");
  return std::make_unique<GeneratedSort>(device, std::move(loaded), std::move(early),
                                         std::move(kept), ScratchOf(of.sorts), std::move(how));
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

class SharedSortLoader : public SharedCallLoader {
 public:
  SharedSortLoader(Device& device, bool direct) : device_(device), direct_(direct) {}

  std::vector<Kernel> KernelsOf(absl::Span<const ExpectedCall> calls) override {
    return DistinctKernels(EmitIndexSorts(SharedSortsOf(calls), device_.dialect(), direct_));
  }
  bool times_each() const override { return false; }
  absl::StatusOr<std::unique_ptr<LoadedCall>> Load(absl::Span<const ExpectedCall> calls) override {
    return LoadSharedSorts(device_, calls, direct_);
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

std::vector<IndexSort> SharedSortsOf(absl::Span<const ExpectedCall> calls) {
  std::vector<IndexSort> sorts;
  for (const ExpectedCall& expected : calls) {
    sorts.push_back(IndexSortOf(*expected.call, *expected.facts));
  }
  const bool all =
      std::all_of(sorts.begin(), sorts.end(), [](const IndexSort& sort) { return sort.kept; });
  for (IndexSort& sort : sorts) sort.kept = all;
  return TogetherOf(std::move(sorts));
}

absl::StatusOr<std::unique_ptr<LoadedCall>> LoadGeneratedSort(Device& device, const Call& call,
                                                              const IndexSort& sort, bool direct) {
  return LoadSorts(device, {{&call}, {sort}}, direct);
}

absl::StatusOr<std::unique_ptr<LoadedCall>> LoadSharedSorts(Device& device,
                                                            absl::Span<const ExpectedCall> calls,
                                                            bool direct) {
  Sorts of{.sorts = SharedSortsOf(calls)};
  for (const ExpectedCall& expected : calls) of.calls.push_back(expected.call);
  // Of the same kind alone: together some may have one launch less.
  const IndexSort first = IndexSortOf(*calls[0].call);
  for (const ExpectedCall& expected : calls) {
    const IndexSort sort = IndexSortOf(*expected.call);
    if (SharedKindOf(sort) == SharedKindOf(first)) continue;
    return absl::UnimplementedError(absl::StrFormat(
        "sort_indices %%%d, %d into %d rows and %d into %d rows: these lists are not "
        "sorted in one way by as many launches",
        Index(calls[0].call->node), first.sorted.indices, first.sorted.rows, sort.sorted.indices,
        sort.sorted.rows));
  }
  return LoadSorts(device, std::move(of), direct);
}

std::unique_ptr<CallLoader> MakeGeneratedSortLoader(Device& device, bool direct) {
  return std::make_unique<GeneratedSortLoader>(device, direct);
}

std::unique_ptr<SharedCallLoader> MakeSharedSortLoader(Device& device, bool direct) {
  return std::make_unique<SharedSortLoader>(device, direct);
}

}  // namespace retrograd
