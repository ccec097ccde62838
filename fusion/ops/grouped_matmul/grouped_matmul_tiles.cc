#include "fusion/ops/grouped_matmul/grouped_matmul_tiles.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "fusion/kernel/ir/scale.h"

namespace retrograd {
namespace {

constexpr int64_t kPackBytes = 16;  // that a thread moves at most at once

// Forms of tiles of 16-bit elements, and what part of an SM's rate each reaches, in percent: an
// estimate by the operands that a tile loads for its products.
struct Form {
  GroupedTile tile;
  int64_t percent;
};
constexpr Form kForms[] = {
    {{.rows = 128, .columns = 128, .depth = 32, .warp_rows = 4, .warp_columns = 2}, 100},
    {{.rows = 128, .columns = 64, .stages = 3, .warp_rows = 4, .warp_columns = 2}, 80},
    {{.rows = 64, .columns = 128, .stages = 3, .warp_rows = 2, .warp_columns = 4}, 80},
    {{.rows = 64, .columns = 64}, 60},
    {{.rows = 32, .columns = 64, .warp_rows = 1, .warp_columns = 2}, 40},
    {{.rows = 32, .columns = 32, .warp_rows = 1, .warp_columns = 1}, 25},
};

constexpr int kLeastDepth = 16;  // terms that are multiplied at once

// Of blocks with scales of their own a step has terms of one.
GroupedTile Scaled(GroupedTile tile, const GroupedMatMulCall& call) {
  tile.depth = std::max(2 * tile.depth / static_cast<int>(SizeBytes(call.in_dtype)), kLeastDepth);
  if (call.scale_block == 0) return tile;
  while (call.scale_block % tile.depth != 0) tile.depth -= kLeastDepth;
  return tile;
}

// Rounds of blocks over the SMs, each as long as a tile takes, for groups of one size.
int64_t Cost(const GroupedTile& tile, int64_t percent, const GroupedMatMulCall& call, int64_t sms) {
  const MatMulCall even = AsEvenMatMuls(call);
  const int64_t blocks =
      Product({std::max<int64_t>(call.groups, 1), CeilDiv(std::max<int64_t>(even.m, 1), tile.rows),
               CeilDiv(call.n, tile.columns)});
  return MulDiv(Product({CeilDiv(blocks, sms), tile.rows, tile.columns}), 100, percent);
}

SharedPart Part(bool across, int64_t other, int64_t depth, DType dtype) {
  SharedPart part{.across = across};
  part.lines = across ? depth : other;
  part.width = across ? other : depth;
  part.pitch = part.width + kPackBytes / SizeBytes(dtype);
  return part;
}

// Of neighbours along a dim of so many elements, whose lines begin `line_stride` apart.
int VectorOf(const GroupedMatrix& m, int64_t extent, int64_t line_stride, int64_t groups,
             DType dtype, int64_t alignment) {
  const int64_t size = SizeBytes(dtype);
  int64_t v = kPackBytes / size;
  const auto fits = [&] {
    return extent % v == 0 && m.offset % v == 0 && line_stride % v == 0 &&
           (groups <= 1 || m.group_stride % v == 0) && alignment % (v * size) == 0;
  };
  while (v > 1 && !fits()) v /= 2;
  return static_cast<int>(v);
}

// Groups begin anywhere: along them, nothing is known of an address.
int OperandVector(const GroupedMatrix& m, int64_t rows, int64_t columns, bool rows_grouped,
                  bool columns_grouped, const GroupedMatMulCall& c, DType dtype,
                  int64_t alignment) {
  if (m.col_stride == 1) {
    return columns_grouped ? 1 : VectorOf(m, columns, m.row_stride, c.groups, dtype, alignment);
  }
  return rows_grouped ? 1 : VectorOf(m, rows, m.col_stride, c.groups, dtype, alignment);
}

}  // namespace

std::string GroupedTile::Print() const {
  return absl::StrCat(rows, " x ", columns, " x ", depth, " tiles by ", warp_rows, " x ",
                      warp_columns, " warps, ", stages, " stages");
}

DType SumDType(const GroupedMatMulCall& call) {
  return call.in_dtype == DType::kFp64 || call.out_dtype == DType::kFp64 ? DType::kFp64
                                                                         : DType::kFp32;
}

absl::Status GroupedMatMulRefusal(const GroupedMatMulCall& c) {
  constexpr int64_t kMost = int64_t{1} << 30;
  for (int64_t extent : {c.groups, c.m, c.n, c.k}) {
    if (extent < kMost) continue;
    return absl::UnimplementedError(
        absl::StrCat("grouped_matmul of ", c.m, " x ", c.n, " x ", c.k, " in ", c.groups,
                     " groups: our kernels take extents of less than 2^30"));
  }
  if (c.in_dtype == DType::kFp64 && c.out_dtype != DType::kFp64) {
    return absl::UnimplementedError(absl::StrCat("grouped_matmul of ", Name(c.in_dtype), " into ",
                                                 Name(c.out_dtype),
                                                 ": our kernels store sums in fp64 as fp64"));
  }
  return absl::OkStatus();
}

GroupedTile GroupedTileFor(const GroupedMatMulCall& call, const GroupedLimits& limits) {
  GroupedTile best;
  int64_t least = 0;
  for (const Form& form : kForms) {
    GroupedTile tile = Scaled(form.tile, call);
    while (tile.stages > 2 && SharedBytes(tile, call) > limits.shared_bytes) --tile.stages;
    if (SharedBytes(tile, call) > limits.shared_bytes) continue;
    const int64_t cost = Cost(tile, form.percent, call, std::max<int64_t>(limits.sms, 1));
    if (least != 0 && cost >= least) continue;
    best = tile;
    least = std::max<int64_t>(cost, 1);
  }
  return best;
}

GroupedVectors GroupedVectorsFor(const GroupedMatMulCall& c, const GroupedAlignments& known) {
  const bool sums = c.sums_in_groups;
  return {.a = OperandVector(c.a, c.m, c.k, !sums, sums, c, c.in_dtype, known.a),
          .b = OperandVector(c.b, c.k, c.n, sums, false, c, c.in_dtype, known.b),
          .d = OperandVector(c.d, c.m, c.n, !sums, false, c, c.out_dtype, known.d)};
}

int64_t RowTiles(const GroupedTile& tile, const GroupedMatMulCall& c) {
  if (c.sums_in_groups) return CeilDiv(c.m, tile.rows);
  // Each group, and the rows behind the last, may end with a tile of one row.
  return std::min(c.m, (c.m + Product({c.groups + 1, tile.rows - 1})) / tile.rows);
}

int64_t ColumnTiles(const GroupedTile& tile, const GroupedMatMulCall& c) {
  return CeilDiv(c.n, tile.columns);
}

int64_t BlocksOf(const GroupedTile& tile, const GroupedMatMulCall& c) {
  return Product({c.sums_in_groups ? c.groups : 1, RowTiles(tile, c), ColumnTiles(tile, c)});
}

SharedPart SharedPartOfA(const GroupedTile& tile, const GroupedMatMulCall& c) {
  return Part(c.a.col_stride != 1, tile.rows, tile.depth, c.in_dtype);
}

SharedPart SharedPartOfB(const GroupedTile& tile, const GroupedMatMulCall& c) {
  return Part(c.b.col_stride == 1, tile.columns, tile.depth, c.in_dtype);
}

int64_t SumsPitch(const GroupedTile& tile, const GroupedMatMulCall& c) {
  return tile.columns + kPackBytes / SizeBytes(SumDType(c));
}

int64_t SharedBytes(const GroupedTile& tile, const GroupedMatMulCall& c) {
  const int64_t stage = SharedPartOfA(tile, c).elements() + SharedPartOfB(tile, c).elements();
  return std::max(Product({stage, tile.stages, SizeBytes(c.in_dtype)}),
                  Product({tile.rows, SumsPitch(tile, c), SizeBytes(SumDType(c))}));
}

}  // namespace retrograd
