// Grouped matmuls by warpgroups: which calls they take, how their launches are described, and
// whether NVRTC takes them. Only a GPU can run them: python/tests/ops/test_mixture_of_experts.py
// does where there is one, and bench/ops.py.
#include <algorithm>

#include "absl/strings/match.h"
#include "codegen/grouped_matmul/emit_grouped_matmul.h"
#include "codegen/grouped_matmul/emit_grouped_multiplier.h"
#include "codegen/print/kernel_text.h"
#include "fusion/kernel/ir/scale.h"
#include "runtime/compiler/rtc.h"
#include "runtime/ops/grouped_matmul/grouped_matmul_launch.h"
#include "runtime/ops/grouped_matmul/tuned_grouped_matmul.h"
#include "tests/catch.h"

namespace retrograd {
namespace {

struct Case {
  bool sums = false;  // in groups, else the rows are
  int64_t groups = 5, m = 512, n = 256, k = 1024;
  DType in = DType::kBf16, out = DType::kBf16;
  bool a_down = false, b_down = false, d_down = false;  // columns of unit stride
  bool scaled = false, adds = false;
  int64_t block = 0;                               // terms that have scales of their own
  bool row_blocks = false, column_blocks = false;  // so many rows or columns have one
};

CallTensor Tensor(const Shape& shape, bool down, DType dtype) {
  const size_t rank = shape.size();
  CallTensor t{.shape = shape, .strides = std::vector<int64_t>(rank), .dtype = dtype};
  t.strides[rank - 1] = down ? shape[rank - 2] : 1;
  t.strides[rank - 2] = down ? 1 : shape[rank - 1];
  if (rank == 3) t.strides[0] = shape[1] * shape[2];
  return t;
}

Call CallOf(const Case& c) {
  const Shape b = c.sums ? Shape{c.k, c.n} : Shape{c.groups, c.k, c.n};
  const Shape d = c.sums ? Shape{c.groups, c.m, c.n} : Shape{c.m, c.n};
  Call call = {.op = Op::grouped_matmul,
               .operands = {Tensor({c.m, c.k}, c.a_down, c.in),
                            Tensor(b, c.b_down, c.in),
                            {.shape = {c.groups}, .strides = {1}, .dtype = DType::kInt32}},
               .results = {Tensor(d, c.d_down, c.out)}};
  if (c.adds) call.previous = ValueId{};
  if (!c.scaled) return call;
  if (c.block > 0) {
    const auto blocks = [&](int64_t n) { return CeilDiv(n, c.block); };
    const int64_t terms = blocks(c.k);
    call.attributes.Set("scale_block", c.block);
    call.operands.push_back(Tensor({c.row_blocks ? blocks(c.m) : c.m, terms}, true, DType::kFp32));
    const int64_t columns = c.column_blocks ? blocks(c.n) : c.n;
    call.operands.push_back(
        Tensor({c.sums ? int64_t{1} : c.groups, terms, columns}, false, DType::kFp32));
    return call;
  }
  const CallTensor list = {.shape = {c.m}, .strides = {1}};
  call.operands.push_back(c.sums ? Tensor({c.groups, c.m}, false, DType::kFp32) : list);
  call.operands.push_back(Tensor({c.groups, c.n}, false, DType::kFp32));
  return call;
}

// Of fp8 both operands lie along the sum.
Case Fp8(bool sums, DType dtype = DType::kFp8E4M3) {
  return {.sums = sums, .in = dtype, .b_down = true, .scaled = true};
}

constexpr GroupedAlignments kAligned = {.a = 16, .b = 16, .d = 16};
const CallFacts kFacts = {.operand_alignment = {16, 16, 4, 4, 4}, .result_alignment = {16}};
constexpr GroupedLimits kHopper = {.sms = 132, .shared_bytes = 227 << 10};

std::string WhyNot(const Case& c, const GroupedAlignments& known = kAligned) {
  return WhyNoMultiplier(GroupedMatMulOf(CallOf(c)), known);
}

TEST_CASE("warpgroups take products of 16 bits whose lines the copy engine can load") {
  CHECK(WhyNot({}).empty());
  CHECK(WhyNot({.sums = true, .a_down = true}).empty());
  CHECK(WhyNot({.k = 40, .in = DType::kFp16, .out = DType::kFp16, .b_down = true}).empty());
  CHECK_THAT(WhyNot({.in = DType::kFp32, .out = DType::kFp32}), ContainsSubstring("16 bits"));
  CHECK_THAT(WhyNot({.out = DType::kFp16}), ContainsSubstring("16 bits"));
  CHECK(WhyNot(Fp8(false)).empty());
  CHECK_THAT(WhyNot(Fp8(false, DType::kFp8E4M3Fnuz)), ContainsSubstring("or fp8"));
  CHECK_THAT(WhyNot(Fp8(true, DType::kFp8E5M2Fnuz)), ContainsSubstring("or fp8"));
  CHECK_THAT(WhyNot({.out = DType::kFp64}), ContainsSubstring("16 bits"));
  CHECK_THAT(WhyNot({.k = 36}), ContainsSubstring("an operand's lines"));
  CHECK_THAT(WhyNot({.a_down = true}), ContainsSubstring("begin anywhere"));
  CHECK_THAT(WhyNot({.n = 36, .b_down = true}), ContainsSubstring("the result's rows"));
  CHECK_THAT(WhyNot({.d_down = true}), ContainsSubstring("the result's rows"));
  CHECK_THAT(WhyNot({.k = 0}), ContainsSubstring("no elements"));
  CHECK_THAT(WhyNot({.groups = 0}), ContainsSubstring("no elements"));
  CHECK_THAT(WhyNot({}, {.a = 16, .b = 8, .d = 16}), ContainsSubstring("an operand's lines"));
  CHECK_THAT(WhyNot({}, {.a = 16, .b = 16, .d = 2}), ContainsSubstring("the result's rows"));
}

TEST_CASE("warpgroups store sums of fp32 by packs of four") {
  CHECK(WhyNot({.out = DType::kFp32}).empty());
  CHECK(WhyNot({.sums = true, .in = DType::kFp16, .out = DType::kFp32, .a_down = true}).empty());
  CHECK(WhyNot({.n = 36, .out = DType::kFp32, .b_down = true}).empty());
  CHECK_THAT(WhyNot({.n = 38, .out = DType::kFp32, .b_down = true}),
             ContainsSubstring("the result's rows"));
  CHECK_THAT(WhyNot({.out = DType::kFp32}, {.a = 16, .b = 16, .d = 8}),
             ContainsSubstring("the result's rows"));
}

TEST_CASE("warpgroups take products of fp8 that lie along the sum, into 16 bits and fp32") {
  for (const bool sums : {false, true}) {
    CHECK(WhyNot(Fp8(sums)).empty());
    CHECK(WhyNot(Fp8(sums, DType::kFp8E5M2)).empty());
    Case c = Fp8(sums);
    c.b_down = false;
    CHECK_THAT(WhyNot(c), ContainsSubstring("along the sum"));
    c = Fp8(sums);
    c.a_down = true;
    CHECK_THAT(WhyNot(c), ContainsSubstring("along the sum"));
    c = Fp8(sums);
    c.out = DType::kFp32;
    CHECK(WhyNot(c).empty());
    c.out = DType::kFp64;
    CHECK_THAT(WhyNot(c), ContainsSubstring("16 bits"));
    c = Fp8(sums);
    c.k = 1032;
    CHECK_THAT(WhyNot(c), ContainsSubstring("an operand's lines"));
  }
}

// Rows by 1 x 128, experts by 128 x 128; of sums both by 1 x 128.
Case Blocks(bool sums, DType dtype = DType::kFp8E4M3) {
  Case c = Fp8(sums, dtype);
  c.block = 128, c.column_blocks = !sums;
  return c;
}

TEST_CASE("warpgroups take blocks of whole steps") {
  for (const bool sums : {false, true}) {
    CHECK(WhyNot(Blocks(sums)).empty());
    Case c = Blocks(sums);
    c.block = 64;
    CHECK_THAT(WhyNot(c), ContainsSubstring("several blocks of 64"));
    c.in = DType::kBf16, c.b_down = false, c.a_down = sums;
    CHECK(WhyNot(c).empty());
    for (const GemmTile& tile : MultiplierTilesFor(GroupedMatMulOf(CallOf(c)), kHopper)) {
      CHECK(tile.m == 128);
      CHECK(tile.n <= 128);
    }
  }
}

TEST_CASE("a tile that has no room for blocks' sums is refused") {
  GemmTile narrow{.m = 64, .n = 128, .tall = 1, .wide = 2};
  narrow.stages = MostStages(narrow, kHopper.shared_bytes);
  const absl::Status refused = LaunchByWarpgroups(CallOf(Blocks(false)), kFacts, narrow).status();
  CHECK(absl::IsUnimplemented(refused));
  CHECK_THAT(std::string(refused.message()), ContainsSubstring("a tile has 128 rows"));
}

TEST_CASE("turned products take the scales of their columns' blocks for those of rows") {
  Case c = Blocks(true);
  c.m = 512, c.n = 264, c.d_down = true, c.row_blocks = true;
  const GroupedMatMulCall turned = Turned(GroupedMatMulOf(CallOf(c)));
  CHECK(turned.row_scales.block_stride == 264);
  CHECK(turned.row_scales.lines == 1);
  CHECK(turned.column_scales.block_stride == 4);
  CHECK(turned.column_scales.lines == 128);
}

TEST_CASE("turned products take the scales of their columns for those of rows") {
  Case c = Fp8(true);
  c.m = 512, c.n = 264, c.d_down = true;
  const GroupedMatMulCall turned = Turned(GroupedMatMulOf(CallOf(c)));
  CHECK(turned.row_scales.group_stride == 264);
  CHECK(turned.column_scales.group_stride == 512);
  CHECK(turned.columns_scale_first);
  auto made = LaunchByWarpgroups(CallOf(c), kFacts, MultiplierTileFor(turned, kHopper));
  REQUIRE(made.status().ToString() == "OK");
  REQUIRE(made->launch.args.size() == 4);
  CHECK(made->launch.args[1].slot == kGroupedColumnScales);
  CHECK(made->launch.args[2].slot == kGroupedRowScales);
}

TEST_CASE("sums whose result lies by columns are turned") {
  const Case c{.sums = true, .m = 512, .n = 264, .a_down = true, .d_down = true};
  const GroupedMatMulCall call = GroupedMatMulOf(CallOf(c));
  REQUIRE(IsTurned(call));
  const GroupedMatMulCall turned = Turned(call);
  CHECK(turned.m == 264);
  CHECK(turned.n == 512);
  CHECK(turned.d.col_stride == 1);
  CHECK(turned.d.row_stride == 512);
  CHECK(WhyNoMultiplier(turned, kAligned).empty());
  auto made = LaunchByWarpgroups(CallOf(c), kFacts, MultiplierTileFor(turned, kHopper));
  REQUIRE(made.status().ToString() == "OK");
  CHECK(made->launch.maps[0].slot == kGroupedB);
  CHECK(made->launch.maps[1].slot == kGroupedA);
  CHECK_FALSE(IsTurned(GroupedMatMulOf(CallOf({.d_down = true}))));
}

TEST_CASE("the copy engine is told of one matrix for each group") {
  auto rows = LaunchByWarpgroups(CallOf({.b_down = true}), kFacts, {});
  REQUIRE(rows.status().ToString() == "OK");
  const OperandMap &a = rows->launch.maps[0], &b = rows->launch.maps[1];
  CHECK((a.slot == kGroupedA && a.inner == 1024 && a.outer == 512 && a.pitch == 1024));
  CHECK(a.heads == 0);
  CHECK((b.slot == kGroupedB && b.inner == 1024 && b.outer == 256 && b.pitch == 1024));
  CHECK((b.heads == 5 && b.head_pitch == 256 * 1024));
  auto sums = LaunchByWarpgroups(CallOf({.sums = true, .a_down = true}), kFacts, {});
  REQUIRE(sums.status().ToString() == "OK");
  CHECK(sums->launch.maps[0].inner == 512);
  CHECK(sums->launch.maps[0].outer == 1024);
  CHECK(sums->launch.maps[1].heads == 0);
}

TEST_CASE("a tile fits the sizes of groups") {
  const auto tile = [](const Case& c) {
    return MultiplierTileFor(GroupedMatMulOf(CallOf(c)), kHopper);
  };
  const GemmTile large = tile({.groups = 8, .m = 16384, .n = 4096, .k = 2048});
  CHECK((large.m == 128 && large.n == 128 && large.cluster() == 2));
  // A round more of tiles that load less for each of their products.
  const GemmTile odd = tile({.groups = 6, .m = 10000, .n = 2048, .k = 5632});
  CHECK((odd.m == 128 && odd.n == 128));
  CHECK(tile({.groups = 256, .m = 8192, .n = 4096, .k = 2048}).m == 64);
  CHECK(tile({.groups = 8, .m = 16384, .n = 64, .k = 2048}).cluster() == 1);
  for (const int64_t kib : {99, 160, 227}) {
    const GemmTile fits =
        MultiplierTileFor(GroupedMatMulOf(CallOf({})), {.sms = 132, .shared_bytes = kib << 10});
    CHECK(SharedBytes(fits) <= kib << 10);
  }
}

TEST_CASE("tiles that are worth timing fit, differ, and begin with the cheapest") {
  for (const bool sums : {false, true}) {
    for (const DType in : {DType::kBf16, DType::kFp8E4M3}) {
      for (const int64_t n : {64, 128, 1408, 8192}) {
        Case c = in == DType::kBf16 ? Case{.sums = sums} : Fp8(sums);
        c.n = n;
        const GroupedMatMulCall call = GroupedMatMulOf(CallOf(c));
        const std::vector<GemmTile> tiles = MultiplierTilesFor(call, kHopper);
        REQUIRE(tiles.size() >= 5);
        CHECK(tiles.size() <= 8);
        CHECK(tiles[0] == MultiplierTileFor(call, kHopper));
        for (size_t i = 0; i < tiles.size(); ++i) {
          CHECK(WhyNotTile(tiles[i], kHopper.shared_bytes).empty());
          CHECK((n > tiles[i].n || tiles[i].wide == 1));
          for (size_t j = 0; j < i; ++j) CHECK_FALSE(tiles[i] == tiles[j]);
        }
      }
    }
  }
}

TEST_CASE("groups of one size end behind all of their places") {
  CHECK(EvenEnds(10, 4) == std::vector<int32_t>{2, 5, 7, 10});
  CHECK(EvenEnds(3, 1) == std::vector<int32_t>{3});
  CHECK(EvenEnds(0, 2) == std::vector<int32_t>{0, 0});
}

TEST_CASE("there are as many clusters as groups of any sizes have tiles") {
  const GemmTile tile{.m = 128, .n = 128, .tall = 1, .wide = 2};
  const auto clusters = [&](const Case& c) { return ClustersOf(tile, GroupedMatMulOf(CallOf(c))); };
  // Groups of 1 and 129 rows, and 126 behind the last; 3 tiles of columns.
  CHECK(clusters({.groups = 2, .m = 256, .n = 264}) >= (1 + 2 + 1) * 2);
  CHECK(clusters({.groups = 1000, .m = 3, .n = 264}) == 3 * 2);
  CHECK(clusters({.sums = true, .groups = 5, .m = 130, .n = 264}) == 5 * 2 * 2);
}

// What NVRTC makes of kernels for sm_90a: no spills, nothing that makes the tensor cores wait.
void CheckKernels(const std::vector<Kernel>& kernels) {
  auto object = CompileKernels(Dialect::kCuda, kernels, "sm_90a");
  INFO(object.status());
  REQUIRE(object.ok());
  CHECK(object->kernels.size() == kernels.size());
  for (const KernelResources& kernel : object->kernels) {
    const auto emitted = std::find_if(kernels.begin(), kernels.end(),
                                      [&](const Kernel& k) { return k.name == kernel.name; });
    REQUIRE(emitted != kernels.end());
    INFO(PrintHead(*emitted) << emitted->function.statements);
    CHECK(kernel.spill_bytes == 0);
    CHECK(kernel.registers <= 168);  // of 384 threads, before they trade registers
  }
  CHECK_FALSE(absl::StrContains(object->log, "serialized"));
}

TEST_CASE("kernels of blocks with scales of their own compile for sm_90a without a spill") {
  RG_NEEDS_COMPILER(CudaCompilerAvailable());
  std::vector<Kernel> kernels;
  for (int way = 0; way < 16; ++way) {
    Case c = Blocks((way & 1) != 0);
    if ((way & 2) != 0) c.in = DType::kBf16, c.b_down = false, c.a_down = c.sums;
    c.out = way % 3 == 0 ? DType::kFp32 : DType::kBf16;
    c.m = 520, c.n = 264, c.k = 1040;
    c.column_blocks = way % 5 != 0, c.row_blocks = way % 7 == 0, c.adds = way % 4 == 3;
    GemmTile tile{.m = 128, .n = (way & 4) != 0 ? 64 : 128, .tall = 1, .wide = way & 8 ? 1 : 2};
    tile.stages = MostStages(tile, kHopper.shared_bytes);
    auto made = LaunchByWarpgroups(CallOf(c), kFacts, tile);
    REQUIRE(made.status().ToString() == "OK");
    kernels.push_back(made->kernel);
  }
  CheckKernels(kernels);
}

TEST_CASE("each tile's kernel multiplies groups on sm_90a without a spill") {
  RG_NEEDS_COMPILER(CudaCompilerAvailable());
  std::vector<Kernel> kernels;
  for (const auto& [m, n] : {std::pair{128, 128}, {64, 256}, {64, 128}, {128, 64}, {64, 64}}) {
    for (int way = 0; way < 8; ++way) {
      GemmTile tile{.m = m, .n = n, .tall = 1, .wide = way % 3 == 2 ? 1 : 2};
      tile.stages = MostStages(tile, kHopper.shared_bytes);
      const DType dtype = way == 5 ? DType::kFp16 : DType::kBf16;
      const Case c{.sums = (way & 1) != 0,
                   .groups = way < 4 ? 5 : 90,
                   .m = 520,
                   .n = 264,
                   .k = 1032 + 8 * way,
                   .in = dtype,
                   .out = dtype,
                   .a_down = (way & 3) == 3,
                   .b_down = (way & 4) != 0};
      auto made = LaunchByWarpgroups(CallOf(c), kFacts, tile);
      REQUIRE(made.status().ToString() == "OK");
      CHECK(made->launch.cluster == tile.cluster());
      kernels.push_back(made->kernel);
    }
    for (int way = 0; way < 6; ++way) {
      GemmTile tile{.m = m, .n = n, .tall = 1, .wide = 2};
      tile.stages = MostStages(tile, kHopper.shared_bytes);
      const DType dtype = way == 1 ? DType::kFp16 : DType::kBf16;
      Case c = way < 4 ? Case{.sums = way != 2, .in = dtype} : Fp8(way == 4);
      c.m = 520, c.n = 268, c.k = 1040;
      if (way < 4) c.a_down = c.sums, c.n = 264;
      c.out = way == 3 ? c.in : DType::kFp32;
      c.adds = way % 2 != 0;
      auto made = LaunchByWarpgroups(CallOf(c), kFacts, tile);
      REQUIRE(made.status().ToString() == "OK");
      kernels.push_back(made->kernel);
    }
    for (int way = 0; way < 4; ++way) {
      GemmTile tile{.m = m, .n = n, .tall = 1, .wide = 2};
      tile.stages = MostStages(tile, kHopper.shared_bytes);
      Case c = Fp8((way & 1) != 0, way == 3 ? DType::kFp8E5M2 : DType::kFp8E4M3);
      c.m = 520, c.n = 264, c.k = 1040, c.scaled = way != 2;
      auto made = LaunchByWarpgroups(CallOf(c), kFacts, tile);
      REQUIRE(made.status().ToString() == "OK");
      kernels.push_back(made->kernel);
    }
  }
  CheckKernels(kernels);
}

}  // namespace
}  // namespace retrograd
