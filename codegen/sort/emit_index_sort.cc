#include "codegen/sort/emit_index_sort.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "codegen/print/dialect.h"
#include "codegen/print/kernel_text.h"
#include "codegen/print/lift_numbers.h"
#include "codegen/print/merge_kernels.h"
#include "codegen/print/numbers/sized_number.h"
#include "codegen/print/share_functions.h"
#include "codegen/print/source_writer.h"
#include "codegen/sort/sort_text.h"
#include "fusion/kernel/ir/scale.h"

namespace retrograd {
namespace {

constexpr int64_t kStartsThreads = 256;  // of the launch that looks for where rows begin
constexpr int64_t kProbes = 15;          // of such a search, under way together
// Blocks of that launch with a row for each thread, at most: about as many as a GPU holds.
constexpr int64_t kMostStartsBlocks = 1024;
constexpr int64_t kNear = 8;  // positions that such a block's thread first looks among
// Counts of other blocks that a thread loads together: of stretches it holds indices meanwhile.
constexpr int64_t kCountsAtOnce = 16, kStretchesAtOnce = 4;

struct Constant {
  absl::string_view name;
  int64_t value;
  bool sized = false;  // what follows from the list's length or the number of rows
};

// A line of a text that stands for another text.
struct Step {
  absl::string_view line, text;
};
constexpr absl::string_view kRead = "RG_READ", kStarts = "RG_STARTS", kKeep = "RG_KEEP";

// One launch: its arguments, constants and shared arrays, then its text.
class Writer {
 public:
  Writer(const IndexSort& sort, Dialect dialect, absl::string_view what)
      : sort_(sort),
        unroll_(SpellingOf(dialect).unroll),
        steps_({{"RG_MATCH", kMatchText},
                {"RG_COLUMN", kColumnText},
                {"RG_SCAN", kScanText},
                {"RG_COUNTERS", kCountersText},
                {"RG_COMPARE", kCompareText},
                {"RG_UNCHANGED", kUnchangedText},
                {"RG_FORGET", kForgetText},
                {"RG_DIGITS_OF", kDigitsOfText}}) {
    launch_.kernel.function.comment =
        absl::StrCat("// ", Name(dialect), ": sort_indices, ", what, "\n");
    out_.SetDepth(1);
    Constants({{"kRows", sort.sorted.rows, true},
               {"kIndices", sort.sorted.indices, true},
               {"kThreads", sort.threads},
               {"kWarps", sort.threads / 32},
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

  void Shared(absl::string_view name, int64_t count, absl::string_view type = "int",
              int64_t bytes = 4) {
    launch_.kernel.threads_meet = true;
    launch_.kernel.shared_bytes += CeilDiv(count * bytes, 16) * 16;
    launch_.kernel.function.declarations.push_back({.kind = Declaration::kShared,
                                                    .type = std::string(type),
                                                    .name = std::string(name),
                                                    .count = count});
  }
  // The table of RG_MATCH and RG_COLUMN, where `first` of RG_SCAN stands for each digit, and what
  // RG_SCAN needs.
  void Digits(int64_t digits, int64_t bits) {
    Constants({{"kDigits", digits}, {"kDigitBits", bits}});
    Shared("counts", digits * sort_.threads / 32, "unsigned short", 2);
    Shared("sums", sort_.threads / 32);
  }
  void Counters() {
    Shared("grouped", sort_.threads);
    Shared("grouped_before", sort_.threads);
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

  // A launch of short work behind another one of the same sort.
  void StartsEarly() {
    launch_.kernel.starts_early = true;
    out_.Line("RG_EARLY_START();");
  }
  // A launch that ends at once if no index has changed, and else takes long.
  void MayStartEarly() {
    launch_.kernel.starts_early = true;
    out_.Line("RG_EARLY_WAIT();");
  }

  void Stands(absl::string_view line, absl::string_view text) { steps_.push_back({line, text}); }
  // What is done at RG_KEEP of a kept list; nothing of others.
  void Keeps(absl::string_view text) {
    Stands(kKeep, sort_.kept ? text : "");
    if (!sort_.kept) return;
    const SortScratch scratch = SortScratchOf(sort_);
    Constants({{"kMostChanges", kMostChanges},
               {"kChanged", scratch.changed, true},
               {"kKnown", scratch.known, true},
               {"kAgain", scratch.again, true}});
  }
  // RG_UNROLL stands for the dialect's word before a loop, RG_TO for the list that a pass writes.
  void Text(absl::string_view text, absl::string_view to = "") {
    while (!text.empty()) {
      const size_t end = text.find('\n');
      std::string line(text.substr(0, end));
      text.remove_prefix(end == absl::string_view::npos ? text.size() : end + 1);
      if (line == "RG_UNROLL") {
        out_.Pragma(unroll_);
      } else if (const Step* step = StepOf(line)) {
        Text(step->text, to);
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
    return std::move(launch_);
  }

 private:
  const Step* StepOf(absl::string_view line) const {
    for (const Step& step : steps_) {
      if (step.line == line) return &step;
    }
    return nullptr;
  }

  const IndexSort& sort_;
  const absl::string_view unroll_;
  std::vector<Step> steps_;
  SourceWriter out_;
  SortLaunch launch_;
};

constexpr char kInt[] = "int32_t", kConstInt[] = "const int32_t";

int BitsBelow(int64_t n) {
  int bits = 0;
  while ((int64_t{1} << bits) < n) ++bits;
  return bits;
}

// As many digits as count the buckets: one kernel then serves lists of about so many rows.
int64_t BucketDigits(const IndexSort& s) { return int64_t{1} << BitsBelow(s.buckets); }

// What the ends of all launches that sort a bucket need.
void Rows(const IndexSort& s, int64_t held, int64_t items, Writer* out) {
  out->Digits(s.bucket_rows(), s.row_bits);
  out->Constants({{"kItems", items}, {"kHeld", held}});
  out->Shared("bases", s.threads / 32);
  out->Shared("firsts", s.bucket_rows());
  out->Shared("shifts", s.bucket_rows());
  out->Shared("held", held);
}

std::vector<SortLaunch> OneLaunch(const IndexSort& s, Dialect dialect) {
  Writer out(s, dialect, "all of it");
  out.Index();
  out.Argument(kInt, "sorted", {.slot = kSortResult, .written = true, .fresh = true});
  Rows(s, s.part(), s.items, &out);
  out.Text(kWholeListText);
  out.Text(kRowsText);
  out.Text(kPutText);
  std::vector<SortLaunch> launches;
  launches.push_back(out.End(s.buckets, s.threads));
  return launches;
}

void BucketConstants(const IndexSort& s, int64_t counts_at_once, Writer* out) {
  const SortScratch scratch = SortScratchOf(s);
  out->Constants({{"kPart", s.part()},
                  {"kParts", s.parts, true},
                  {"kRowBits", s.row_bits},
                  {"kSearch", kMostSortedParts / 2},
                  {"kCountsAtOnce", counts_at_once},
                  {"kBuckets", s.buckets, true},
                  {"kList", scratch.list[0], true},
                  {"kBegins", scratch.begins, true},
                  {"kLongest", scratch.longest, true},
                  {"kJobs", scratch.jobs, true},
                  {"kRowsAt", scratch.rows, true}});
}

SortLaunch PartLaunch(const IndexSort& s, Dialect dialect) {
  Writer out(s, dialect, "parts by buckets");
  out.Index();
  out.Argument(kInt, "w", {.slot = kSortScratch, .written = true, .fresh = !s.kept});
  out.Digits(BucketDigits(s), BitsBelow(s.buckets));
  out.Keeps(kKeepPartText);
  out.Stands("RG_DECLARE_KNOWN", s.kept ? kDeclareKnownText : "");
  out.Stands("RG_LOAD_KNOWN", s.kept ? kLoadKnownText : "");
  out.Stands("RG_DIFFERS", s.kept ? kDiffersText : "");
  if (s.kept) out.Shared("changed", s.threads / 32);
  out.Constants({{"kItems", s.items}});
  BucketConstants(s, kCountsAtOnce, &out);
  out.Shared("mosts", s.threads / 32);
  out.Shared("firsts", BucketDigits(s));
  out.Shared("held", s.part());
  out.StartsEarly();
  out.Text(kPartText);
  return out.End(s.parts, s.threads);
}

// The launch of buckets, and that of the stretches of long ones.
SortLaunch BucketLaunch(const IndexSort& s, bool of_long, Dialect dialect) {
  const bool counts = s.stretches > 0 && !of_long;
  Writer out(s, dialect, of_long ? "stretches of long buckets" : "buckets by rows");
  const bool writes = counts || s.kept;
  out.Argument(writes ? kInt : kConstInt, "w", {.slot = kSortScratch, .written = writes});
  out.Argument(kInt, "sorted",
               {.slot = kSortResult, .written = true, .fresh = !of_long && !s.kept});
  out.Keeps(of_long ? kForgetText : kSkipUnchangedBucketText);
  if (of_long && s.kept) out.Constants({{"kForgetThreads", s.threads}});
  Rows(s, s.capacity(), s.capacity() / s.threads, &out);
  BucketConstants(s, of_long ? kStretchesAtOnce : kCountsAtOnce, &out);
  out.Shared("offsets", kMostSortedParts);
  out.Shared("places", kMostSortedParts);
  if (counts) {
    out.Shared("found", 4);
    out.Shared("begins", BucketDigits(s) + 1);
  }
  if (of_long) out.Counters();
  out.StartsEarly();
  out.Text(of_long ? kLongText : counts ? kFindText : kOwnBucketText);
  out.Text(kBoundsText);
  if (counts) out.Text(kSkipLongText);
  out.Text(kGatherText);
  if (counts) out.Text(kLeaveText);
  out.Text("RG_SCAN\n");
  out.Text(of_long ? kLongRowsText : kRowsText);
  out.Text(kPutText);
  return out.End(of_long ? s.stretches : s.buckets + s.stretches, s.threads);
}

std::vector<SortLaunch> Buckets(const IndexSort& s, Dialect dialect) {
  std::vector<SortLaunch> launches;
  launches.push_back(PartLaunch(s, dialect));
  launches.push_back(BucketLaunch(s, false, dialect));
  if (s.stretches > 0) launches.push_back(BucketLaunch(s, true, dialect));
  return launches;
}

// What the launches of pass number `pass` share: pass 0 reads the indices themselves.
void Pass(const IndexSort& s, int pass, Writer* out) {
  const SortScratch scratch = SortScratchOf(s);
  const int from = (pass + 1) % 2, to = pass % 2;
  const bool last = pass + 1 == s.passes;
  out->Digits(s.digits(), s.digit_bits);
  out->Constants({{"kItems", s.items},
                  {"kPart", s.part()},
                  {"kTiles", s.tiles, true},
                  {"kBlocks", s.blocks, true},
                  {"kShift", static_cast<int64_t>(pass) * s.digit_bits},
                  {"kCounts", pass == 0 ? scratch.first_counts : scratch.counts, true},
                  {"kCountsAtOnce", kCountsAtOnce},
                  {"kFrom", scratch.list[from], true},
                  {"kTo", last ? s.sorted.pairs() : scratch.list[to], true}});
  out->Stands(kRead, pass == 0 ? kReadIndicesText : kReadListText);
}

SortLaunch CountLaunch(const IndexSort& s, int pass, Dialect dialect) {
  Writer count(s, dialect, absl::StrCat("digit ", pass, " counted"));
  if (pass == 0) count.Index();
  count.Argument(kInt, "w", {.slot = kSortScratch, .written = true, .fresh = pass == 0 && !s.kept});
  Pass(s, pass, &count);
  count.Keeps(pass == 0 ? kKeepTilesText : kSkipUnchangedText);
  if (s.kept && pass == 0) count.Shared("changed", s.threads / 32);
  if (s.kept && pass > 0) count.MayStartEarly();
  count.Stands("RG_LEARN", s.kept && pass == 0 ? kLearnText : "");
  count.Text(kCountText);
  return count.End(s.blocks, s.threads);
}

SortLaunch PlaceLaunch(const IndexSort& s, int pass, Dialect dialect) {
  const bool last = pass + 1 == s.passes;
  Writer place(s, dialect, absl::StrCat("digit ", pass, " placed"));
  if (pass == 0) place.Index();
  if (last) {
    place.Argument(s.kept ? kInt : kConstInt, "w", {.slot = kSortScratch, .written = s.kept});
    place.Argument(kInt, "sorted", {.slot = kSortResult, .written = true, .fresh = !s.kept});
  } else {
    place.Argument(kInt, "w", {.slot = kSortScratch, .written = true});
  }
  Pass(s, pass, &place);
  place.Keeps(last ? kTellUnchangedText : kSkipUnchangedText);
  if (s.kept) place.MayStartEarly();
  place.Counters();
  for (absl::string_view name : {"bases", "firsts", "shifts"}) place.Shared(name, s.digits());
  for (absl::string_view name : {"held", "held_orders"}) place.Shared(name, s.part());
  place.Stands(kStarts, s.passes == 1 ? kDigitStartsText : "");
  place.Text(kPlaceText, last ? "sorted" : "w");
  return place.End(s.blocks, s.threads);
}

// Of a kept list whose other launches all ask what has changed.
SortLaunch ForgetLaunch(const IndexSort& s, Dialect dialect) {
  Writer forget(s, dialect, "changes forgotten");
  forget.Argument(kInt, "w", {.slot = kSortScratch, .written = true});
  forget.Constants({{"kForgetThreads", kStartsThreads}});
  forget.Keeps("");
  forget.StartsEarly();
  forget.Text(kForgetText);
  return forget.End(1, kStartsThreads);
}

// Rows of a block of the launch that looks for where rows begin.
int64_t RowsOfStartsBlock(const IndexSort& s) {
  int64_t rows = kStartsThreads;
  while (CeilDiv(s.sorted.pairs(), rows) > kMostStartsBlocks) rows *= 2;
  return rows;
}

SortLaunch StartsLaunch(const IndexSort& s, Dialect dialect) {
  const int64_t rows = RowsOfStartsBlock(s);
  const bool many = rows > kStartsThreads;
  Writer starts(s, dialect, "where rows begin");
  if (s.kept) starts.Argument(kInt, "w", {.slot = kSortScratch, .written = true});
  starts.Argument(kInt, "sorted", {.slot = kSortResult, .written = true});
  starts.Constants({{"kProbes", kProbes}, {"kStartsThreads", kStartsThreads}});
  if (many) {
    starts.Constants({{"kBlockRows", rows}, {"kNear", kNear}});
    starts.Shared("ends", 2);
  }
  starts.Keeps(kForgetAndSkipText);
  if (s.kept) {
    starts.Constants({{"kForgetThreads", kStartsThreads}});
    starts.MayStartEarly();
  }
  starts.Text(many ? kStartsOfManyText : kStartsText);
  return starts.End(CeilDiv(s.sorted.pairs(), rows), kStartsThreads);
}

std::vector<SortLaunch> Digits(const IndexSort& s, Dialect dialect) {
  std::vector<SortLaunch> launches;
  for (int pass = 0; pass < s.passes; ++pass) {
    launches.push_back(CountLaunch(s, pass, dialect));
    launches.push_back(PlaceLaunch(s, pass, dialect));
  }
  if (s.passes == 1) {
    if (s.kept) launches.push_back(ForgetLaunch(s, dialect));
    return launches;
  }
  launches.push_back(StartsLaunch(s, dialect));
  return launches;
}

// The sorts that have a launch `l`, those of which it is the same but for sizes next to each other.
std::vector<uint32_t> AlikeTogether(const std::vector<std::vector<SortLaunch>>& apart, size_t l) {
  std::vector<std::string> skeletons;
  std::vector<std::pair<size_t, uint32_t>> order;  // by the first of a skeleton
  for (uint32_t s = 0; s < apart.size(); ++s) {
    if (l >= apart[s].size()) continue;
    const std::string own = SkeletonOf(apart[s][l].kernel);
    const auto known = std::find(skeletons.begin(), skeletons.end(), own);
    order.emplace_back(static_cast<size_t>(known - skeletons.begin()), s);
    if (known == skeletons.end()) skeletons.push_back(own);
  }
  std::sort(order.begin(), order.end());
  std::vector<uint32_t> sorts;
  for (const auto& [skeleton, s] : order) sorts.push_back(s);
  return sorts;
}

}  // namespace

std::vector<SortLaunch> EmitIndexSorts(absl::Span<const IndexSort> sorts, Dialect dialect,
                                       bool direct) {
  std::vector<std::vector<SortLaunch>> apart;
  for (const IndexSort& sort : sorts) apart.push_back(EmitIndexSort(sort, dialect, direct));
  if (apart.size() == 1) return std::move(apart[0]);
  std::vector<SortLaunch> launches;
  const size_t most =
      std::max_element(apart.begin(), apart.end(), [](const auto& a, const auto& b) {
        return a.size() < b.size();
      })->size();
  for (size_t l = 0; l < most; ++l) {
    SortLaunch launch;
    std::vector<Kernel> kernels;
    std::vector<uint32_t> from;
    for (const uint32_t s : AlikeTogether(apart, l)) {
      kernels.push_back(apart[s][l].kernel);
      from.push_back(s);
      for (SortLaunch::Arg arg : apart[s][l].args) {
        arg.sort = static_cast<int>(s);
        launch.args.push_back(arg);
      }
    }
    // Where sizes vary, a table of them would make each size a kernel of its own.
    if (direct) ShareFunctions(kernels);
    launch.kernel =
        MergeKernels(kernels, from, absl::StrCat("// ", from.size(), " sorts in one launch\n"));
    launches.push_back(std::move(launch));
  }
  return launches;
}

std::vector<SortLaunch> EmitIndexSort(const IndexSort& sort, Dialect dialect, bool direct) {
  std::vector<SortLaunch> launches;
  switch (sort.way) {
    case SortWay::kOneLaunch: launches = OneLaunch(sort, dialect); break;
    case SortWay::kBuckets: launches = Buckets(sort, dialect); break;
    case SortWay::kDigits: launches = Digits(sort, dialect); break;
  }
  for (SortLaunch& launch : launches) {
    launch.kernel.direct = direct;
    NameKernel(&launch.kernel);
  }
  return launches;
}

}  // namespace retrograd
