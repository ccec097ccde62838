// Sorts of indices through the host dialect: each way, every access checked.
#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <numeric>
#include <random>

#include "codegen/sort/emit_index_sort.h"
#include "codegen/translation_unit.h"
#include "graph/ir/backward_graph.h"
#include "runtime/compiler/kernel_families.h"
#include "runtime/devices/host_device.h"
#include "runtime/ops/sort_indices/generated_sort.h"
#include "tests/catch.h"
#include "tests/support/kernels/gpu_compilers.h"
#include "tests/support/kernels/sorted_list.h"

namespace retrograd {
namespace {

Call SortCall(int64_t indices, int64_t rows, DType dtype, int64_t offset = 0) {
  const SortedIndices sorted{.rows = rows, .indices = indices};
  return {.op = Op::sort_indices,
          .operands = {{.value = {NodeId{0}, 0},
                        .offset = offset,
                        .shape = {indices},
                        .strides = {1},
                        .dtype = dtype}},
          .results = {{.value = {NodeId{1}, 0},
                       .shape = {sorted.elements()},
                       .strides = {1},
                       .dtype = DType::kInt32}},
          .attributes = {{"rows", rows}}};
}

// A device of warps of so many threads. It is shared, and what it keeps of compiled kernels with
// it.
Device& CheckingDevice(int warp) {
  static std::map<int, std::unique_ptr<Device>> devices;
  std::unique_ptr<Device>& device = devices[warp];
  if (device == nullptr) {
    HostDeviceOptions options;
    options.compile.check = true;
    options.compile.warp = warp;
    device = MakeHostDevice(options);
  }
  return *device;
}

template <typename T>
void Check(const std::vector<double>& indices, IndexSort sort, DType dtype, int64_t offset,
           int warp = 32) {
  INFO(indices.size() << " indices, " << sort.sorted.rows << " rows: " << Describe(sort));
  const auto count = static_cast<int64_t>(indices.size());
  const int64_t rows = sort.sorted.rows;
  const Call call = SortCall(count, rows, dtype, offset);
  sort.index_dtype = dtype;
  sort.index_offset = offset;
  Device* const device = &CheckingDevice(warp);
  auto loaded = LoadGeneratedSort(*device, call, sort);
  REQUIRE(loaded.status().ToString() == "OK");
  std::vector<T> list(offset, T{1} << 20);
  for (double i : indices) list.push_back(static_cast<T>(i));
  const SortedIndices sorted{.rows = rows, .indices = count};
  std::vector<int32_t> result(sorted.elements(), -7);
  auto scratch = device->Allocate(std::max<int64_t>((*loaded)->scratch_bytes(), 16));
  REQUIRE(scratch.ok());
  const void* operands[] = {list.data()};
  void* results[] = {result.data()};
  const absl::Status ran = (*loaded)->Run(0, {.operands = operands, .results = results}, *scratch);
  CHECK(ran.ToString() == "OK");
  device->Free(*scratch);
  const std::vector<double> wanted = SortedList(indices, rows);
  int64_t differ = 0;
  for (size_t i = 0; i < wanted.size(); ++i) differ += wanted[i] != result[i];
  CHECK(differ == 0);
}

// In every way that takes such lists.
void CheckAll(const std::vector<double>& indices, int64_t rows) {
  const auto count = static_cast<int64_t>(indices.size());
  for (const IndexSort& sort : IndexSortsFor({.rows = rows, .indices = count}, DType::kInt64)) {
    Check<int64_t>(indices, sort, DType::kInt64, 0);
    Check<int32_t>(indices, sort, DType::kInt32, 3);
  }
}

// From a little below the rows to a little above, some of them negative.
std::vector<double> Drawn(int64_t count, int64_t rows, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<double> indices;
  for (int64_t i = 0; i < count; ++i) {
    indices.push_back(static_cast<double>(random() % static_cast<uint64_t>(2 * rows + 4)) -
                      static_cast<double>(rows) - 2);
  }
  return indices;
}

struct Sizes {
  int64_t indices, rows;
};

IndexSort Chosen(const Sizes& s) {
  return IndexSortFor({.rows = s.rows, .indices = s.indices}, DType::kInt64);
}

TEST_CASE("sizes alone say how a list is sorted") {
  CHECK(Chosen({0, 5}).way == SortWay::kOneLaunch);
  CHECK(Chosen({4096, 30'720}).way == SortWay::kOneLaunch);
  CHECK(Chosen({4096, 1 << 20}).way == SortWay::kDigits);  // all blocks would go through too much
  CHECK(Chosen({4097, 30'720}).way == SortWay::kBuckets);
  CHECK(Chosen({200'000, 20'000}).way == SortWay::kBuckets);
  CHECK(Chosen({524'288, 65'534}).way == SortWay::kBuckets);
  CHECK(Chosen({524'289, 65'534}).way == SortWay::kDigits);  // too many parts
  CHECK(Chosen({400'384, 50'000}).way == SortWay::kBuckets);
  CHECK(Chosen({400'385, 50'000}).way == SortWay::kDigits);   // too many indices for a bucket
  CHECK(Chosen({200'000, 1 << 18}).way == SortWay::kDigits);  // too many rows for a bucket
  CHECK(Chosen({200'000, 195}).way == SortWay::kBuckets);
  CHECK(Chosen({200'000, 190}).way == SortWay::kDigits);
}

TEST_CASE("buckets and parts fit what a block holds") {
  const int64_t indices = GENERATE(4097, 33'000, 98'304, 200'000, 262'144, 262'145, 524'288);
  for (int64_t rows = 1; rows < 1 << 20; rows += 1 + rows / 7) {
    INFO(indices << " indices, " << rows << " rows");
    for (const IndexSort& s : IndexSortsFor({.rows = rows, .indices = indices}, DType::kInt64)) {
      if (s.way != SortWay::kBuckets) continue;
      CHECK(s.buckets * s.bucket_rows() >= s.sorted.pairs());
      CHECK(s.buckets <= s.threads);
      CHECK(s.bucket_rows() <= s.threads);
      CHECK(s.parts * s.part() >= indices);
      CHECK(s.parts <= kMostSortedParts);
      CHECK(s.part() <= 1 << 16);
      CHECK(indices <= 1 << 20);
      CHECK(2 * indices <= s.capacity() * s.buckets);
      CHECK(s.stretches * s.capacity() >= 2 * indices - s.capacity());
    }
  }
}

TEST_CASE("a digit is one launch less where there is one") {
  CHECK(Chosen({600'000, 50}).launches() == 2);
  CHECK(Chosen({600'000, 511}).launches() == 2);
  CHECK(Chosen({600'000, 512}).launches() == 5);
}

TEST_CASE("lists of a launch are sorted in every way") {
  const Sizes s = GENERATE(Sizes{0, 5}, Sizes{0, 0}, Sizes{3, 0}, Sizes{1, 1}, Sizes{7, 3},
                           Sizes{600, 65}, Sizes{4096, 1}, Sizes{4000, 7000});
  REQUIRE(Chosen(s).way == SortWay::kOneLaunch);
  CheckAll(Drawn(s.indices, s.rows, 3), s.rows);
}

TEST_CASE("lists of several parts are sorted in every way") {
  const Sizes s = GENERATE(Sizes{4097, 63}, Sizes{6145, 64}, Sizes{9000, 40}, Sizes{33'000, 300},
                           Sizes{20'003, 30'000});
  REQUIRE(Chosen(s).way == SortWay::kBuckets);
  CheckAll(Drawn(s.indices, s.rows, 4), s.rows);
}

TEST_CASE("lists of few rows and of many are sorted digit by digit") {
  const Sizes s = GENERATE(Sizes{33'000, 1}, Sizes{33'001, 7}, Sizes{3'000, 1'100'000});
  REQUIRE(Chosen(s).way == SortWay::kDigits);
  CheckAll(Drawn(s.indices, s.rows, 4), s.rows);
}

TEST_CASE("where each of many rows begins is found, however few of them are named") {
  const double row = GENERATE(-600'001.0, 0.0, 300'000.0, 599'999.0, 600'000.0);
  const IndexSort sort = IndexSortsFor({.rows = 600'000, .indices = 2'500}, DType::kInt64).back();
  REQUIRE(sort.way == SortWay::kDigits);
  const int warp = GENERATE(32, 64);
  Check<int64_t>(std::vector<double>(2'500, row), sort, DType::kInt64, 0, warp);
  Check<int64_t>(Drawn(2'500, 600'000, 8), sort, DType::kInt64, 0, warp);
}

TEST_CASE("blocks that have several tiles go on where the last one ended") {
  const IndexSort sort = Chosen({1'100'000, 50});
  CHECK(sort.tiles == 2);
  Check<int64_t>(Drawn(1'100'000, 50, 5), sort, DType::kInt64, 0);
}

TEST_CASE("parts of more indices are sorted by buckets") {
  const IndexSort sort = Chosen({262'145, 5'000});
  CHECK(sort.way == SortWay::kBuckets);
  CHECK(sort.part() == 4096);
  Check<int64_t>(Drawn(262'145, 5'000, 6), sort, DType::kInt64, 0);
}

TEST_CASE("sorted, reversed and equal indices are sorted") {
  const int64_t count = GENERATE(500, 9'001);
  std::vector<double> indices(count);
  std::iota(indices.begin(), indices.end(), 0);
  CheckAll(indices, count);
  std::reverse(indices.begin(), indices.end());
  CheckAll(indices, count);
  for (double row : {0.0, 11.0, 400.0, 499.0, 500.0}) {
    CheckAll(std::vector<double>(count, row), 500);
  }
}

// So many indices of one bucket, in stretches of 2048, among others.
TEST_CASE("a bucket of as many indices as a block holds, or more, is sorted in stretches") {
  const int64_t rows = 2000, count = 9000;
  const int64_t bucket_rows = Chosen({count, rows}).bucket_rows();
  REQUIRE(Chosen({count, rows}).way == SortWay::kBuckets);
  REQUIRE(bucket_rows > 1);
  const int64_t many = GENERATE(2047, 2048, 2049, 4096, 4097, 8999);
  INFO(many << " of " << count);
  std::mt19937_64 random(many);
  std::vector<double> indices;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t own = static_cast<int64_t>(random() % static_cast<uint64_t>(bucket_rows));
    const int64_t other = bucket_rows + i % (rows - bucket_rows);
    indices.push_back(static_cast<double>(i < many ? 5 * bucket_rows + own : other));
  }
  for (int64_t i = 0; i < count; ++i) {
    if (i >= many && indices[i] >= 5.0 * bucket_rows && indices[i] < 6.0 * bucket_rows) {
      indices[i] = 0;
    }
  }
  CheckAll(indices, rows);
  std::shuffle(indices.begin(), indices.end(), random);
  CheckAll(indices, rows);
}

TEST_CASE("several long buckets are sorted, the last of them of indices that name no row") {
  std::mt19937_64 random(8);
  std::vector<double> indices;
  for (int64_t i = 0; i < 14'000; ++i) {
    const uint64_t kind = random() % 4;
    indices.push_back(kind == 0 ? 3.0 : kind == 1 ? -9999.0 : kind == 2 ? 1234.0 : random() % 5000);
  }
  CheckAll(indices, 5000);
}

TEST_CASE("lists are sorted by wavefronts of 64 threads") {
  const Sizes s = GENERATE(Sizes{600, 65}, Sizes{9'000, 2'000});
  std::vector<double> skewed = Drawn(s.indices, s.rows, 9);
  std::fill(skewed.begin() + s.indices / 4, skewed.end() - s.indices / 8, 17);
  for (const std::vector<double>& indices : {Drawn(s.indices, s.rows, 8), skewed}) {
    for (const IndexSort& sort :
         IndexSortsFor({.rows = s.rows, .indices = s.indices}, DType::kInt64)) {
      Check<int64_t>(indices, sort, DType::kInt64, 0, 64);
    }
  }
}

// Sizes and indices drawn by a seed: rows of 1 to 2^20, indices evenly or most of them to few rows.
TEST_CASE("drawn lists are sorted in every way") {
  const uint64_t seed = GENERATE(range(1, 13));
  std::mt19937_64 random(seed);
  const int64_t rows = 1 + static_cast<int64_t>(random() % (uint64_t{1} << (1 + random() % 20)));
  const auto count = static_cast<int64_t>(random() % (uint64_t{1} << (5 + random() % 10)));
  const auto skew = static_cast<double>(1 + random() % 6);
  INFO("seed " << seed << ", " << count << " indices, " << rows << " rows, skew " << skew);
  std::vector<double> indices;
  for (int64_t i = 0; i < count; ++i) {
    const double unit = static_cast<double>(random() % 100'000) / 100'000;
    const double row = std::floor(std::pow(unit, skew) * static_cast<double>(rows + 2));
    indices.push_back(random() % 3 == 0 ? row - static_cast<double>(rows) : row);
  }
  CheckAll(indices, rows);
}

// --- kept lists

IndexSort Kept(IndexSort sort) {
  REQUIRE(KeptBytes(sort) > 0);
  sort.kept = true;
  return sort;
}

// A call that keeps its list, and how to run it on a device that checks it.
struct KeptCall {
  KeptCall(const IndexSort& sort, int warp = 32) : sort(sort), device(&CheckingDevice(warp)) {
    auto loaded = LoadGeneratedSort(
        *device, SortCall(sort.sorted.indices, sort.sorted.rows, DType::kInt64), sort);
    REQUIRE(loaded.status().ToString() == "OK");
    call = *std::move(loaded);
    REQUIRE(call->kept_results().size() == 1);
    REQUIRE(call->kept_results()[0] != nullptr);
    CHECK(call->kept_bytes() >= KeptBytes(sort));
    CHECK(call->scratch_bytes() == 0);
  }
  int32_t* list() const { return static_cast<int32_t*>(call->kept_results()[0]); }
  // The word of the first block that says whether its indices have changed.
  int32_t* changed() const {
    const int64_t words = SortScratchOf(sort).words;
    return list() - (words + 63) / 64 * 64 + SortScratchOf(sort).changed;
  }
  void Run(const std::vector<double>& indices) const {
    const std::vector<int64_t> given(indices.begin(), indices.end());
    const void* operands[] = {given.data()};
    void* results[] = {call->kept_results()[0]};
    CHECK(call->Run(0, {.operands = operands, .results = results}, nullptr).ToString() == "OK");
  }
  // How many words of the list are others than those of these indices.
  int64_t Differing(const std::vector<double>& indices) const {
    const std::vector<double> wanted = SortedList(indices, sort.sorted.rows);
    int64_t differ = 0;
    for (size_t i = 0; i < wanted.size(); ++i) differ += wanted[i] != list()[i];
    return differ;
  }

  IndexSort sort;
  Device* device;
  std::unique_ptr<LoadedCall> call;
};

// Some lists in a row: equal ones, a few indices changed, all of them, in and out of range.
std::vector<std::vector<double>> Lists(const Sizes& s, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::vector<double>> lists = {std::vector<double>(s.indices, 0.0)};
  lists.push_back(Drawn(s.indices, s.rows, seed));
  lists.push_back(lists.back());
  for (int changed : {1, 3}) {
    lists.push_back(lists.back());
    for (int i = 0; i < changed; ++i) {
      lists.back()[random() % lists.back().size()] = static_cast<double>(s.rows - 1);
    }
  }
  lists.push_back(lists[1]);
  lists.push_back(std::vector<double>(s.indices, static_cast<double>(s.rows / 2)));
  lists.push_back(std::vector<double>(s.indices, static_cast<double>(s.rows)));  // no row
  lists.push_back(lists.back());
  lists.push_back(Drawn(s.indices, s.rows, seed + 1));
  lists.push_back(lists.front());
  return lists;
}

TEST_CASE("a kept list is that of the last indices, whichever were before") {
  const Sizes s = GENERATE(Sizes{4097, 63}, Sizes{9'000, 2'000}, Sizes{33'000, 300},
                           Sizes{9'000, 1}, Sizes{6'000, 70'000});
  const int warp = GENERATE(32, 64);
  int ways = 0;
  for (const IndexSort& sort :
       IndexSortsFor({.rows = s.rows, .indices = s.indices}, DType::kInt64)) {
    if (KeptBytes(sort) == 0) continue;
    INFO(s.indices << " indices, " << s.rows << " rows: " << Describe(sort));
    ++ways;
    const KeptCall call(Kept(sort), warp);
    for (const std::vector<double>& indices : Lists(s, 12)) {
      call.Run(indices);
      CHECK(call.Differing(indices) == 0);
    }
  }
  CHECK(ways >= 1);
}

TEST_CASE("a kept list of several tiles a block is that of the last indices") {
  const Sizes s{1'100'000, 50};
  const KeptCall call(Kept(Chosen(s)));
  REQUIRE(call.sort.tiles == 2);
  std::vector<double> indices = Drawn(s.indices, s.rows, 5);
  for (int64_t changed : {0, 2047, 2048, 1'099'999}) {
    indices[changed] = indices[changed] == 7 ? 8 : 7;
    call.Run(indices);
    CHECK(call.Differing(indices) == 0);
  }
}

TEST_CASE(
    "a list of the indices of the last sort is left alone, and made again after one broken off") {
  const Sizes s = GENERATE(Sizes{9'000, 2'000}, Sizes{9'000, 300'000}, Sizes{9'000, 5});
  const std::vector<double> indices = Drawn(s.indices, s.rows, 2);
  const KeptCall call(Kept(Chosen(s)));
  INFO(Describe(call.sort));
  call.Run(indices);
  const auto elements = call.sort.sorted.elements();
  std::fill_n(call.list(), elements, -5);
  call.Run(indices);
  CHECK(std::count(call.list(), call.list() + elements, -5) == elements);
  *call.changed() = 1;  // a sort of other indices ended behind its first launch
  call.Run(indices);
  CHECK(call.Differing(indices) == 0);
  CHECK(*call.changed() == 0);
}

// --- sorts that share launches

// Calls of one kind with what they may hold from run to run.
struct SharedCalls {
  SharedCalls(const std::vector<Sizes>& sizes, bool kept) {
    for (const Sizes& s : sizes) calls.push_back(SortCall(s.indices, s.rows, DType::kInt64));
    for (const Call& call : calls) {
      facts.push_back({.most_kept_bytes = kept ? KeptBytes(IndexSortOf(call)) : 0});
    }
    for (size_t c = 0; c < calls.size(); ++c) expected.push_back({&calls[c], &facts[c], c > 0});
  }
  std::vector<Call> calls;
  std::vector<CallFacts> facts;
  std::vector<ExpectedCall> expected;
};

TEST_CASE("sorts that share launches make the lists of each alone") {
  const std::vector<Sizes> sizes =
      GENERATE(std::vector<Sizes>{{300, 40}, {7, 2'000}, {300, 40}},
               // By buckets, in three launches or two.
               std::vector<Sizes>{{4'096, 20'000},
                                  {500, 200},
                                  {4'096, 20'000},
                                  {4'096, 9'000},
                                  {4'000, 20'000},
                                  {4'096, 20'000}},
               std::vector<Sizes>{{9'000, 2'000}, {9'000, 2'000}, {5'001, 999}},
               std::vector<Sizes>{{33'000, 300'000}, {9'000, 270'000}});
  const bool kept = GENERATE(false, true);
  const bool direct = GENERATE(false, true);  // lists of different sizes share their functions
  const int warp = direct ? 32 : 64;
  INFO(sizes[0].indices << (kept ? ", kept, " : ", ") << (direct ? "direct" : ""));
  const SharedCalls shared(sizes, kept);
  Device& device = CheckingDevice(warp);
  auto loaded = LoadSharedSorts(device, shared.expected, direct);
  REQUIRE(loaded.status().ToString() == "OK");
  const bool keeps = kept && KeptBytes(IndexSortOf(shared.calls[0])) > 0;
  CHECK((*loaded)->kept_results().size() == (keeps ? sizes.size() : 0));
  auto scratch = device.Allocate(std::max<int64_t>((*loaded)->scratch_bytes(), 16));
  REQUIRE(scratch.ok());
  for (const uint64_t seed : {1, 1, 2}) {
    std::vector<std::vector<int64_t>> indices;
    std::vector<std::vector<int32_t>> lists;
    std::vector<const void*> operands;
    std::vector<void*> results;
    for (size_t c = 0; c < sizes.size(); ++c) {
      // One list stays as it is.
      const auto drawn = Drawn(sizes[c].indices, sizes[c].rows, c == 1 ? 5 : seed + c);
      indices.emplace_back(drawn.begin(), drawn.end());
      lists.emplace_back(SpanOf(shared.calls[c].results[0]), -7);
    }
    for (size_t c = 0; c < sizes.size(); ++c) {
      operands.push_back(indices[c].data());
      results.push_back(keeps ? (*loaded)->kept_results()[c] : lists[c].data());
    }
    const absl::Status ran =
        (*loaded)->Run(0, {.operands = operands, .results = absl::MakeSpan(results)}, *scratch);
    CHECK(ran.ToString() == "OK");
    for (size_t c = 0; c < sizes.size(); ++c) {
      const auto wanted = SortedList({indices[c].begin(), indices[c].end()}, sizes[c].rows);
      const int32_t* const made = static_cast<const int32_t*>(results[c]);
      int64_t differ = 0;
      for (size_t i = 0; i < wanted.size(); ++i) differ += wanted[i] != made[i];
      CHECK(differ == 0);
    }
  }
  device.Free(*scratch);
}

TEST_CASE("sorts that share launches keep all lists or none, and are one function where equal") {
  SharedCalls shared({{9'000, 2'000}, {9'000, 2'000}, {9'000, 2'000}}, /*kept=*/true);
  for (const IndexSort& sort : SharedSortsOf(shared.expected)) CHECK(sort.kept);
  shared.facts[1].most_kept_bytes = 0;
  const std::vector<IndexSort> sorts = SharedSortsOf(shared.expected);
  for (const IndexSort& sort : sorts) CHECK_FALSE(sort.kept);
  for (const SortLaunch& launch : EmitIndexSorts(sorts, Dialect::kCuda)) {
    CHECK(launch.kernel.members.size() == 1);
    CHECK(launch.kernel.runs.size() == 1);
    CHECK(launch.kernel.runs[0].count == 3);
    CHECK(launch.args.size() == static_cast<size_t>(launch.kernel.arguments));
  }
}

TEST_CASE("lists of different sizes are sorted by one function of a shared launch") {
  std::vector<Sizes> sizes;
  for (int64_t t = 0; t < 20; ++t) sizes.push_back({8'192 + t, 20'000 + 100 * t});
  sizes.push_back(sizes[3]);
  const SharedCalls shared(sizes, /*kept=*/false);
  const std::vector<IndexSort> sorts = SharedSortsOf(shared.expected);
  for (const SortLaunch& launch : EmitIndexSorts(sorts, Dialect::kCuda, /*direct=*/true)) {
    CHECK(launch.kernel.members.size() == 1);
    CHECK(launch.kernel.runs.size() == 1);
    CHECK(launch.args.size() == static_cast<size_t>(launch.kernel.arguments));
  }
  // Those whose sizes may vary keep theirs as numbers that a launch can hand over.
  CHECK(EmitIndexSorts(sorts, Dialect::kCuda)[0].kernel.members.size() == 20);
  // A list that no block finds too long has one launch less, and other texts.
  std::vector<Sizes> mixed(12, Sizes{4'096, 20'000});
  for (size_t t = 0; t < mixed.size(); ++t) mixed[t].rows += static_cast<int64_t>(t);
  mixed.insert(mixed.begin() + 5, Sizes{500, 300});
  const SharedCalls of_both(mixed, /*kept=*/false);
  const auto made = EmitIndexSorts(SharedSortsOf(of_both.expected), Dialect::kCuda, true);
  REQUIRE(made.size() == 3);
  CHECK(made[1].kernel.members.size() == 2);
  CHECK(made[2].kernel.members.size() == 1);
  for (const SortLaunch::Arg& arg : made[2].args) CHECK(arg.sort != 5);
}

TEST_CASE("sorts of two kinds share no launches") {
  const SharedCalls shared({{9'000, 2'000}, {9'000, 300'000}}, /*kept=*/false);
  const auto loaded = LoadSharedSorts(CheckingDevice(32), shared.expected);
  CHECK(absl::IsUnimplemented(loaded.status()));
  CHECK_THAT(std::string(loaded.status().message()),
             ContainsSubstring("sort_indices %0, 9000 into 2000 rows and 9000 into 300000 rows"));
}

TEST_CASE("lists of one launch go by buckets where all together would go through too much") {
  const IndexSort few = Chosen({4'096, 20'000}), wide = Chosen({500, 1'000'000});
  REQUIRE(few.way == SortWay::kOneLaunch);
  REQUIRE(wide.way == SortWay::kOneLaunch);
  CHECK(TogetherOf({few, few})[1].way == SortWay::kOneLaunch);
  const std::vector<IndexSort> many = TogetherOf(std::vector<IndexSort>(8, few));
  for (const IndexSort& sort : many) {
    CHECK(sort.way == SortWay::kBuckets);
    CHECK(sort.index_dtype == few.index_dtype);
  }
  std::vector<IndexSort> mixed(8, few);
  mixed.push_back(wide);  // too many rows for buckets
  CHECK(TogetherOf(mixed)[0].way == SortWay::kOneLaunch);
  const IndexSort by_buckets = Chosen({9'000, 2'000});
  CHECK(TogetherOf({by_buckets, by_buckets})[0].way == SortWay::kBuckets);
}

void CompilesShared(const GpuTarget& target) {
  for (const std::vector<Sizes>& sizes :
       {std::vector<Sizes>{{300, 40}, {7, 2'000}}, std::vector<Sizes>{{9'000, 2'000}, {5'001, 999}},
        std::vector<Sizes>{{33'000, 300'000}, {9'000, 270'000}}}) {
    for (const bool kept : {false, true}) {
      const SharedCalls shared(sizes, kept);
      std::vector<Kernel> kernels;
      for (const SortLaunch& launch :
           EmitIndexSorts(SharedSortsOf(shared.expected), target.dialect, /*direct=*/true)) {
        kernels.push_back(launch.kernel);
      }
      CheckCompiles(target, kernels, absl::StrCat(sizes[0].indices, kept ? ", kept" : ""));
    }
  }
}
RG_TEST_COMPILES("launches that sorts share compile", CompilesShared);

TEST_CASE("lists that one launch sorts are not kept, and others where there is room") {
  CHECK(KeptBytes(Chosen({4096, 30'720})) == 0);
  const Call call = SortCall(200'000, 20'000, DType::kInt64);
  const int64_t bytes = KeptBytes(IndexSortOf(call));
  CHECK(bytes >= 4 * 4 * 200'000);
  CHECK(bytes <= 4 * 4 * 200'000 + (1 << 20));
  CHECK(IndexSortOf(call, {.most_kept_bytes = bytes}).kept);
  CHECK_FALSE(IndexSortOf(call, {.most_kept_bytes = bytes - 1}).kept);
}

TEST_CASE("sorts of lists of about as many indices and rows share their kernels") {
  for (const std::vector<Sizes>& sizes :
       {std::vector<Sizes>{
            {200'000, 20'000}, {190'001, 18'003}, {180'010, 19'998}, {170'000, 17'001}},
        std::vector<Sizes>{{3'700, 900}, {3'999, 903}, {3'600, 777}, {3'605, 602}},
        std::vector<Sizes>{
            {910'001, 80'003}, {950'000, 70'001}, {990'000, 90'002}, {1'000'001, 66'000}}}) {
    KernelFamilies families;
    std::vector<std::vector<std::string>> served;
    for (const Sizes& s : sizes) {
      const int64_t program = families.NewProgram();
      served.emplace_back();
      for (const SortLaunch& launch : EmitIndexSort(Chosen(s), Dialect::kCuda)) {
        served.back().push_back(families.Lift(program, launch.kernel).kernel->name);
      }
    }
    CHECK(served[2] == served[3]);
  }
}

TEST_CASE("launches behind the first of a sort by buckets may start early") {
  const std::vector<SortLaunch> made = EmitIndexSort(Chosen({9000, 2000}), Dialect::kCuda);
  REQUIRE(made.size() == 3);
  for (const SortLaunch& launch : made) {
    CHECK(launch.kernel.starts_early);
    CHECK(launch.kernel.function.statements.find("RG_EARLY_START();") != std::string::npos);
  }
}

// Where an index has changed, they work for long: the next one's blocks take no room meanwhile.
TEST_CASE("launches behind the first of a kept sort by digits may start early, one at a time") {
  IndexSort sort = Chosen({600'000, 100'000});
  REQUIRE(sort.way == SortWay::kDigits);
  sort.kept = true;
  const std::vector<SortLaunch> made = EmitIndexSort(sort, Dialect::kCuda);
  REQUIRE(made.size() == 5);
  for (size_t i = 0; i < made.size(); ++i) {
    const std::string& text = made[i].kernel.function.statements;
    CHECK(made[i].kernel.starts_early == (i > 0));
    CHECK((text.find("RG_EARLY_WAIT();") != std::string::npos) == (i > 0));
    CHECK(text.find("RG_EARLY_START();") == std::string::npos);
  }
}

void CheckSorts(const GpuTarget& target) {
  for (const Sizes& s : {Sizes{600, 65}, Sizes{35'003, 3000}, Sizes{4096, 30'720},
                         Sizes{524'288, 100'000}, Sizes{600'000, 50}}) {
    for (DType dtype : {DType::kInt32, DType::kInt64}) {
      for (const IndexSort& sort : IndexSortsFor({.rows = s.rows, .indices = s.indices}, dtype)) {
        std::vector<Kernel> kernels;
        for (bool kept : {false, true}) {
          if (kept && KeptBytes(sort) == 0) continue;
          IndexSort made = sort;
          made.kept = kept;
          for (const SortLaunch& launch :
               EmitIndexSort(made, target.dialect, dtype == DType::kInt32)) {
            INFO(Describe(sort));
            CHECK(launch.kernel.shared_bytes <= 48 << 10);
            kernels.push_back(launch.kernel);
          }
        }
        CheckCompiles(target, kernels, std::string(Describe(sort)));
      }
    }
  }
}

RG_TEST_COMPILES("sorts compile", CheckSorts);

}  // namespace
}  // namespace retrograd
