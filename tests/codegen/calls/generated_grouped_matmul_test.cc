// grouped_matmul's kernels on the host with every access checked, against the reference evaluator;
// and whether the GPU compilers take them.
#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "codegen/grouped_matmul/emit_grouped_matmul.h"
#include "fusion/kernel/ir/scale.h"
#include "graph/base/rounding.h"
#include "runtime/devices/host_device.h"
#include "runtime/host/host_numbers.h"
#include "runtime/ops/grouped_matmul/generated_grouped_matmul.h"
#include "tests/catch.h"
#include "tests/support/call_memory.h"
#include "tests/support/call_reference.h"
#include "tests/support/kernels/gpu_compilers.h"

namespace retrograd {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

struct Case {
  bool sums = false;  // in groups, else the rows are
  int64_t m = 1, n = 1, k = 1;
  std::vector<int32_t> ends;
  DType in = DType::kBf16, out = DType::kBf16;
  bool a_down = false, b_down = false, d_down = false;  // columns of unit stride
  int64_t gap = 0;         // elements between one line of a matrix and the next
  int64_t offset = 0;      // elements, of each tensor
  int64_t alignment = 16;  // bytes that are known to divide addresses
  bool scaled = false;
  bool adds = false;                               // to what is there
  int64_t block = 0;                               // terms that have scales of their own
  bool row_blocks = false, column_blocks = false;  // so many rows or columns have one
};

std::vector<int64_t> StridesOf(const Shape& shape, bool down, int64_t gap) {
  const size_t rank = shape.size();
  std::vector<int64_t> strides(rank);
  const int64_t line = shape[rank - (down ? 2 : 1)] + gap;
  strides[rank - 1] = down ? line : 1;
  strides[rank - 2] = down ? 1 : line;
  if (rank == 3) strides[0] = line * shape[down ? 2 : 1];
  return strides;
}

Call CallOf(const Case& c) {
  const auto groups = static_cast<int64_t>(c.ends.size());
  const Shape a = {c.m, c.k};
  const Shape b = c.sums ? Shape{c.k, c.n} : Shape{groups, c.k, c.n};
  const Shape d = c.sums ? Shape{groups, c.m, c.n} : Shape{c.m, c.n};
  const auto tensor = [&](const Shape& shape, bool down, DType dtype) {
    return CallTensor{.offset = c.offset,
                      .shape = shape,
                      .strides = StridesOf(shape, down, c.gap),
                      .dtype = dtype};
  };
  Call call = {
      .op = Op::grouped_matmul,
      .operands = {tensor(a, c.a_down, c.in),
                   tensor(b, c.b_down, c.in),
                   {.offset = c.offset, .shape = {groups}, .strides = {1}, .dtype = DType::kInt32}},
      .results = {tensor(d, c.d_down, c.out)}};
  if (c.adds) call.previous = ValueId{};
  if (!c.scaled) return call;
  const DType scale = c.out == DType::kFp64 ? c.out : DType::kFp32;
  if (c.block > 0) {
    const int64_t terms = CeilDiv(c.k, c.block);
    const auto lines = [&](bool blocks, int64_t n) { return blocks ? CeilDiv(n, c.block) : n; };
    call.attributes.Set("scale_block", c.block);
    call.operands.push_back(tensor({lines(c.row_blocks, c.m), terms}, c.b_down, scale));
    call.operands.push_back(tensor(
        {c.sums ? int64_t{1} : groups, terms, lines(c.column_blocks, c.n)}, c.a_down, scale));
    return call;
  }
  call.operands.push_back(
      c.sums ? tensor({groups, c.m}, c.b_down, scale)
             : CallTensor{.offset = c.offset, .shape = {c.m}, .strides = {1}, .dtype = scale});
  call.operands.push_back(tensor({groups, c.n}, c.a_down, scale));
  return call;
}

// What a result is added to, by its element.
double Previous(int64_t element) { return static_cast<double>(element % 5) - 2; }

// Row-major values of a, b and the ends.
using Operands = std::vector<std::vector<double>>;

// Small integers, whose products add up without rounding in fp32; and NaN wherever no group is.
Operands Drawn(const Case& c, uint64_t seed) {
  std::mt19937_64 random(seed);
  const Call call = CallOf(c);
  Operands values(3);
  for (int o = 0; o < 2; ++o) {
    values[o].resize(Elements(call.operands[o].shape));
    for (double& v : values[o]) v = static_cast<double>(random() % 7) - 3;
  }
  values[2].assign(c.ends.begin(), c.ends.end());
  for (size_t o = 3; o < call.operands.size(); ++o) {  // exact: powers of two
    values.emplace_back(Elements(call.operands[o].shape));
    for (double& v : values[o]) v = std::ldexp(1.0, static_cast<int>(random() % 5) - 2);
  }
  int64_t last = 0;
  for (int32_t end : c.ends) last = std::max<int64_t>(last, end);
  for (int64_t i = 0; i < c.m; ++i) {
    for (int64_t j = 0; j < c.k; ++j) {
      if ((c.sums ? j : i) >= last) values[0][i * c.k + j] = kNan;
    }
  }
  for (int64_t i = last; c.scaled && c.block == 0 && !c.sums && i < c.m; ++i) values[3][i] = kNan;
  if (c.sums) {
    for (int64_t i = last; i < c.k; ++i) {
      for (int64_t j = 0; j < c.n; ++j) values[1][i * c.n + j] = kNan;
    }
  }
  return values;
}

std::vector<double> Reference(const Call& call, const Operands& values) {
  std::vector<double> wanted = EvaluateCall(call, values);
  for (size_t e = 0; call.previous && e < wanted.size(); ++e) {
    wanted[e] += Previous(static_cast<int64_t>(e));
  }
  RoundTo(call.results[0].dtype, absl::MakeSpan(wanted));
  return wanted;
}

std::vector<double> Run(LoadedCall& loaded, const Call& call, const Case& c,
                        const Operands& values) {
  std::vector<CallMemory> memory;
  std::vector<const void*> operands;
  for (size_t o = 0; o < call.operands.size(); ++o) {
    const CallTensor& t = call.operands[o];
    memory.emplace_back(t, c.alignment);
    operands.push_back(memory.back().data());
    const bool floating = WithFloatType(t.dtype, [&](auto* type) {
      auto* const data = static_cast<decltype(type)>(memory.back().data());
      for (int64_t i = 0; i < SpanOf(t); ++i) StoreAs(data, i, kNan);
      ForElements(t, [&](int64_t e, int64_t at) { StoreAs(data, at, values[o][e]); });
    });
    if (floating) continue;
    auto* const data = static_cast<int32_t*>(memory.back().data());
    for (int64_t i = 0; i < t.shape[0]; ++i) {
      data[t.offset + i] = static_cast<int32_t>(values[o][i]);
    }
  }
  const CallTensor& d = call.results[0];
  CallMemory result(d, c.alignment);
  std::vector<double> dense(Elements(d.shape));
  WithFloatType(d.dtype, [&](auto* type) {
    auto* const data = static_cast<decltype(type)>(result.data());
    std::vector<bool> touched(SpanOf(d));
    for (int64_t i = 0; i < SpanOf(d); ++i) StoreAs(data, i, 77.0);
    if (call.previous) {
      ForElements(d, [&](int64_t e, int64_t at) { StoreAs(data, at, Previous(e)); });
    }
    void* const results[] = {data};
    REQUIRE(loaded.Run(0, {operands, results}, nullptr).ToString() == "OK");
    ForElements(d, [&](int64_t e, int64_t at) {
      dense[e] = LoadAs<double>(data, at);
      touched[at] = true;
    });
    for (int64_t i = 0; i < SpanOf(d); ++i) {
      REQUIRE((touched[i] || LoadAs<double>(data, i) == 77.0));
    }
  });
  return dense;
}

// Any tile serves any call.
GroupedTile TileOf(int rows, int columns, int warp_rows, int warp_columns, DType dtype) {
  return {.rows = rows,
          .columns = columns,
          .depth = std::max<int>(64 / static_cast<int>(SizeBytes(dtype)), 16),
          .stages = 3,
          .warp_rows = warp_rows,
          .warp_columns = warp_columns};
}

std::unique_ptr<LoadedCall> LoadedFor(Device& device, const Call& call, const CallFacts& facts,
                                      const GroupedTile& tile) {
  if (Elements(call.results[0].shape) == 0) {
    auto nothing = LoadGeneratedGroupedMatMul(device, call, facts);
    REQUIRE(nothing.status().ToString() == "OK");
    return *std::move(nothing);
  }
  auto made = LaunchByWarps(call, facts, tile, device.dialect(), device.Describe().warp);
  REQUIRE(made.status().ToString() == "OK");
  auto loaded = LoadGroupedMatMulLaunch(device, *made);
  REQUIRE(loaded.status().ToString() == "OK");
  return *std::move(loaded);
}

void Check(const Case& c, uint64_t seed = 1) {
  INFO((c.sums ? "sums" : "rows") << " in groups, " << c.m << "x" << c.n << "x" << c.k << " "
                                  << Name(c.in) << " into " << Name(c.out)
                                  << (c.scaled ? ", scaled" : "") << " by blocks of " << c.block
                                  << " " << c.row_blocks << c.column_blocks
                                  << (c.adds ? ", adds" : "") << ", ends "
                                  << absl::StrJoin(c.ends, " ") << ", down " << c.a_down << c.b_down
                                  << c.d_down << ", gap " << c.gap << ", offset " << c.offset
                                  << ", alignment " << c.alignment << ", seed " << seed);
  HostDeviceOptions options;
  options.compile.check = true;
  options.compile.warp = seed % 3 == 0 ? 64 : 32;
  const std::unique_ptr<Device> device = MakeHostDevice(options);
  const Call call = CallOf(c);
  const Operands values = Drawn(c, seed);
  const std::vector<double> wanted = Reference(call, values);
  const CallFacts facts = {
      .operand_alignment = std::vector<int64_t>(call.operands.size(), c.alignment),
      .result_alignment = {c.alignment}};
  const bool wide = seed % 8 == 0;
  const GroupedTile tile = wide            ? TileOf(128, 128, 4, 2, c.in)
                           : seed % 2 == 0 ? TileOf(64, 64, 2, 2, c.in)
                                           : TileOf(32, 32, 1, 1, c.in);
  const std::unique_ptr<LoadedCall> loaded = LoadedFor(*device, call, facts, tile);
  const std::vector<double> ours = Run(*loaded, call, c, values);
  for (size_t i = 0; i < wanted.size(); ++i) {
    INFO("element " << i);
    REQUIRE(ours[i] == wanted[i]);
  }
}

// Of both forms, in the layouts that a backward of x.w has them.
void CheckGroups(const std::vector<int32_t>& ends, int64_t places, DType dtype = DType::kBf16) {
  Case c{.m = places, .n = 24, .k = 40, .ends = ends, .in = dtype, .out = dtype};
  Check(c, 1);
  c.b_down = true;
  Check(c, 2);
  Case sums{.sums = true, .m = 40, .n = 24, .k = places, .ends = ends, .in = dtype, .out = dtype};
  sums.a_down = true;
  Check(sums, 1);
  sums.d_down = true;
  Check(sums, 2);
}

TEST_CASE("groups of any sizes are multiplied") {
  CheckGroups({40, 70, 100}, 100);
  CheckGroups({100}, 100);                // one group
  CheckGroups({0, 50, 100}, 100);         // the first is empty
  CheckGroups({50, 100, 100}, 100);       // the last is empty
  CheckGroups({0, 0, 0}, 50);             // all are
  CheckGroups({0, 0, 64, 64, 64}, 64);    // one has all
  CheckGroups({31, 32, 33, 65, 66}, 66);  // of one row, beside ends of tiles
  CheckGroups({7, 20, 21}, 45);           // rows behind the last group
  CheckGroups({33, 67}, 90, DType::kFp32);
}

TEST_CASE("more groups than are looked up at once") {
  std::vector<int32_t> ends;
  for (int g = 0; g < 35; ++g) ends.push_back(g / 3 * 5);
  CheckGroups(ends, 61);
}

TEST_CASE("whatever the ends say, nothing outside is touched") {
  constexpr int32_t kLeast = std::numeric_limits<int32_t>::min();
  constexpr int32_t kMost = std::numeric_limits<int32_t>::max();
  CheckGroups({40, 20, 60}, 60);
  CheckGroups({-5, kLeast, 30, -1, 50}, 50);
  CheckGroups({kMost, 10, kMost}, 40);
  CheckGroups({20, kMost, kLeast, 30}, 40);
}

TEST_CASE("matrices of any layout, type and alignment are multiplied") {
  constexpr DType kTypes[] = {DType::kBf16,        DType::kFp16,       DType::kFp32,
                              DType::kFp64,        DType::kFp8E4M3,    DType::kFp8E5M2,
                              DType::kFp8E4M3Fnuz, DType::kFp8E5M2Fnuz};
  constexpr int64_t kExtents[] = {1, 2, 3, 8, 17, 36, 48, 65, 80, 130};
  for (uint64_t seed = 1; seed <= 64; ++seed) {
    std::mt19937_64 random(seed);
    const auto any = [&](int64_t most) { return static_cast<int64_t>(random() % (most + 1)); };
    Case c{.sums = any(1) == 1};
    c.m = kExtents[any(9)], c.n = kExtents[any(9)], c.k = kExtents[any(9)];
    c.in = kTypes[seed % std::size(kTypes)];
    c.out = c.in == DType::kFp64 || any(1) == 0 ? c.in : DType::kFp32;
    if (IsFp8(c.out)) c.out = any(1) == 0 ? DType::kBf16 : DType::kFp64;
    c.scaled = IsFp8(c.in) || any(2) == 0;
    c.adds = any(3) == 0;
    c.a_down = any(1) == 1, c.b_down = any(1) == 1, c.d_down = any(2) == 0;
    if (any(2) == 0) c.gap = 4 * any(2) + any(1);
    if (any(2) == 0) c.offset = 4 * any(4) + any(1);
    const bool fp64 = c.in == DType::kFp64 || c.out == DType::kFp64;
    if (any(3) == 0) c.alignment = SizeBytes(fp64 ? DType::kFp64 : DType::kFp32);
    const int64_t places = c.sums ? c.k : c.m;
    for (int64_t g = any(5) + 1; g > 0; --g) {
      c.ends.push_back(static_cast<int32_t>(any(places + 2) - 1));
    }
    if (any(3) > 0) std::sort(c.ends.begin(), c.ends.end());
    INFO("seed " << seed);
    Check(c, seed);
  }
}

TEST_CASE("blocks of terms with scales of their own are scaled before they are added up") {
  constexpr DType kTypes[] = {DType::kFp8E4M3, DType::kBf16, DType::kFp32, DType::kFp8E5M2Fnuz};
  constexpr int64_t kExtents[] = {1, 8, 17, 64, 80, 130, 200};
  for (uint64_t seed = 1; seed <= 48; ++seed) {
    std::mt19937_64 random(seed);
    const auto any = [&](int64_t most) { return static_cast<int64_t>(random() % (most + 1)); };
    Case c{.sums = any(1) == 1, .scaled = true};
    c.m = kExtents[any(6)], c.n = kExtents[any(6)], c.k = kExtents[any(6)];
    c.in = kTypes[seed % std::size(kTypes)];
    c.out = any(1) == 0 ? DType::kFp32 : IsFp8(c.in) ? DType::kBf16 : c.in;
    c.block = 64 * (1 + any(1));
    c.row_blocks = any(1) == 1, c.column_blocks = any(1) == 1;
    c.a_down = any(1) == 1, c.b_down = any(1) == 1, c.d_down = any(2) == 0;
    c.adds = any(3) == 0;
    if (any(2) == 0) c.gap = 4 * any(2);
    if (any(2) == 0) c.offset = 4 * any(4);
    const int64_t places = c.sums ? c.k : c.m;
    for (int64_t g = any(4) + 1; g > 0; --g) {
      c.ends.push_back(static_cast<int32_t>(any(places + 2) - 1));
    }
    if (any(3) > 0) std::sort(c.ends.begin(), c.ends.end());
    INFO("seed " << seed);
    Check(c, seed);
  }
}

TEST_CASE("a step has terms of one block") {
  for (const DType dtype : {DType::kFp8E4M3, DType::kBf16, DType::kFp32}) {
    for (const int64_t block : {16, 48, 80, 128, 1024}) {
      Case c{.m = 512, .n = 512, .k = 2048, .ends = {512}, .in = dtype, .out = DType::kFp32};
      c.scaled = true, c.block = block;
      const GroupedTile tile = GroupedTileFor(GroupedMatMulOf(CallOf(c)), {.sms = 132});
      CHECK(tile.depth >= 16);
      CHECK(block % tile.depth == 0);
    }
  }
}

TEST_CASE("a product without terms is zeros, one without elements nothing") {
  Check({.m = 20, .n = 16, .k = 0, .ends = {5, 20}});
  Check({.sums = true, .m = 20, .n = 16, .k = 0, .ends = {0, 0}});
  Check({.m = 0, .n = 16, .k = 8, .ends = {0}});
  Check({.sums = true, .m = 20, .n = 0, .k = 8, .ends = {8}});
  Check({.m = 20, .n = 16, .k = 8});  // no group: all rows are behind the last
}

GroupedMatMulCall Even(bool sums, int64_t groups, int64_t m, int64_t n, int64_t k, DType dtype) {
  Case c{.sums = sums, .m = m, .n = n, .k = k, .in = dtype, .out = dtype};
  c.ends.resize(groups);
  return GroupedMatMulOf(CallOf(c));
}

TEST_CASE("a tile fits what a block may have and the sizes of groups") {
  for (const DType dtype : {DType::kBf16, DType::kFp32, DType::kFp64}) {
    for (const bool sums : {false, true}) {
      for (const int64_t groups : {1, 8, 256}) {
        for (const int64_t bytes : {64 << 10, 99 << 10}) {
          const GroupedMatMulCall call = Even(sums, groups, 4096, 1024, 4096, dtype);
          const GroupedTile tile = GroupedTileFor(call, {.sms = 132, .shared_bytes = bytes});
          INFO(tile.Print() << ", " << bytes << " bytes");
          CHECK(SharedBytes(tile, call) <= bytes);
        }
      }
    }
  }
  constexpr GroupedLimits kLimits = {.sms = 132, .shared_bytes = 99 << 10};
  const auto rows = [&](int64_t groups) {
    return GroupedTileFor(Even(false, groups, 8192, 4096, 1024, DType::kBf16), kLimits).rows;
  };
  CHECK(rows(8) == 128);
  CHECK(rows(256) == 32);
}

TEST_CASE("there are as many blocks as groups of any sizes have tiles") {
  const GroupedTile tile;  // 64 x 64
  // 130 rows: a group of 1, one of 65, and 64 behind the last; 100 columns.
  CHECK(BlocksOf(tile, Even(false, 2, 130, 100, 8, DType::kBf16)) >= 2 * (1 + 2 + 1));
  CHECK(BlocksOf(tile, Even(false, 1000, 3, 100, 8, DType::kBf16)) == 2 * 3);
  CHECK(BlocksOf(tile, Even(true, 5, 130, 100, 8, DType::kBf16)) == 5 * 3 * 2);
}

TEST_CASE("what the kernels do not take is refused by name") {
  const auto refusal = [](const GroupedMatMulCall& call) {
    return std::string(GroupedMatMulRefusal(call).message());
  };
  GroupedMatMulCall call = Even(false, 2, 64, 64, 64, DType::kBf16);
  CHECK(refusal(call).empty());
  call.out_dtype = DType::kFp64;
  CHECK(refusal(call).empty());
  call.in_dtype = DType::kFp64;
  call.out_dtype = DType::kFp32;
  CHECK_THAT(refusal(call), ContainsSubstring("sums in fp64 as fp64"));
  call = Even(false, 2, int64_t{1} << 30, 64, 64, DType::kBf16);
  CHECK_THAT(refusal(call), ContainsSubstring("extents of less than 2^30"));
}

void CheckKernel(const GpuTarget& target, const Case& c) {
  const GroupedLimits limits = GroupedMatMulLimits(target.dialect, {.sms = 100});
  const GroupedMatMulCall call = GroupedMatMulOf(CallOf(c));
  const GroupedTile tile = GroupedTileFor(call, limits);
  const LaunchWriter::Launch made =
      EmitGroupedMatMul(call, tile, GroupedVectorsFor(call, {.a = 16, .b = 16, .d = 16}),
                        target.dialect, target.warp);
  CHECK(made.kernel.staged_bytes <= limits.shared_bytes);
  CheckCompiles(target, {made.kernel},
                absl::StrCat(c.sums ? "sums" : "rows", " in groups, ", c.m, " ", Name(c.in),
                             ", blocks of ", c.block, ", ", tile.Print()));
}

void CheckGroups(const GpuTarget& target) {
  constexpr int64_t kExtents[] = {4096, 33, 96};
  size_t next = 0;
  for (const DType dtype : {DType::kBf16, DType::kFp16, DType::kFp32, DType::kFp64}) {
    for (const bool sums : {false, true}) {
      const int64_t extent = kExtents[next++ % 3];
      Case c{.sums = sums, .m = extent, .n = extent, .k = extent, .in = dtype, .out = dtype};
      c.ends.resize(9);
      c.a_down = sums, c.b_down = extent == 96, c.d_down = extent == 33;
      c.adds = extent == 96;
      if (sums && SizeBytes(dtype) == 2) c.out = DType::kFp32;
      CheckKernel(target, c);
    }
  }
}

void CheckBlocks(const GpuTarget& target) {
  for (const DType dtype : {DType::kFp8E4M3, DType::kBf16, DType::kFp8E4M3Fnuz}) {
    for (const bool sums : {false, true}) {
      Case c{.sums = sums, .m = 4096, .n = 520, .k = 1024, .in = dtype, .out = DType::kBf16};
      c.ends.resize(9);
      c.b_down = !sums, c.a_down = sums && dtype == DType::kBf16;
      c.scaled = true, c.block = 128, c.column_blocks = !sums;
      CheckKernel(target, c);
    }
  }
}

RG_TEST_COMPILES("groups' kernels compile", CheckGroups);
RG_TEST_COMPILES("kernels of blocks with scales of their own compile", CheckBlocks);

}  // namespace
}  // namespace retrograd
