#include "codegen/grouped_matmul/emit_grouped_matmul.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "codegen/grouped_matmul/grouped_matmul_text.h"
#include "codegen/tile_products/tile_product_text.h"
#include "fusion/kernel/ir/scale.h"

namespace retrograd {
namespace {

constexpr int64_t kEndsAtOnce = 8;  // loads of the groups' ends under way

class Writer {
 public:
  Writer(const GroupedMatMulCall& call, const GroupedTile& tile, const GroupedVectors& vectors,
         Dialect dialect, int warp)
      : w_(dialect, call.sums_in_groups ? "grouped_matmul, sums in groups"
                                        : "grouped_matmul, rows in groups"),
        c_(call),
        tile_(tile),
        vectors_(vectors),
        a_(SharedPartOfA(tile, call)),
        b_(SharedPartOfB(tile, call)),
        threads_(Product({tile.warps(), warp})) {}

  LaunchWriter::Launch Write() {
    w_.Read(c_.in_dtype, "a", kGroupedA);
    w_.Read(c_.in_dtype, "b", kGroupedB);
    w_.Read(DType::kInt32, "ends", kGroupedEnds);
    if (c_.scaled) {
      w_.Read(SumDType(c_), "row_scales", kGroupedRowScales);
      w_.Read(SumDType(c_), "column_scales", kGroupedColumnScales);
    }
    w_.Write(c_.out_dtype, "d", kGroupedResult);
    w_.Uses(PreludePart::kTensorCores);
    w_.Staged(c_.in_dtype, "tiles", Product({a_.elements() + b_.elements(), tile_.stages}));
    w_.Staged(SumDType(c_), "results", Product({tile_.rows, SumsPitch(tile_, c_)}));
    Types();
    Extents();
    Schedule();
    w_.Text(kGroupOfBlock);
    if (c_.scaled) Scales("kRowScales", c_.row_scales), Scales("kColumnScales", c_.column_scales);
    w_.Text(kGroupedOperands);
    if (c_.scale_block > 0) w_.Text(kGroupedBlocks);
    w_.Text(TileProduct(c_.scale_block > 0 ? kGroupedBlockEnds : ""));
    w_.Text(c_.scaled && c_.scale_block == 0 ? kGroupedScales : kGroupedNoScales);
    w_.Text(kGroupedStore);
    return w_.End(BlocksOf(tile_, c_), threads_);
  }

 private:
  // Offsets inside a step of a tile.
  void Types() {
    const auto reach = [&](const GroupedMatrix& m, int64_t rows, int64_t columns) {
      return Product({rows, m.row_stride}) + Product({columns, m.col_stride});
    };
    const int64_t most =
        std::max(reach(c_.a, tile_.rows, tile_.depth), reach(c_.b, tile_.depth, tile_.columns));
    const bool wide = most > std::numeric_limits<int32_t>::max();
    w_.out().Line("typedef ", ComputeName(SumDType(c_)), " sum_t;");
    w_.out().Line("typedef ", wide ? "int64_t" : "int", " offset_t;");
  }

  void Extents() {
    w_.Constants({{"kSumsInGroups", c_.sums_in_groups ? 1 : 0},
                  {"kGroups", c_.groups},
                  {"kPlaces", c_.grouped()},
                  {"kM", c_.m},
                  {"kN", c_.n},
                  {"kTerms", c_.k},
                  {"kTermsBegin", c_.scale_block > 0 ? tile_.depth : 1},
                  {"kAdds", c_.adds ? 1 : 0}});
    Places("kA", c_.a);
    Places("kB", c_.b);
    Places("kD", c_.d);
    w_.LongConstants({{"kEndsFirst", c_.ends_offset}});
  }

  void Places(absl::string_view prefix, const GroupedMatrix& m) {
    w_.LongConstants({{absl::StrCat(prefix, "First"), m.offset},
                      {absl::StrCat(prefix, "Group"), m.group_stride},
                      {absl::StrCat(prefix, "Row"), m.row_stride},
                      {absl::StrCat(prefix, "Column"), m.col_stride}});
  }

  void Scales(absl::string_view prefix, const GroupedScales& scales) {
    w_.LongConstants({{absl::StrCat(prefix, "First"), scales.offset},
                      {absl::StrCat(prefix, "Group"), scales.group_stride},
                      {absl::StrCat(prefix, "Step"), scales.stride}});
    if (c_.scale_block == 0) return;
    w_.LongConstants({{absl::StrCat(prefix, "Block"), scales.block_stride},
                      {absl::StrCat(prefix, "Lines"), scales.lines}});
  }

  void Schedule() {
    if (c_.scale_block > 0) w_.Constants({{"kScaleBlock", c_.scale_block}});
    const bool down = c_.d.col_stride != 1;
    w_.Constants({{"kRows", tile_.rows},
                  {"kColumns", tile_.columns},
                  {"kDepth", tile_.depth},
                  {"kStages", tile_.stages},
                  {"kPieces", tile_.depth / 16},
                  {"kWarpColumns", tile_.warp_columns},
                  {"kSlices", 1},
                  {"kThreads", threads_},
                  {"kTileRows", tile_.rows / tile_.warp_rows / 16},
                  {"kTileColumns", tile_.columns / tile_.warp_columns / 16},
                  {"kRowTiles", RowTiles(tile_, c_)},
                  {"kColumnTiles", ColumnTiles(tile_, c_)},
                  {"kEndsAtOnce", kEndsAtOnce},
                  {"kPitchD", SumsPitch(tile_, c_)},
                  {"kStageA", a_.elements()},
                  {"kStage", a_.elements() + b_.elements()},
                  {"kVD", vectors_.d},
                  {"kVDAlong", down ? 1 : vectors_.d},
                  {"kVDDown", down ? vectors_.d : 1},
                  {"kDownD", down ? 1 : 0}});
    Copies("A", a_, vectors_.a);
    Copies("B", b_, vectors_.b);
  }

  void Copies(absl::string_view of, const SharedPart& part, int vector) {
    const int64_t packs = part.width / vector;
    w_.Constants({{absl::StrCat("kAcross", of), part.across ? 1 : 0},
                  {absl::StrCat("kPitch", of), part.pitch},
                  {absl::StrCat("kV", of), vector},
                  {absl::StrCat("kLines", of), part.lines},
                  {absl::StrCat("kPacks", of), packs},
                  {absl::StrCat("kCopies", of), CeilDiv(part.lines * packs, threads_)}});
  }

  LaunchWriter w_;
  const GroupedMatMulCall& c_;
  const GroupedTile tile_;
  const GroupedVectors vectors_;
  const SharedPart a_, b_;
  const int64_t threads_;
};

}  // namespace

LaunchWriter::Launch EmitGroupedMatMul(const GroupedMatMulCall& call, const GroupedTile& tile,
                                       const GroupedVectors& vectors, Dialect dialect, int warp) {
  return Writer(call, tile, vectors, dialect, warp).Write();
}

}  // namespace retrograd
