// Attention's kernels for tensor cores as source: what they take, and that it compiles. On a device
// they run in cuda_attention_test.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "codegen/attention/emit_tiled_attention.h"
#include "codegen/print/kernel_text.h"
#include "runtime/compiler/rtc.h"
#include "runtime/ops/attention/fallback_attention.h"
#include "tests/catch.h"

namespace retrograd {
namespace {

enum { kDO, kQ, kK, kV, kO, kLse, kBias };

AttentionOperand Tokens(int64_t b, int64_t h, int64_t t, int64_t d) {
  return {.shape = {b, h, t, d}, .strides = {t * h * d, d, h * d, 1}};
}

struct Case {
  int64_t batch = 2, heads = 4, kv_heads = 2, queries = 200, keys = 200, dim = 64;
  DType dtype = DType::kBf16;
  bool causal = true, bias = false, score_gradient = false;
  const char* dropout = "";  // whose random numbers
  bool boxes = false;        // the bias is known to begin at 16 bytes
};

AttentionCall CallOf(const Case& c) {
  AttentionCall call{
      .dtype = c.dtype, .scale = 1 / std::sqrt(static_cast<double>(c.dim)), .causal = c.causal};
  const AttentionOperand q = Tokens(c.batch, c.heads, c.queries, c.dim);
  const AttentionOperand k = Tokens(c.batch, c.kv_heads, c.keys, c.dim);
  call.operands = {
      q, q,
      k, k,
      q, {.shape = {c.batch, c.heads, c.queries}, .strides = {c.heads * c.queries, c.queries, 1}}};
  if (c.bias) {
    call.operands.push_back(
        {.shape = {c.batch, 1, c.queries, c.keys}, .strides = {c.queries * c.keys, 0, c.keys, 1}});
  }
  if (*c.dropout != '\0') {
    call.dropout_p = 0.1;
    call.variant = c.dropout;
    call.operands.resize(call.operands.size() + 2);  // seed and offset: scalars
  }
  call.results = {q, k, k};
  if (c.score_gradient) {
    call.results.push_back(
        {.shape = {c.batch, c.heads, c.queries, c.keys},
         .strides = {c.heads * c.queries * c.keys, c.queries * c.keys, c.keys, 1}});
  }
  return call;
}

std::vector<DType> DTypes(const AttentionCall& call) {
  std::vector<DType> dtypes(call.operands.size(), call.dtype);
  dtypes[kLse] = DType::kFp32;
  for (size_t i = AttentionSeed(call); i < dtypes.size(); ++i) dtypes[i] = DType::kInt64;
  return dtypes;
}

// Of all operands.
std::vector<int64_t> Alignment(const AttentionCall& call, int64_t bytes) {
  return std::vector<int64_t>(call.operands.size(), bytes);
}

AttentionKernels Emit(const AttentionCall& call, bool boxes = false) {
  return EmitTiledAttention(call, DTypes(call), ChooseAttentionTiles(call, 132, boxes));
}

std::string Refusal(const AttentionCall& call) {
  return std::string(TiledAttentionRefusal(call, DTypes(call)).message());
}

TEST_CASE("what kernels by tiles do not take is refused with the call's shape and the reason") {
  CHECK(Refusal(CallOf({})).empty());
  CHECK(Refusal(CallOf({.keys = 65, .dim = 128, .dtype = DType::kFp16, .bias = true})).empty());
  CHECK(Refusal(CallOf({.dtype = DType::kFp32})) ==
        "attention_backward %0, f32 Q[2,4,200,64] K[2,2,200,64]: our kernels for tensor cores take "
        "bf16 and fp16 only");
  CHECK(absl::StrContains(Refusal(CallOf({.dim = 96})), "heads of 64 or 128"));
  CHECK(absl::StrContains(Refusal(CallOf({.queries = 0})), "from one to 2^31 tiles"));
  CHECK(absl::StrContains(Refusal(CallOf({.batch = 1 << 20, .heads = 1 << 12})), "2^31 tiles"));
  AttentionCall call = CallOf({});
  call.operands[kV].offset = 4;
  CHECK(absl::StrContains(Refusal(call), "V has the strides 25600,64,128,1 and the offset 4"));
  call = CallOf({});
  call.results[1].strides = {25600, 12800, 1, 200};
  CHECK(absl::StrContains(Refusal(call), "dK has the strides"));
  call = CallOf({});
  call.operands[kK].strides[1] = 0;
  CHECK(absl::StrContains(Refusal(call), "K has the strides"));
  call = CallOf({});
  std::vector<DType> wide = DTypes(call);
  wide[kLse] = DType::kFp64;
  CHECK(absl::StrContains(TiledAttentionRefusal(call, wide).message(), "fp32 log-sum-exp"));
}

TEST_CASE("the copy engine reads five operands; axes of one element get a pitch all the same") {
  AttentionCall call = CallOf({.batch = 1});
  call.operands[kQ].strides[0] = 0;  // of one element
  call.operands[kK].offset = 64;
  const AttentionKernels kernels = Emit(call);
  CHECK(kernels.workspace_bytes == 2 * 4 * 256 * 4);  // two numbers a query, of 4 tiles of 64
  CHECK(kernels.workspace_rows == 4 * 4);
  auto made = AttentionLaunches(call, {DTypes(call)}, kernels);
  REQUIRE(made.ok());
  REQUIRE(made->launches.size() == 2);
  for (const Launch& launch : made->launches) {
    REQUIRE(launch.maps.size() == 5);
    CHECK(launch.maps[0].slot == kQ);
    CHECK(launch.maps[0].batch_pitch == 64);
    CHECK(launch.maps[0].pitch == 256);
    CHECK(launch.maps[1].slot == kK);
    CHECK(launch.maps[1].offset == 64);
    CHECK(launch.maps[1].heads == 2);
    CHECK(launch.maps[3].slot == kDO);
    CHECK(launch.staged_bytes <= 227 * 1024);
  }
  // O, or what the first kernel leaves: a run of 64 log-sum-exps and 64 deltas a tile.
  CHECK(made->launches[0].maps[4].slot == kO);
  const OperandMap& numbers = made->launches[1].maps[4];
  CHECK(numbers.slot == 9);
  CHECK(numbers.dtype == DType::kFp32);
  CHECK(numbers.inner == 128);
  CHECK(numbers.outer == 4 * 4);
}

TEST_CASE("a bias costs a look at each of its tiles, once for what it repeats") {
  AttentionCall call = CallOf({.causal = false, .bias = true});
  AttentionKernels kernels = Emit(call);
  REQUIRE(kernels.launches.size() == 3);
  CHECK(kernels.launches[0].kernel.blocks == 2 * 4 * 4);  // batch, tiles of queries and of keys
  CHECK(kernels.workspace_bytes == 2 * 2 * 4 * 256 * 4 + 2 * 2 * 4 * 4);
  call.operands[kBias].strides[0] = 0;
  kernels = Emit(call);
  CHECK(kernels.launches[0].kernel.blocks == 4 * 4);
}

TEST_CASE("a bias comes in boxes where all its rows begin at 16 bytes, as far as is known") {
  const auto boxes = [](int64_t keys, std::vector<int64_t> shape, std::vector<int64_t> strides,
                        int64_t offset = 0, int64_t alignment = 16) {
    AttentionCall call = CallOf({.keys = keys, .bias = true});
    call.operands[kBias] = {
        .offset = offset, .shape = std::move(shape), .strides = std::move(strides)};
    return BiasComesInBoxes(call, DTypes(call), Alignment(call, alignment));
  };
  CHECK(boxes(200, {2, 4, 200, 200}, {160000, 40000, 200, 1}));
  CHECK(boxes(200, {2, 4, 200, 200}, {0, 40000, 200, 1}));  // one for all batches
  CHECK(boxes(200, {1, 1, 200, 200}, {7, 9, 200, 1}));      // strides of no step
  CHECK(boxes(200, {200, 200}, {200, 1}, 8));
  CHECK(boxes(197, {4, 200, 197}, {40000, 200, 1}));  // rows with a rest
  CHECK_FALSE(boxes(197, {4, 200, 197}, {39400, 197, 1}));
  CHECK_FALSE(boxes(200, {200, 200}, {200, 1}, 4));
  CHECK_FALSE(boxes(200, {200, 200}, {200, 1}, 0, 8));  // nobody knows the address
  CHECK_FALSE(boxes(200, {2, 1, 200, 200}, {40004, 0, 200, 1}));
  CHECK_FALSE(boxes(200, {2, 1, 1, 200}, {200, 200, 200, 1}));  // one row for all queries
  CHECK_FALSE(boxes(200, {2, 1, 200, 200}, {200, 200, 0, 1}));
  CHECK_FALSE(boxes(200, {2, 1, 200, 1}, {200, 200, 1, 0}));
  CHECK_FALSE(boxes(200, {200, 200}, {1, 200}));

  AttentionCall call = CallOf({.bias = true});
  std::vector<DType> wide = DTypes(call);
  wide[kBias] = DType::kFp32;
  CHECK_FALSE(BiasComesInBoxes(call, wide, Alignment(call, 16)));
  CHECK_FALSE(BiasComesInBoxes(call, DTypes(call), {}));
  call = CallOf({});
  CHECK_FALSE(BiasComesInBoxes(call, DTypes(call), Alignment(call, 16)));
}

TEST_CASE("the copy engine's sixth operand is a bias in boxes, one table where it repeats") {
  AttentionCall call = CallOf({.causal = false, .bias = true});
  call.operands[kBias].offset = 8;
  const auto made = AttentionLaunches(call, {DTypes(call)}, Emit(call, /*boxes=*/true));
  REQUIRE(made.ok());
  REQUIRE(made->launches.size() == 3);
  for (const size_t launch : {1, 2}) {
    CHECK(absl::StartsWith(PrintHead(made->kernels[launch]), "RG_ATTENTION_WITH_BIAS("));
    REQUIRE(made->launches[launch].maps.size() == 6);
    const OperandMap& bias = made->launches[launch].maps[5];
    CHECK(bias.slot == kBias);
    CHECK(bias.offset == 8);
    CHECK(bias.inner == 200);
    CHECK(bias.outer == 200);
    CHECK(bias.pitch == 200);
    CHECK(bias.heads == 1);
    CHECK(bias.head_pitch == 40000);
    CHECK(bias.batch == 2);
    CHECK(bias.batch_pitch == 40000);
  }
  CHECK(absl::StartsWith(PrintHead(made->kernels[0]), "RG_KERNEL("));
}

TEST_CASE("kernels by tiles compile for sm_90a without spills, and products wait for no other") {
  RG_NEEDS_COMPILER(CudaCompilerAvailable());
  for (const Case& c :
       {Case{},
        Case{.queries = 64, .dtype = DType::kFp16, .causal = false},
        Case{.dtype = DType::kFp16, .causal = false, .bias = true},
        Case{.queries = 2048, .keys = 2048, .bias = true},
        Case{.dim = 128},
        Case{.queries = 2048, .keys = 2048, .dim = 128, .causal = false, .bias = true},
        Case{.dim = 128, .dtype = DType::kFp16, .bias = true},
        Case{.dropout = "cudnn"},
        Case{.dropout = "flash"},
        Case{.dropout = "efficient"},
        Case{.causal = false, .bias = true, .dropout = "cudnn"},
        Case{.dim = 128, .dropout = "cudnn"},
        Case{.dim = 128, .dropout = "flash"},
        Case{.dim = 128, .dropout = "efficient"},
        Case{.causal = false, .dropout = "flash"},
        Case{.causal = false, .dropout = "efficient"},
        Case{.causal = false, .bias = true, .score_gradient = true},
        Case{.keys = 197, .bias = true, .score_gradient = true},
        Case{.keys = 197, .dim = 128, .dtype = DType::kFp16, .score_gradient = true},
        Case{.dim = 128, .causal = false, .bias = true, .score_gradient = true},
        Case{.bias = true, .score_gradient = true, .dropout = "efficient"},
        Case{.causal = false, .bias = true, .boxes = true},
        Case{.queries = 4096, .keys = 4096, .dtype = DType::kFp16, .bias = true, .boxes = true},
        Case{.dim = 128, .dtype = DType::kFp16, .bias = true, .boxes = true},
        Case{.bias = true, .score_gradient = true, .dropout = "efficient", .boxes = true},
        Case{.dim = 128, .bias = true, .score_gradient = true, .boxes = true}}) {
    INFO(c.dim << " " << Name(c.dtype) << (c.causal ? " causal" : "") << (c.bias ? " bias " : " ")
               << (c.boxes ? "in boxes " : "") << (c.score_gradient ? "gradient of scores " : "")
               << c.dropout);
    const AttentionCall call = CallOf(c);
    auto made = AttentionLaunches(call, {DTypes(call)}, Emit(call, c.boxes));
    REQUIRE(made.ok());
    auto object = CompileKernels(Dialect::kCuda, made->kernels, "sm_90a");
    INFO(object.status());
    REQUIRE(object.ok());
    CHECK(object->kernels.size() == (c.bias ? 3 : 2));
    for (const KernelResources& kernel : object->kernels) {
      INFO(kernel.name << ": " << kernel.spill_bytes << " bytes spilled");
      CHECK(kernel.spill_bytes == 0);
      CHECK(kernel.registers <= 168);
    }
    INFO(object->log);
    CHECK_FALSE(absl::StrContains(object->log, "serialized"));
  }
}

// Its dQ by one tile and its dK and dV by another, each as often as there are candidates.
std::vector<AttentionTiles> TilesOf(const AttentionCall& call, bool boxes = false) {
  const int64_t dim = call.operands[kQ].shape[3];
  const std::vector<AttentionTile> queries = QueryTileCandidates(call, boxes),
                                   keys = KeyTileCandidates(dim, boxes);
  std::vector<AttentionTiles> all;
  for (size_t i = 0; i < std::max(queries.size(), keys.size()); ++i) {
    const AttentionTiles tiles = {queries[i % queries.size()], keys[i % keys.size()]};
    all.push_back(WithHeadsAtOnce(tiles, call, 132));
  }
  return all;
}

TEST_CASE("tiles are chosen of the candidates, which declare the shared memory they are said to") {
  for (const int64_t dim : {64, 128}) {
    const AttentionCall call = CallOf({.queries = 1000, .keys = 600, .dim = dim});
    const AttentionTiles chosen = ChooseAttentionTiles(call, 132);
    CHECK(chosen.queries.Print() ==
          (dim == 64 ? "rows=128 stages=6 own=2 heads=8" : "rows=128 stages=2 own=1 heads=8"));
    CHECK(chosen.keys.Print() ==
          (dim == 64 ? "rows=128 stages=5 own=2 held heads=4" : "rows=128 stages=2 own=1 heads=4"));
    const std::vector<AttentionTiles> all = TilesOf(call);
    CHECK(all.size() == (dim == 64 ? 9 : 2));
    CHECK(std::any_of(all.begin(), all.end(), [&](const AttentionTiles& tiles) {
      return tiles.queries == chosen.queries;
    }));
    CHECK(all[0].keys == chosen.keys);
    for (const AttentionTiles& tiles : all) {
      INFO(tiles.queries.Print() << "; " << tiles.keys.Print());
      const AttentionKernels kernels = EmitTiledAttention(call, DTypes(call), tiles);
      REQUIRE(kernels.launches.size() == 2);
      const Kernel& queries = kernels.launches[0].kernel;
      const Kernel& keys = kernels.launches[1].kernel;
      CHECK(queries.staged_bytes == SharedBytesOfQueries(tiles.queries, dim));
      CHECK(keys.staged_bytes == SharedBytesOfKeys(tiles.keys, dim));
      CHECK(std::max(queries.staged_bytes, keys.staged_bytes) <= 227 * 1024);
      CHECK(queries.threads == tiles.queries.threads());
      const int64_t rows = tiles.queries.rows();
      CHECK(queries.blocks == 2 * 4 * ((1000 + rows - 1) / rows));
    }
  }
}

TEST_CASE("gradients of scores are stored in pairs where all of them lie at four bytes") {
  const auto in_pairs = [](int64_t offset, std::vector<int64_t> strides, int64_t keys = 200) {
    AttentionCall call = CallOf({.keys = keys, .score_gradient = true});
    call.results[kScoreGradient].offset = offset;
    call.results[kScoreGradient].strides = std::move(strides);
    const std::string text = Emit(call).launches[0].kernel.function.statements;
    const bool pairs = absl::StrContains(text, "rg_score_rows<rg_bf16, true>");
    CHECK(absl::StrContains(text, "rg_score_rows<rg_bf16, false>") == !pairs);
    return pairs;
  };
  CHECK(in_pairs(0, {160000, 40000, 200, 1}));
  CHECK(in_pairs(6, {640000, 160000, 802, 1}));  // a part of a longer value
  CHECK_FALSE(in_pairs(7, {160000, 40000, 200, 1}));
  CHECK_FALSE(in_pairs(0, {160800, 40200, 201, 1}));
  CHECK_FALSE(in_pairs(0, {160001, 40000, 200, 1}));
  CHECK_FALSE(in_pairs(0, {157600, 39400, 197, 1}, 197));
}

TEST_CASE("a block has as many queries as waste least, and fewer where more is held for each") {
  const auto rows = [](const Case& c) {
    return ChooseAttentionTiles(CallOf(c), 132).queries.rows();
  };
  // Two blocks of 128 for a picture's 197, one of 192 where that is all; long ones by three groups.
  CHECK(rows({.batch = 64, .queries = 197, .keys = 197, .causal = false}) == 128);
  CHECK(rows({.batch = 64, .queries = 192, .keys = 192, .causal = false}) == 192);
  CHECK(rows({.batch = 64, .queries = 512, .keys = 512, .causal = false}) == 128);
  CHECK(rows({.batch = 64, .queries = 4096, .keys = 4096}) == 192);
  CHECK(rows({.batch = 2, .queries = 1024, .keys = 1024}) == 128);  // few blocks
  CHECK(rows({.batch = 64, .queries = 4096, .keys = 4096, .bias = true}) == 192);
  CHECK(rows({.batch = 64, .queries = 4096, .keys = 4096, .bias = true, .score_gradient = true}) ==
        128);
  CHECK(rows({.batch = 64, .queries = 4096, .keys = 4096, .bias = true, .dropout = "cudnn"}) ==
        128);
  CHECK(rows({.batch = 64, .queries = 4096, .keys = 4096, .dim = 128}) == 128);
}

TEST_CASE("every tile compiles for sm_90a without spills, and products wait for no other") {
  RG_NEEDS_COMPILER(CudaCompilerAvailable());
  for (const Case& c :
       {Case{.bias = true}, Case{.dim = 128, .causal = false},
        Case{.causal = false, .dropout = "cudnn"}, Case{.dropout = "efficient"},
        Case{.keys = 197, .score_gradient = true}, Case{.bias = true, .score_gradient = true},
        Case{.bias = true, .boxes = true},
        Case{.bias = true, .score_gradient = true, .boxes = true},
        Case{.dim = 128, .causal = false, .bias = true, .boxes = true}}) {
    const AttentionCall call = CallOf(c);
    for (const AttentionTiles& tiles : TilesOf(call, c.boxes)) {
      INFO("heads of " << c.dim << ", " << tiles.queries.Print() << "; " << tiles.keys.Print());
      auto made =
          AttentionLaunches(call, {DTypes(call)}, EmitTiledAttention(call, DTypes(call), tiles));
      REQUIRE(made.ok());
      auto object = CompileKernels(Dialect::kCuda, made->kernels, "sm_90a");
      INFO(object.status());
      REQUIRE(object.ok());
      for (const KernelResources& kernel : object->kernels) {
        INFO(kernel.name << ": " << kernel.registers << " registers");
        CHECK(kernel.spill_bytes == 0);
        CHECK(kernel.registers <= 168);
      }
      CHECK_FALSE(absl::StrContains(object->log, "serialized"));
    }
  }
}

}  // namespace
}  // namespace retrograd
