#include "runtime/host/sanitizer/access_check.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace retrograd {
namespace {

uintptr_t Address(const void* data) { return reinterpret_cast<uintptr_t>(data); }

std::string ArgumentName(int argument) { return absl::StrCat("argument ", argument); }

// The largest power of two that divides both, neither zero at once.
int64_t CommonPower(int64_t a, int64_t b) {
  const int64_t both = a | b;
  return both & -both;
}

}  // namespace

absl::Status AccessCheck::BeginLaunch(absl::string_view kernel, absl::Span<const HostArg> args,
                                      int64_t blocks, int threads, int cluster,
                                      const HostLaunchOptions& options) {
  if (blocks * threads >= int64_t{UINT32_MAX}) {
    return absl::ResourceExhaustedError(absl::StrCat("kernel ", kernel, ": ", blocks, " blocks of ",
                                                     threads,
                                                     " threads are too many for a checked launch"));
  }
  kernel_ = std::string(kernel);
  options_ = options;
  args_.assign(args.begin(), args.end());
  shape_ = {.threads = threads * cluster, .of_block = threads};
  accesses_ = faults_ = 0;
  told_.clear();
  shared_shadow_.clear();
  // An argument updated in place is two: what it holds wins over what it will hold.
  for (const HostArg& arg : args) {
    if (arg.contents == HostContents::kUndefined) MarkUndefined(arg.data, arg.bytes);
  }
  for (const HostArg& arg : args) {
    if (arg.contents == HostContents::kDefined) MarkDefined(arg.data, arg.bytes);
  }
  MakeRegions();
  return absl::OkStatus();
}

void AccessCheck::MakeRegions() {
  regions_.clear();
  region_of_.assign(args_.size(), 0);
  std::vector<int> by_address(args_.size());
  for (size_t i = 0; i < args_.size(); ++i) by_address[i] = static_cast<int>(i);
  std::sort(by_address.begin(), by_address.end(), [&](int a, int b) {
    return std::pair(Address(args_[a].data), a) < std::pair(Address(args_[b].data), b);
  });
  for (int i : by_address) {
    const uintptr_t begin = Address(args_[i].data), end = begin + args_[i].bytes;
    if (regions_.empty() || begin >= regions_.back().end) {
      regions_.emplace_back();
      regions_.back().begin = begin;
      regions_.back().end = end;
    }
    regions_.back().end = std::max(regions_.back().end, end);
    region_of_[i] = static_cast<int>(regions_.size()) - 1;
  }
  for (Region& region : regions_) {
    region.undefined = undefined_.Flags(region.begin, region.end - region.begin);
  }
}

void AccessCheck::MakeFiner(Region& region, int64_t granule) {
  const int64_t bytes = region.end - region.begin;
  std::vector<ShadowWord> finer((bytes + granule - 1) / granule);
  if (region.granule > 0) {
    for (size_t i = 0; i < finer.size(); ++i) {
      finer[i] = region.shadow[i * granule / region.granule];
    }
  }
  region.shadow = std::move(finer);
  region.granule = granule;
}

bool AccessCheck::Global(const Accessor& by, int argument, int64_t offset, int64_t bytes,
                         int element_bytes, bool write, int line) {
  ++accesses_;
  const HostArg& arg = args_[argument];
  const auto describe = [&](int64_t at) {
    return Access(by, ArgumentName(argument), at, element_bytes, write, line);
  };
  if (offset < 0 || bytes > arg.bytes || offset > arg.bytes - bytes) {
    if (Fault* fault = Tell("out of bounds", &arg, line)) {
      fault->text = absl::StrCat("out of bounds: ", describe(offset), ", which has ",
                                 arg.bytes / element_bytes, " elements");
    }
    return false;
  }
  if (offset % bytes != 0 || arg.alignment % bytes != 0) {
    if (Fault* fault = Tell("misaligned", &arg, line)) {
      fault->text =
          absl::StrCat("misaligned: ", describe(offset), " in one access of ", bytes,
                       " bytes at byte ", offset, " of memory aligned to ", arg.alignment);
    }
    return false;
  }
  if (write && !arg.written) {
    if (Fault* fault = Tell("store to an input", &arg, line)) {
      fault->text = absl::StrCat("store to what is only read: ", describe(offset));
    }
    return false;
  }
  Region& region = regions_[region_of_[argument]];
  const int64_t at = static_cast<int64_t>(Address(arg.data) - region.begin) + offset;
  const int64_t granule = CommonPower(at, element_bytes);
  if (region.granule == 0 || granule < region.granule) MakeFiner(region, granule);
  for (int64_t i = at / region.granule; i * region.granule < at + bytes; ++i) {
    ShadowWord& word = region.shadow[i];
    const ShadowWord::Conflict other = write ? word.Write(by, shape_) : word.Read(by, shape_);
    if (!other) continue;
    TellRace(by, other, ArgumentName(argument), &arg, offset + i * region.granule - at,
             element_bytes, write, line);
    break;
  }
  if (region.undefined.empty()) return true;
  if (write) {
    std::memset(region.undefined.data() + at, 0, bytes);
  } else if (const void* first = std::memchr(region.undefined.data() + at, 1, bytes)) {
    if (Fault* fault = Tell("undefined", &arg, line)) {
      const int64_t skipped = static_cast<const uint8_t*>(first) - (region.undefined.data() + at);
      fault->text =
          absl::StrCat("uninitialised: ", describe(offset + skipped), ", where nothing was stored");
    }
  }
  return true;
}

