#include "codegen/sort/emit_index_sort.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "codegen/print/dialect.h"
#include "codegen/print/kernel_text.h"
#include "codegen/print/sized_number.h"
#include "codegen/print/source_writer.h"
#include "codegen/sort/sort_text.h"
#include "fusion/kernel/ir/scale.h"

namespace retrograd {
namespace {

constexpr int64_t kDealThreads = 256;  // of launches that each thread does one thing in
constexpr int64_t kProbes = 15;        // of a search for where a row begins, under way together

struct Constant {
  absl::string_view name;
  int64_t value;
  bool sized = false;  // what follows from the list's length or the number of rows
};

// One launch: its arguments, constants and shared arrays, then its text.
class Writer {
 public:
  Writer(const IndexSort& sort, Dialect dialect, absl::string_view what)
      : sort_(sort), unroll_(SpellingOf(dialect).unroll) {
    launch_.kernel.function.comment =
        absl::StrCat("// ", Name(dialect), ": sort_indices, ", what, "\n");
    out_.SetDepth(1);
    Constants({{"kRows", sort.sorted.rows, true},
               {"kIndices", sort.sorted.indices, true},
               {"kThreads", sort.threads},
               {"kDealThreads", kDealThreads},
               {"kStarts", sort.sorted.starts(), true},
               {"kPairs", sort.sorted.pairs(), true}});
    out_.Line("[[maybe_unused]] const int64_t kIndexFirst = ", Sized(sort.index_offset), ";");
  }

  void Index() {
    Argument(absl::StrCat("const ", StorageName(sort_.index_dtype)), "index", {kSortIndex});
  }
  void Argument(std::string type, absl::string_view name, SortLaunch::Arg arg) {
    launch_.kernel.function.declarations.push_back(
        {.type = std::move(type),
         .name = std::string(name),
         .at = static_cast<int64_t>(launch_.args.size())});
    launch_.args.push_back(arg);
  }

  void Shared(absl::string_view type, int64_t bytes, absl::string_view name, int64_t count) {
    launch_.kernel.threads_meet = true;
    launch_.kernel.shared_bytes += count * bytes;
    launch_.kernel.function.declarations.push_back({.kind = Declaration::kShared,
                                                    .type = std::string(type),
                                                    .name = std::string(name),
                                                    .count = count});
  }

  void Constants(const std::vector<Constant>& constants) {
    for (const Constant& c : constants) {
      if (c.sized) {
        out_.Line("[[maybe_unused]] const int ", c.name, " = ", Sized(c.value), ";");
      } else {
        out_.Line("[[maybe_unused]] constexpr int ", c.name, " = ", c.value, ";");
      }
    }
  }

  // RG_UNROLL, RG_READ, RG_MATCH and RG_TO stand for the dialect's word before a loop, for `read`,
  // for kMatchText, and for the list that a pass writes.
  void Text(absl::string_view text, absl::string_view read = "", absl::string_view to = "") {
    while (!text.empty()) {
      const size_t end = text.find('\n');
      std::string line(text.substr(0, end));
      text.remove_prefix(end == absl::string_view::npos ? text.size() : end + 1);
      if (line == "RG_UNROLL") {
        out_.Pragma(unroll_);
      } else if (line == "RG_READ") {
        Text(read);
      } else if (line == "RG_MATCH") {
        Text(kMatchText);
      } else {
        const size_t at = line.find("RG_TO,");
        if (at != std::string::npos) line.replace(at, 5, std::string(to));
        out_.Pragma(line);
      }
    }
  }

  SortLaunch End(int64_t blocks, int64_t threads) {
    Kernel& kernel = launch_.kernel;
    kernel.blocks = blocks;
    kernel.threads = static_cast<int>(threads);
    kernel.arguments = static_cast<int>(launch_.args.size());
    kernel.function.statements = out_.text();
    NameKernel(&kernel);
    return std::move(launch_);
  }

