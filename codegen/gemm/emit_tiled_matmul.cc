#include "codegen/gemm/emit_tiled_matmul.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "codegen/gemm/tiled_matmul_text.h"
#include "codegen/print/kernel_text.h"
#include "fusion/kernel/ir/scale.h"

namespace retrograd {
namespace {

constexpr int64_t kPackBytes = 16;  // that a thread moves at once

class Writer {
 public:
  Writer(const MatMulCall& call, const MatMulTile& tile, const MatMulAlignments& known,
         Dialect dialect, int warp)
      : w_(dialect, "matmul by tiles"),
        c_(call),
        tile_(tile),
        known_(known),
        a_(TilePartOfA(tile, call)),
        b_(TilePartOfB(tile, call)),
        threads_(Product({tile.warps(), warp})) {}

  LaunchWriter::Launch Write() {
    w_.Read(c_.in_dtype, "a", kTiledA);
    w_.Read(c_.in_dtype, "b", kTiledB);
    w_.Write(c_.out_dtype, "d", kTiledResult);
    w_.Uses(PreludePart::kTensorCores);
    w_.Uses(PreludePart::kParts);
    w_.Staged(c_.in_dtype, "tiles", Product({a_.elements() + b_.elements(), tile_.stages}));
    w_.Staged(TileImageDType(c_), "image", TileImageElements(tile_, c_));
    w_.out().Line("typedef ", ComputeName(TileSumDType(c_)), " sum_t;");
    w_.out().Line("typedef ", StorageName(c_.in_dtype), " element_t;");
    Extents();
    Schedule();
    Copies("A", a_, !LinesAreAligned(c_.a, c_.k, c_.in_dtype, known_.a));
    Copies("B", b_, !LinesAreAligned(c_.b, c_.n, c_.in_dtype, known_.b));
    Stores();
    Matrices();
    w_.Text(kTiledPlaces);
    w_.Text(kTiledOperands);
    w_.Text(kTiledImage);
    w_.Text(kTiledProduct);
    w_.Text(kTiledStore);
    w_.Text(VectorD() == 1 ? kTiledElement : c_.accumulate ? kTiledAddedPack : kTiledPack);
    w_.Text(kTiledStores);
    return w_.End(BlocksOf(tile_, c_), threads_);
  }

 private:
  void Extents() {
    w_.Constants({{"kM", c_.m}, {"kN", c_.n}, {"kTerms", c_.k}, {"kAdds", c_.accumulate ? 1 : 0}});
    Strides("A", c_.a, a_.across ? c_.a.col_stride : c_.a.row_stride);
    Strides("B", c_.b, b_.across ? c_.b.row_stride : c_.b.col_stride);
    Strides("D", c_.d, DownD() ? c_.d.col_stride : c_.d.row_stride);
  }

  void Strides(absl::string_view of, const MatrixOperand& m, int64_t line) {
    w_.LongConstants({{absl::StrCat("k", of, "Row"), m.row_stride},
                      {absl::StrCat("k", of, "Column"), m.col_stride},
                      {absl::StrCat("kLine", of), line}});
  }

  void Schedule() {
    const int64_t steps = CeilDiv(c_.k, tile_.depth);
    w_.Constants({{"kRows", tile_.rows},
                  {"kColumns", tile_.columns},
                  {"kDepth", tile_.depth},
                  {"kSteps", steps},
                  {"kStages", tile_.stages},
                  {"kWarpColumns", tile_.warp_columns},
                  {"kThreads", threads_},
                  {"kTileRows", tile_.rows / tile_.warp_rows / 16},
                  {"kTileColumns", tile_.columns / tile_.warp_columns / 16},
                  {"kRowTiles", CeilDiv(c_.m, tile_.rows)},
                  {"kColumnTiles", CeilDiv(c_.n, tile_.columns)},
                  {"kV", Pack(c_.in_dtype)},
                  {"kStageA", a_.elements()},
                  {"kStage", a_.elements() + b_.elements()},
                  {"kPitchD", TileImagePitch(tile_, c_)}});
  }