bool AccessCheck::Shared(const Accessor& by, int owner, const SharedArrays::Array& array,
                         int64_t offset, int64_t bytes, bool write) {
  ++accesses_;
  const bool own = owner == by.thread / shape_.of_block;
  const auto what = [&] {
    return absl::StrCat("shared array ", array.name,
                        own ? "" : absl::StrCat(" of block ", by.block * shape_.cluster() + owner));
  };
  if (offset < 0 || offset > array.bytes - bytes) {
    if (Fault* fault = Tell("out of bounds", array.key, write)) {
      fault->text =
          absl::StrCat("out of bounds: ", Access(by, what(), offset, array.element_bytes, write, 0),
                       ", which has ", array.bytes / array.element_bytes, " elements");
    }
    return false;
  }
  const int64_t base = owner * SharedArrays::kBytes + array.offset;
  const size_t word_index = base + offset / array.element_bytes;
  if (word_index >= shared_shadow_.size()) shared_shadow_.resize(base + array.bytes);
  ShadowWord& word = shared_shadow_[word_index];
  // Shared memory begins with the block: what an earlier block left is nothing to this one.
  if (!word.WrittenIn(by.block, shape_)) {
    if (!write) {
      if (Fault* fault = Tell("undefined", array.key, write)) {
        fault->text = absl::StrCat(
            "uninitialised: ", Access(by, what(), offset, array.element_bytes, write, 0),
            ", where nothing was stored");
      }
      return true;
    }
    word = ShadowWord();
  }
  const ShadowWord::Conflict other = write ? word.Write(by, shape_) : word.Read(by, shape_);
  if (other) TellRace(by, other, what(), array.key, offset, array.element_bytes, write, 0);
  return true;
}

void AccessCheck::Ended(const Accessor& by, int owner, const SharedArrays::Array& array,
                        int64_t offset) {
  if (Fault* fault = Tell("ended", array.key, 0)) {
    const int block = by.block * shape_.cluster() + owner;
    fault->text = absl::StrCat("ended: ",
                               Access(by, absl::StrCat("shared array ", array.name), offset,
                                      array.element_bytes, false, 0),
                               " of block ", block, ", whose threads have returned");
  }
}

void AccessCheck::MissingLane(const Accessor& by, int distance, int line) {
  if (Fault* fault = Tell("missing lane", nullptr, line)) {
    fault->text =
        absl::StrCat("shuffle: ", ThreadName(by.thread, by.block), " takes a value from a lane ",
                     distance, " away that the block does not have, in line ", line);
  }
}

AccessCheck::Fault* AccessCheck::Tell(const char* kind, const void* where, int line) {
  ++faults_;
  for (Fault& fault : told_) {
    if (fault.kind == kind && fault.where == where && fault.line == line) {
      ++fault.times;
      return nullptr;
    }
  }
  if (told_.size() >= kMostTold) return nullptr;
  told_.push_back({"", kind, where, line, 1});
  return &told_.back();
}

std::string AccessCheck::ThreadName(int thread, int block) const {
  return absl::StrCat("thread ", thread % shape_.of_block, " of block ",
                      block * shape_.cluster() + thread / shape_.of_block);
}

// "thread 3 of block 0 reads element 7 (4 bytes) of argument 1 in line 12"
std::string AccessCheck::Access(const Accessor& by, absl::string_view what, int64_t offset,
                                int element_bytes, bool write, int line) const {
  std::string text = absl::StrCat(ThreadName(by.thread, by.block), write ? " writes" : " reads",
                                  " element ", offset / element_bytes, " (", element_bytes,
                                  element_bytes == 1 ? " byte) of " : " bytes) of ", what);
  if (line > 0) absl::StrAppend(&text, " in line ", line);
  return text;
}

void AccessCheck::TellRace(const Accessor& by, const ShadowWord::Conflict& other,
                           absl::string_view what, const void* where, int64_t offset,
                           int element_bytes, bool write, int line) {
  const bool same_block = other.block == by.block;
  const bool of_cluster = other.thread / shape_.of_block != by.thread / shape_.of_block;
  Fault* fault = Tell(same_block ? "race" : "race of blocks", where, line);
  if (fault == nullptr) return;
  fault->text =
      absl::StrCat("race: ", Access(by, what, offset, element_bytes, write, line), ", which ",
                   ThreadName(other.thread, other.block), other.wrote ? " wrote" : " read",
                   !same_block  ? " in the same launch"
                   : of_cluster ? " with no barrier of the cluster between"
                                : " with no barrier between");
}

absl::Status AccessCheck::EndLaunch() {
  for (const Region& region : regions_) {
    if (!region.undefined.empty()) undefined_.SetFlags(region.begin, region.undefined);
  }
  regions_.clear();
  if (faults_ == 0 && !full()) return absl::OkStatus();
  std::vector<std::string> texts;
  int64_t named = 0;
  for (const Fault& fault : told_) {
    texts.push_back(fault.times == 1 ? fault.text
                                     : absl::StrCat(fault.text, " (", fault.times, " times)"));
    named += fault.times;
  }
  if (named < faults_) texts.push_back(absl::StrCat(faults_ - named, " more"));
  if (accesses_ > options_.most_accesses) {
    texts.push_back(absl::StrCat("stopped after ", options_.most_accesses, " accesses"));
  }
  return absl::InternalError(absl::StrCat("kernel ", kernel_, " (seed ", options_.seed,
                                          "): ", absl::StrJoin(texts, "; ")));
}

void AccessCheck::MarkDefined(const void* data, int64_t bytes) {
  undefined_.Mark(Address(data), bytes, false);
}
void AccessCheck::MarkUndefined(const void* data, int64_t bytes) {
  undefined_.Mark(Address(data), bytes, true);
}

}  // namespace retrograd