 private:
  const IndexSort& sort_;
  const absl::string_view unroll_;
  SourceWriter out_;
  SortLaunch launch_;
};

constexpr char kInt[] = "int32_t", kConstInt[] = "const int32_t";

std::vector<SortLaunch> Owners(const IndexSort& s, Dialect dialect) {
  const std::vector<Constant> constants = {{"kPacks", s.packs, true},
                                           {"kPacksAtOnce", s.packs_at_once},
                                           {"kOwnRows", s.own_rows},
                                           {"kList", SortScratchOf(s).list[0], true}};
  Writer deal(s, dialect, "dealt");
  deal.Index();
  deal.Argument(kInt, "w", {.slot = kSortScratch, .written = true, .fresh = true});
  deal.Constants(constants);
  deal.Text(kDealText);
  Writer own(s, dialect, "by owners");
  own.Argument(kConstInt, "w", {kSortScratch});
  own.Argument(kInt, "sorted", {.slot = kSortResult, .written = true, .fresh = true});
  const int64_t counters = s.own_rows * s.threads;
  own.Shared("int", 4, "counts", counters + counters / 32);
  own.Shared("int", 4, "sums", s.threads);
  own.Shared("int", 4, "lower", s.threads);
  own.Constants(constants);
  own.Text(kOwnText, kReadPacksText);
  std::vector<SortLaunch> launches;
  launches.push_back(deal.End(CeilDiv(s.packs * s.threads, kDealThreads), kDealThreads));
  launches.push_back(own.End(s.blocks, s.threads));
  return launches;
}

// Counts of other blocks that a thread loads before it adds them up: all, if they are not many.
int64_t CountsAtOnce(const IndexSort& s) {
  const int64_t all = CeilDiv(s.blocks, std::max<int64_t>(s.threads / s.digits(), 1));
  int64_t at_once = 16;
  while (at_once < all && at_once < 64) at_once *= 2;
  return at_once;
}

// What the launches of pass number `pass` share: pass 0 reads the indices themselves.
std::vector<Constant> PassConstants(const IndexSort& s, const SortScratch& scratch, int pass) {
  const int from = (pass + 1) % 2, to = pass % 2;
  const bool last = pass + 1 == s.passes;
  return {{"kItems", s.items},
          {"kTiles", s.tiles, true},
          {"kBlocks", s.blocks, true},
          {"kDigits", s.digits()},
          {"kDigitBits", s.digit_bits},
          {"kWarps", s.threads / 32},
          {"kShift", static_cast<int64_t>(pass) * s.digit_bits},
          {"kCounts", scratch.counts, true},
          {"kCountsAtOnce", CountsAtOnce(s)},
          {"kFrom", scratch.list[from], true},
          {"kTo", last ? s.sorted.pairs() : scratch.list[to], true}};
}

SortLaunch CountLaunch(const IndexSort& s, const SortScratch& scratch, int pass, Dialect dialect) {
  Writer count(s, dialect, absl::StrCat("digit ", pass, " counted"));
  if (pass == 0) count.Index();
  count.Argument(kInt, "w", {.slot = kSortScratch, .written = true, .fresh = pass == 0});
  count.Shared("int", 4, "counts", s.digits() * s.threads / 32);
  count.Constants(PassConstants(s, scratch, pass));
  count.Text(kCountText, pass == 0 ? kReadIndicesText : kReadListText);
  return count.End(s.blocks, s.threads);
}

SortLaunch PlaceLaunch(const IndexSort& s, const SortScratch& scratch, int pass, Dialect dialect) {
  const bool last = pass + 1 == s.passes;
  Writer place(s, dialect, absl::StrCat("digit ", pass, " placed"));
  if (pass == 0) place.Index();
  if (last) {
    place.Argument(kConstInt, "w", {kSortScratch});
    place.Argument(kInt, "sorted", {.slot = kSortResult, .written = true, .fresh = true});
  } else {
    place.Argument(kInt, "w", {.slot = kSortScratch, .written = true});
  }
  place.Shared("int", 4, "counts", std::max(s.digits() * s.threads / 32, s.threads));
  place.Shared("int", 4, "sums", s.threads);
  place.Shared("int", 4, "bases", s.digits());
  place.Constants(PassConstants(s, scratch, pass));
  place.Text(kPlaceText, pass == 0 ? kReadIndicesText : kReadListText, last ? "sorted" : "w");
  return place.End(s.blocks, s.threads);
}

std::vector<SortLaunch> Digits(const IndexSort& s, Dialect dialect) {
  const SortScratch scratch = SortScratchOf(s);
  std::vector<SortLaunch> launches;
  for (int pass = 0; pass < s.passes; ++pass) {
    launches.push_back(CountLaunch(s, scratch, pass, dialect));
    launches.push_back(PlaceLaunch(s, scratch, pass, dialect));
  }
  Writer starts(s, dialect, "where rows begin");
  starts.Argument(kInt, "sorted", {.slot = kSortResult, .written = true});
  starts.Constants({{"kProbes", kProbes}});
  starts.Text(kStartsText);
  launches.push_back(starts.End(CeilDiv(s.sorted.pairs(), kDealThreads), kDealThreads));
  return launches;
}

}  // namespace

std::vector<SortLaunch> EmitIndexSort(const IndexSort& sort, Dialect dialect) {
  return sort.owners ? Owners(sort, dialect) : Digits(sort, dialect);
}

}  // namespace retrograd
