#include "fusion/ops/matmul/matmul_tiles.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "fusion/kernel/ir/scale.h"

namespace retrograd {
namespace {

constexpr int64_t kPackBytes = 16;       // that a thread moves at once
constexpr int64_t kLibraryBytes = 4;     // that libraries still copy on their own
constexpr int64_t kSide = 16;            // of what a warp multiplies at once
constexpr int64_t kMostSide = 128;       // of a tile
constexpr int64_t kWholeSumBytes = 256;  // of a line of terms: shorter sums are one step
constexpr int64_t kStepBytes = 128;      // of a line of the terms of a step
constexpr int64_t kSquaresOfFourWarps = 16;
constexpr int64_t kMostSquaresOfWarp = 8;
constexpr int64_t kMost = int64_t{1} << 27;

int64_t Whole(int64_t extent) { return CeilDiv(extent, kSide) * kSide; }

int64_t BatchOf(const MatMulCall& call) {
  int64_t batch = 1;
  for (int64_t extent : call.batch) batch = Product({batch, extent});
  return batch;
}

bool HasLines(const MatrixOperand& m, int64_t rows, int64_t columns) {
  return RunsAlongRows(m, columns) || m.row_stride == 1 || rows <= 1;
}

// The sides that a tile may have along an extent: all of it, or parts of equal sizes.
std::vector<int64_t> SidesOf(int64_t extent) {
  const int64_t longest = extent <= kMostSide ? Whole(extent) : kMostSide;
  std::vector<int64_t> sides;
  for (int64_t parts = 1; parts <= longest / kSide; parts *= 2) {
    sides.push_back(Whole(CeilDiv(longest, parts)));
  }
  return sides;
}

// The most warps up to `most` that divide the tile evenly, each of them as square a part as that
// allows.
void ShareAmong(int most, MatMulTile* tile) {
  const int rows = tile->rows / static_cast<int>(kSide);
  const int columns = tile->columns / static_cast<int>(kSide);
  int best = 0, best_border = 0;
  for (int down = 1; down <= rows; ++down) {
    for (int along = 1; along <= columns && down * along <= most; ++along) {
      if (rows % down != 0 || columns % along != 0) continue;
      const int border = rows / down + columns / along;
      if (down * along < best || (down * along == best && border >= best_border)) continue;
      best = down * along, best_border = border;
      tile->warp_rows = down, tile->warp_columns = along;
    }
  }
}

// Four warps for a small tile, but where they divide it badly; eight for a large one. False: none
// of them have room for their sums.
bool ShareAmongWarps(MatMulTile* tile) {
  const int64_t squares = Product({tile->rows / kSide, tile->columns / kSide});
  if (squares <= kSquaresOfFourWarps) ShareAmong(4, tile);
  if (squares > kSquaresOfFourWarps || (squares > 4 && tile->warps() < 3)) ShareAmong(8, tile);
  return squares <= kMostSquaresOfWarp * tile->warps();
}

MatMulTile TileOf(int64_t rows, int64_t columns, const MatMulCall& call) {
  const int64_t size = SizeBytes(call.in_dtype);
  const bool whole = Whole(call.k) * size <= kWholeSumBytes;
  const int64_t depth = whole ? Whole(call.k) : std::max(kStepBytes / size, kSide);
  return {.rows = static_cast<int>(rows),
          .columns = static_cast<int>(columns),
          .depth = static_cast<int>(depth),
          .stages = call.k <= depth ? 1 : 2};
}

TilePart Part(bool across, int64_t other, int64_t depth, DType dtype) {
  TilePart part{.across = across};
  part.lines = across ? depth : other;
  part.width = across ? other : depth;
  part.pitch = part.width + kPackBytes / SizeBytes(dtype);
  return part;
}

// Elements of both operands that a block brings into shared memory.
int64_t LoadedBy(const MatMulTile& tile, const MatMulCall& call) {
  return Product({tile.rows + tile.columns, tile.depth, TileSteps(tile, call)});
}

// Rounds of blocks over the SMs, each as long as its products or its loads: an estimate in clocks,
// of 1,024 products and 64 bytes a clock and SM.
int64_t Cost(const MatMulTile& tile, const MatMulCall& call, int64_t sms) {
  constexpr int64_t kProducts = 1024, kBytes = 64, kBlock = 200;
  const int64_t products = Product({tile.rows, tile.columns, tile.depth, TileSteps(tile, call)});
  const int64_t loads = Product({LoadedBy(tile, call), SizeBytes(call.in_dtype)});
  const int64_t block = std::max(products / kProducts, loads / kBytes) + kBlock;
  return Product({CeilDiv(BlocksOf(tile, call), std::max<int64_t>(sms, 1)), block});
}

}  // namespace

bool RunsAlongRows(const MatrixOperand& m, int64_t columns) {
  return m.col_stride == 1 || columns <= 1;
}

std::string MatMulTile::Print() const {
  return absl::StrCat(rows, " x ", columns, " x ", depth, " tiles by ", warp_rows, " x ",
                      warp_columns, " warps, ", stages, stages == 1 ? " stage" : " stages");
}

absl::Status TiledMatMulRefusal(const MatMulCall& c) {
  const auto refuse = [&](absl::string_view why) {
    return absl::UnimplementedError(
        absl::StrCat("matmul of ", c.m, " x ", c.n, " x ", c.k, ": ", why));
  };
  for (const DType dtype : {c.in_dtype, c.out_dtype}) {
    if (IsFloat(dtype) && !IsFp8(dtype)) continue;
    return refuse("our tiles are of bf16, fp16, fp32 or fp64");
  }
  if ((c.in_dtype == DType::kFp64) != (c.out_dtype == DType::kFp64)) {
    return refuse("our tiles do not mix fp64 with other types");
  }
  if (!HasLines(c.a, c.m, c.k) || !HasLines(c.b, c.k, c.n) || !HasLines(c.d, c.m, c.n)) {
    return refuse("a matrix has no neighbours along rows or columns");
  }
  int64_t blocks = 1;
  for (int64_t extent : c.batch) blocks = Product({blocks, extent});
  blocks = Product({blocks, CeilDiv(c.m, kSide), CeilDiv(c.n, kSide)});
  if (std::max({c.m, c.n, c.k, blocks}) >= kMost) {
    return refuse("our tiles take extents and blocks of less than 2^27");
  }
  return absl::OkStatus();
}

std::vector<MatMulTile> MatMulTilesFor(const MatMulCall& call, const MatMulTileLimits& limits,
                                       size_t most) {
  std::vector<std::pair<int64_t, MatMulTile>> priced;
  for (int64_t rows : SidesOf(call.m)) {
    for (int64_t columns : SidesOf(call.n)) {
      MatMulTile tile = TileOf(rows, columns, call);
      while (tile.depth > kSide && TileSharedBytes(tile, call) > limits.shared_bytes) {
        tile.depth =
            std::max<int>(tile.depth / 2 / static_cast<int>(kSide), 1) * static_cast<int>(kSide);
        tile.stages = call.k <= tile.depth ? 1 : 2;
      }
      if (!ShareAmongWarps(&tile) || TileSharedBytes(tile, call) > limits.shared_bytes) continue;
      priced.emplace_back(Cost(tile, call, limits.sms), tile);
    }
  }
  std::stable_sort(priced.begin(), priced.end(),
                   [](const auto& x, const auto& y) { return x.first < y.first; });
  std::vector<MatMulTile> tiles;
  for (const auto& [cost, tile] : priced) {
    if (tiles.size() < most) tiles.push_back(tile);
  }
  return tiles;
}

int64_t BlocksOf(const MatMulTile& tile, const MatMulCall& call) {
  return Product({BatchOf(call), CeilDiv(call.m, tile.rows), CeilDiv(call.n, tile.columns)});
}

TilePart TilePartOfA(const MatMulTile& tile, const MatMulCall& c) {
  return Part(!RunsAlongRows(c.a, c.k), tile.rows, tile.depth, c.in_dtype);
}

TilePart TilePartOfB(const MatMulTile& tile, const MatMulCall& c) {
  return Part(RunsAlongRows(c.b, c.n), tile.columns, tile.depth, c.in_dtype);
}

int64_t LineAlignment(const MatrixOperand& m, int64_t columns, DType dtype, int64_t alignment) {
  const int64_t size = SizeBytes(dtype);
  int64_t bytes = std::gcd(std::gcd(kPackBytes, alignment), size * m.offset);
  bytes = std::gcd(bytes, size * (RunsAlongRows(m, columns) ? m.row_stride : m.col_stride));
  for (int64_t stride : m.batch_strides) bytes = std::gcd(bytes, size * stride);
  return bytes;
}

bool LinesAreAligned(const MatrixOperand& m, int64_t columns, DType dtype, int64_t alignment) {
  return LineAlignment(m, columns, dtype, alignment) == kPackBytes;
}

bool TileIsStoredDown(const MatMulCall& c) { return !RunsAlongRows(c.d, c.n); }

int64_t TileImagePitch(const MatMulTile& tile, const MatMulCall& c) {
  return (TileIsStoredDown(c) ? tile.rows : tile.columns) + kPackBytes / SizeBytes(c.out_dtype);
}

int64_t TileImageElements(const MatMulTile& tile, const MatMulCall& c) {
  return Product({TileIsStoredDown(c) ? tile.columns : tile.rows, TileImagePitch(tile, c)});
}

DType TileImageDType(const MatMulCall& c) { return c.accumulate ? TileSumDType(c) : c.out_dtype; }

int64_t TileSharedBytes(const MatMulTile& tile, const MatMulCall& c) {
  const int64_t stage = TilePartOfA(tile, c).elements() + TilePartOfB(tile, c).elements();
  return std::max(Product({stage, tile.stages, SizeBytes(c.in_dtype)}),
                  Product({TileImageElements(tile, c), SizeBytes(TileImageDType(c))}));
}

int64_t TileSteps(const MatMulTile& tile, const MatMulCall& call) {
  return CeilDiv(call.k, tile.depth);
}

DType TileSumDType(const MatMulCall& call) {
  return call.in_dtype == DType::kFp64 ? DType::kFp64 : DType::kFp32;
}

bool IsWorthTiles(const MatMulCall& call, const MatMulAlignments& known, int64_t sms) {
  const int64_t aligned = std::min({LineAlignment(call.a, call.k, call.in_dtype, known.a),
                                    LineAlignment(call.b, call.n, call.in_dtype, known.b),
                                    LineAlignment(call.d, call.n, call.out_dtype, known.d)});
  if (BatchOf(call) > 1) {
    return aligned < kPackBytes || (call.m <= kMostSide && call.n <= kMostSide);
  }
  const int64_t blocks = Product({CeilDiv(call.m, kMostSide), CeilDiv(call.n, kMostSide)});
  return aligned < kLibraryBytes && 2 * blocks >= sms;
}

}  // namespace retrograd