  void Copies(absl::string_view of, const TilePart& part, bool shifted) {
    const int64_t packs = part.width / Pack(c_.in_dtype);
    const int64_t copies = CeilDiv(part.lines * packs, threads_);
    w_.Constants({{absl::StrCat("kAcross", of), part.across ? 1 : 0},
                  {absl::StrCat("kPitch", of), part.pitch},
                  {absl::StrCat("kLines", of), part.lines},
                  {absl::StrCat("kPacks", of), packs},
                  {absl::StrCat("kCopies", of), copies},
                  {absl::StrCat("kShifted", of), shifted ? 1 : 0},
                  {absl::StrCat("kFetched", of), shifted ? copies : 1}});
  }

  void Stores() {
    const int64_t vector = VectorD();
    const bool odd = vector > 1 && !LinesAreAligned(c_.d, c_.n, c_.out_dtype, kPackBytes);
    const bool flat = odd && LinesFollowEachOther();
    const int64_t tile_lines = DownD() ? tile_.columns : tile_.rows;
    const int64_t tile_length = DownD() ? tile_.rows : tile_.columns;
    const int64_t length = flat ? (DownD() ? c_.m : c_.n) : tile_length;
    const int64_t lines = flat ? 1 : tile_lines;
    const int64_t stored = flat ? Product({tile_lines, length}) : length;
    w_.Constants({{"kVD", vector},
                  {"kOddD", odd ? 1 : 0},
                  {"kFlatD", flat ? 1 : 0},
                  {"kDownD", DownD() ? 1 : 0},
                  {"kLinesD", lines},
                  {"kLengthD", length},
                  {"kPacksD", CeilDiv(stored, vector) + (odd ? 1 : 0)}});
  }

  // Elements that are stored at once. Where the first one lies is known of an aligned tensor alone.
  int64_t VectorD() const { return known_.d % kPackBytes == 0 ? Pack(c_.out_dtype) : 1; }

  // Whether the lines that a tile stores are whole, without a gap between them.
  bool LinesFollowEachOther() const {
    return DownD() ? c_.d.col_stride == c_.m && tile_.rows >= c_.m
                   : c_.d.row_stride == c_.n && tile_.columns >= c_.n;
  }

  // The block's matrices begin at a0, b0 and d0.
  void Matrices() {
    std::string a = Text(c_.a.offset), b = Text(c_.b.offset), d = Text(c_.d.offset);
    w_.out().Line("[[maybe_unused]] int rest = RG_BLOCK / (kRowTiles * kColumnTiles);");
    for (size_t axis = c_.batch.size(); axis-- > 0;) {
      if (c_.batch[axis] == 1) continue;
      const std::string index = absl::StrCat("at", axis);
      w_.out().Line("const int ", index, " = rest % ", c_.batch[axis], ";");
      w_.out().Line("rest /= ", c_.batch[axis], ";");
      Add(&a, index, c_.a.batch_strides[axis]);
      Add(&b, index, c_.b.batch_strides[axis]);
      Add(&d, index, c_.d.batch_strides[axis]);
    }
    w_.out().Line("const int64_t a0 = ", a, ";");
    w_.out().Line("const int64_t b0 = ", b, ";");
    w_.out().Line("const int64_t d0 = ", d, ";");
  }

  static std::string Text(int64_t offset) { return absl::StrCat("int64_t(", offset, ")"); }
  static void Add(std::string* sum, absl::string_view index, int64_t stride) {
    if (stride != 0) absl::StrAppend(sum, " + ", index, " * ", Text(stride));
  }
  static int64_t Pack(DType dtype) { return kPackBytes / SizeBytes(dtype); }
  bool DownD() const { return TileIsStoredDown(c_); }

  LaunchWriter w_;
  const MatMulCall& c_;
  const MatMulTile tile_;
  const MatMulAlignments known_;
  const TilePart a_, b_;
  const int64_t threads_;
};

}  // namespace

LaunchWriter::Launch EmitTiledMatMul(const MatMulCall& call, const MatMulTile& tile,
                                     const MatMulAlignments& known, Dialect dialect, int warp) {
  return Writer(call, tile, known, dialect, warp).Write();
}

}  // namespace retrograd
