// The row of grouped_matmul.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "fusion/kernel/ir/scale.h"
#include "fusion/ops/call_op.h"
#include "fusion/ops/grouped_matmul/grouped_matmul_tiles.h"
#include "fusion/ops/matmul/matmul_cost.h"
#include "fusion/ops/matmul/matrix_strides.h"

namespace retrograd {
namespace {

constexpr int64_t kTile = 128;  // rows and columns that a block makes, for prices
constexpr int64_t kStep = 64;   // terms that it adds up at once

// Matrices as BLAS takes them, scales for each group among them; lists, of the groups' ends and of
// the rows' scales, without gaps.
bool Reads(absl::Span<const int64_t> shape, absl::Span<const int64_t> strides) {
  if (shape.size() == 1) return shape[0] <= 1 || strides[0] == 1;
  return IsMatrix(shape, strides);
}

void Normalize(absl::Span<const int64_t> shape, std::vector<int64_t>& strides) {
  if (shape.size() >= 2) return NormalizeMatrix(shape, strides);
  if (shape[0] <= 1) strides[0] = 1;
}

// What groups of one size take, for groups that end anywhere: of each the last tile, or the last
// step of its sums, is half full.
int64_t WithPartsOf(int64_t ps, int64_t each, int64_t part) {
  return MulDiv(ps, std::max(part, each + part / 2), CeilDiv(each, part) * part);
}

// What it takes to scale the sums of a block of terms and to add them up, in tenths of an operation
// in fp32 for each element: where several columns have one scale, and where each has its own. Seven
// products beside those with one scale of each row and column, on one H100: 32 to 34, and 73 to 94
// (bench/results/block_products_nvidia_h100.json).
constexpr int64_t kScalingOfSquares = 34, kScalingOfLines = 84;

// The tensor cores wait for it.
int64_t ScalingPs(const GroupedMatMulCall& c, const DeviceSpec& d) {
  if (c.scale_block == 0) return 0;
  const int64_t tenths = c.column_scales.lines > 1 ? kScalingOfSquares : kScalingOfLines;
  const int64_t sums = Product({c.m, c.n, CeilDiv(c.k, c.scale_block)});
  return TransferPs(Product({sums, tenths}) / 10, d.matmul_fp32_flops);
}

// Groups of one size, since prices know no values, a tile a block, whose sum no other block shares.
// Tensor cores multiply fp8 into sums of fp32; into fp64 it goes by plain sums, as fp32.
Price PriceCall(const Call& call, const DeviceSpec& d, bool explain) {
  const GroupedMatMulCall c = GroupedMatMulOf(call);
  MatMulCall even = AsEvenMatMuls(c);
  if (IsFp8(c.in_dtype) && c.out_dtype == DType::kFp64) even.in_dtype = DType::kFp32;
  Price price;
  for (const CallTensor& t : call.operands) {
    price.read_bytes += Product({Elements(t.shape), SizeBytes(t.dtype)});
  }
  const CallTensor& result = call.results[0];
  price.written_bytes = Product({Elements(result.shape), SizeBytes(result.dtype)});
  if (c.adds) price.read_bytes += price.written_bytes;
  const int64_t launch = d.launch_graph_ps;
  const int64_t hbm = TransferPs(price.read_bytes + price.written_bytes, d.hbm_bytes_per_s);
  const bool empty = even.m == 0 || even.n == 0 || even.k == 0 || c.groups == 0;
  int64_t tiled = 0;
  if (!empty) {
    tiled = std::max<int64_t>(TiledMatMulPs(even, kTile, d) - launch - d.library_call_ps, 0);
    tiled =
        c.sums_in_groups ? WithPartsOf(tiled, even.k, kStep) : WithPartsOf(tiled, even.m, kTile);
    tiled = std::min(kHuge, tiled + ScalingPs(c, d));
  }
  price.ps = std::min(kHuge, launch + std::max(tiled, hbm));
  if (explain) {
    price.terms = {
        {"launch", launch, false, "one launch"},
        {"flops", tiled, tiled >= hbm,
         absl::StrFormat("as %d matmuls of %d x %d x %d", c.groups, even.m, even.n, even.k)},
        {"hbm", hbm, hbm > tiled,
         absl::StrCat(price.read_bytes, " B read + ", price.written_bytes, " B written")}};
  }
  return price;
}

int64_t Blocks(const Call& call) {
  const MatMulCall even = AsEvenMatMuls(GroupedMatMulOf(call));
  return Product({even.batch[0], CeilDiv(even.m, kTile), CeilDiv(even.n, kTile)});
}

std::string Describe(const Call& call) {
  const GroupedMatMulCall c = GroupedMatMulOf(call);
  std::string text =
      absl::StrFormat("grouped_matmul %dx%dx%d %s, %s in %d groups", c.m, c.n, c.k,
                      Name(c.in_dtype), c.sums_in_groups ? "sums" : "rows", c.groups);
  if (c.out_dtype != c.in_dtype) absl::StrAppend(&text, ", into ", Name(c.out_dtype));
  if (c.scaled) absl::StrAppend(&text, ", scaled");
  if (c.scale_block > 0) absl::StrAppend(&text, " by blocks of ", c.scale_block);
  if (c.adds) absl::StrAppend(&text, ", adds");
  return text;
}

CallSizes Sizes(const Call& call) {
  const GroupedMatMulCall c = GroupedMatMulOf(call);
  return {{"m", c.m}, {"n", c.n}, {"k", c.k}, {"groups", c.groups}};
}

}  // namespace

const CallOp kGroupedMatMulCalls = {.op = Op::grouped_matmul,
                                    .name = "grouped_matmul",
                                    .reads = Reads,
                                    .stores = IsMatrix,
                                    .normalize = Normalize,
                                    .lies_along = AxisOfFp8Sums,
                                    .result_like = [](int) { return -1; },
                                    .widens = true,
                                    .adds = true,
                                    .price = PriceCall,
                                    .blocks = Blocks,
                                    .describe = Describe,
                                    .sizes = Sizes};

}  // namespace retrograd
