#include "fusion/ops/grouped_matmul/grouped_multiplier.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "fusion/kernel/ir/scale.h"

namespace retrograd {
namespace {

// Tiles, and how long each takes for an element of a result, per mille of what the first does: of
// 16 bits the medians of 12 products of groups in bench/results/tuned_nvidia_h100/, by rounds as
// below, on one H100 (decision 107); of FP8 by the two products of 8 groups of 4,096 rows, 2,048
// and 7,168 columns on one H100 (716 and 684 us in the first tile).
struct Form {
  int m, n;
  int64_t per_mille, fp8_per_mille;
};
constexpr Form kForms[] = {
    {128, 128, 1000, 1000}, {64, 256, 1420, 1460}, {64, 128, 1670, 1690},
    {128, 64, 1310, 1360},  {64, 64, 1910, 1940},
};

// Forms that are offered with a cluster of one block as well.
constexpr size_t kOtherClusters = 2;

// Products of two of `in` are added up in fp32 and narrowed at most once.
bool MultipliesInto(DType in, DType out) {
  const bool narrow = SizeBytes(in) == kGemmElementBytes;
  if (!narrow && (!IsFp8(in) || IsFnuz(in))) return false;
  if (out == DType::kFp32) return true;
  return narrow ? out == in : SizeBytes(out) == kGemmElementBytes;
}

// Whether each matrix, and each line of it, begins at a multiple of 16 bytes.
bool IsCopied(const GroupedMatrix& m, DType dtype, int64_t alignment) {
  const int64_t pack = kCopiedBytes / SizeBytes(dtype);
  const int64_t pitch = m.col_stride == 1 ? m.row_stride : m.col_stride;
  return (m.row_stride == 1 || m.col_stride == 1) && pitch > 0 && pitch % pack == 0 &&
         m.offset % pack == 0 && m.group_stride % pack == 0 && alignment % kCopiedBytes == 0;
}

// Tiles of sums of blocks: both warpgroups make one, each a box of its rows, and need room for the
// sums of a block beside those of all (codegen/grouped_matmul/block_products_prelude.h).
constexpr int kRowsOfBlocks = 2 * kGemmBox, kMostColumnsOfBlocks = 128;

// Clusters of two share what they load of the rows where there are two tiles beside each other:
// these have one group, whatever the sizes are.
GemmTile TileOf(const Form& form, const GroupedMatMulCall& call, int64_t shared_bytes) {
  GemmTile tile{.m = form.m, .n = form.n, .tall = 1, .wide = call.n > form.n ? 2 : 1};
  tile.stages = MostStages(tile, shared_bytes);
  return tile;
}

// Rounds of tiles over the SMs, each as long as its elements take, for groups of one size.
int64_t Cost(const GemmTile& tile, int64_t per_mille, const GroupedMatMulCall& call, int64_t sms) {
  const MatMulCall even = AsEvenMatMuls(call);
  const int64_t clusters = Product(
      {std::max<int64_t>(call.groups, 1), ClustersOf(tile, std::max<int64_t>(even.m, 1), call.n)});
  const int64_t at_once = std::max<int64_t>(sms / tile.cluster(), 1);
  return Product({CeilDiv(clusters, at_once), int64_t{tile.m} * tile.n, per_mille});
}

}  // namespace

bool ServesBlocks(const GemmTile& tile, const GroupedMatMulCall& call) {
  return call.scale_block == 0 || (tile.m == kRowsOfBlocks && tile.n <= kMostColumnsOfBlocks);
}

int64_t StepOf(DType dtype) { return kGemmBox * kGemmElementBytes / SizeBytes(dtype); }

bool IsTurned(const GroupedMatMulCall& c) {
  return c.sums_in_groups && c.d.col_stride != 1 && c.d.row_stride == 1;
}

GroupedMatMulCall Turned(const GroupedMatMulCall& call) {
  const auto turned = [](GroupedMatrix m) {
    std::swap(m.row_stride, m.col_stride);
    return m;
  };
  GroupedMatMulCall made = call;
  std::swap(made.m, made.n);
  made.a = turned(call.b);
  made.b = turned(call.a);
  made.d = turned(call.d);
  std::swap(made.row_scales, made.column_scales);
  made.columns_scale_first = !call.columns_scale_first;
  return made;
}

std::string WhyNoMultiplier(const GroupedMatMulCall& c, const GroupedAlignments& known) {
  const bool fp8 = IsFp8(c.in_dtype);
  if (!MultipliesInto(c.in_dtype, c.out_dtype)) {
    return "its elements are not of 16 bits or fp8 into 16 bits or fp32";
  }
  if (fp8 && (c.a.col_stride != 1 || c.b.row_stride != 1)) {
    return "an operand of fp8 does not lie along the sum";
  }
  if (c.scale_block % StepOf(c.in_dtype) != 0) {
    return absl::StrCat("a step of ", StepOf(c.in_dtype), " terms has several blocks of ",
                        c.scale_block);
  }
  if (c.groups < 1 || c.m < 1 || c.n < 1 || c.k < 1) return "a matrix has no elements";
  if (!c.sums_in_groups && c.groups > 1 && c.b.group_stride <= 0) {
    return "all groups have one matrix";
  }
  if (!c.sums_in_groups && c.a.col_stride != 1) {
    return "its rows lie beside each other, and groups of them begin anywhere";
  }
  if (!IsCopied(c.a, c.in_dtype, known.a) || !IsCopied(c.b, c.in_dtype, known.b)) {
    return absl::StrCat("an operand's lines do not begin at multiples of ", kCopiedBytes, " bytes");
  }
  const int64_t pack = kCopiedBytes / SizeBytes(c.out_dtype);
  if (c.d.col_stride != 1 || !IsCopied(c.d, c.out_dtype, known.d) || c.n % pack != 0) {
    return absl::StrCat("the result's rows are not made of packs of ", kCopiedBytes, " bytes");
  }
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  const Form& smallest = kForms[std::size(kForms) - 1];
  const bool fits =
      ClustersOf({.m = smallest.m, .n = smallest.n, .tall = 1, .wide = 1}, c) <= kMost;
  return fits ? "" : "it has more tiles than 32 bits count";
}

std::vector<GemmTile> MultiplierTilesFor(const GroupedMatMulCall& call,
                                         const GroupedLimits& limits) {
  std::vector<std::pair<int64_t, GemmTile>> priced;
  for (const Form& form : kForms) {
    if (!ServesBlocks({.m = form.m, .n = form.n}, call)) continue;
    const GemmTile tile = TileOf(form, call, limits.shared_bytes);
    if (!WhyNotTile(tile, limits.shared_bytes).empty()) continue;
    const int64_t per_mille = IsFp8(call.in_dtype) ? form.fp8_per_mille : form.per_mille;
    priced.emplace_back(Cost(tile, per_mille, call, std::max<int64_t>(limits.sms, 1)), tile);
  }
  std::stable_sort(priced.begin(), priced.end(),
                   [](const auto& x, const auto& y) { return x.first < y.first; });
  std::vector<GemmTile> tiles;
  for (const auto& [cost, tile] : priced) tiles.push_back(tile);
  const size_t forms = tiles.size();
  for (size_t i = 0; i < std::min(forms, kOtherClusters); ++i) {
    GemmTile other = tiles[i];
    if (call.n <= other.n) continue;  // one block beside another has nothing to do
    other.wide = 1;
    tiles.push_back(other);
  }
  return tiles;
}

GemmTile MultiplierTileFor(const GroupedMatMulCall& call, const GroupedLimits& limits) {
  const std::vector<GemmTile> tiles = MultiplierTilesFor(call, limits);
  return tiles.empty() ? GemmTile{} : tiles[0];
}

int64_t ClustersOf(const GemmTile& tile, const GroupedMatMulCall& c) {
  if (c.sums_in_groups) return Product({c.groups, ClustersOf(tile, c.m, c.n)});
  const int64_t rows = int64_t{tile.m} * tile.tall;
  const int64_t row_tiles = std::min(c.m, (c.m + Product({c.groups + 1, rows - 1})) / rows);
  return Product({row_tiles, CeilDiv(CeilDiv(c.n, tile.n), tile.wide)});
}

}  // namespace retrograd
