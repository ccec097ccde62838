#include "codegen/grouped_matmul/emit_grouped_multiplier.h"

#include "absl/strings/str_cat.h"
#include "codegen/grouped_matmul/emit_grouped_matmul.h"
#include "codegen/preludes/multiplier_prelude.h"
#include "fusion/kernel/ir/scale.h"
#include "fusion/ops/grouped_matmul/grouped_multiplier.h"

namespace retrograd {
namespace {

constexpr int64_t kSectorBytes = 32;  // what the second-level cache is read by

// The pack of 16 bytes of a tile's row goes where the row lies, if its group has the row, or is
// added to what lies there.
constexpr char kStoreNarrow[] = R"(
    [&](const result_t* tile, const rg_product_tile& at, int t) {
      const auto to = d + (kDFirst + at.group * kDGroup + at.row * kDRow + at.col);
      for (int i = t; i < kRows * kPacks; i += kThreads) {
        const int row = i / kPacks, pack = i % kPacks;
        if (at.row + row >= at.rows_end || at.col + 8 * pack >= kN) continue;
        const int from = (row * kPacks + (pack ^ (row & 7))) * 8;
        const int64_t place = row * kDRow + 8 * pack;
        if (kAdds) {
          float sums[8], was[8];
          rg_load_vec<8>(tile, from, sums);
          rg_load_vec<8>(to, place, was);
          RG_UNROLL
          for (int e = 0; e < 8; ++e) sums[e] = was[e] + sums[e];
          rg_store_vec<8>(to, place, sums);
        } else {
          *reinterpret_cast<uint4*>(to + place) = *reinterpret_cast<const uint4*>(tile + from);
        }
      }
    });
)";

constexpr char kStoreSums[] = R"(
    [&](const auto& sums, const rg_product_tile& at, int warp, int lane) {
      const auto to = d + (kDFirst + at.group * kDGroup + at.row * kDRow + at.col);
      rg_store_sums<kAdds>(to, kDRow, at.rows_end - at.row, kN - at.col, sums, warp, lane);
    });
)";

class Writer {
 public:
  Writer(const GroupedMatMulCall& call, const GemmTile& tile)
      : w_(Dialect::kCuda, call.sums_in_groups ? "grouped_matmul by warpgroups, sums in groups"
                                               : "grouped_matmul by warpgroups, rows in groups"),
        c_(call),
        tile_(tile) {}

  LaunchWriter::Launch Write() {
    const int64_t shared_bytes = SharedBytes(tile_);
    const bool narrow = SizeBytes(c_.out_dtype) == kGemmElementBytes;
    w_.Multiplies(tile_.cluster());
    w_.Uses(PreludePart::kGroupedTiles);
    w_.Read(DType::kInt32, "ends", kGroupedEnds);
    if (c_.scaled) {
      w_.Read(DType::kFp32, "row_scales", kGroupedRowScales);
      w_.Read(DType::kFp32, "column_scales", kGroupedColumnScales);
    }
    w_.Write(c_.out_dtype, "d", kGroupedResult);
    w_.Staged(c_.in_dtype, "memory", shared_bytes / SizeBytes(c_.in_dtype));
    w_.out().Line("typedef ", StorageName(c_.in_dtype), " element_t;");
    w_.out().Line("typedef ", StorageName(c_.out_dtype), " result_t;");
    w_.Constants({{"kN", c_.n}, {"kAdds", c_.adds ? 1 : 0}});
    if (narrow) {
      const int rows = c_.scale_block > 0 ? kGemmBox : tile_.m;
      w_.Constants({{"kRows", rows}, {"kPacks", tile_.n / 8}, {"kThreads", kGemmThreads}});
    }
    w_.LongConstants({{"kEndsFirst", c_.ends_offset},
                      {"kDFirst", c_.d.offset},
                      {"kDGroup", c_.sums_in_groups ? c_.d.group_stride : 0},
                      {"kDRow", c_.d.row_stride}});
    Multiply(shared_bytes);
    w_.Text(narrow ? kStoreNarrow : kStoreSums);
    return w_.End(Product({ClustersOf(tile_, c_), tile_.cluster()}), kMultiplierThreads);
  }

 private:
  void Multiply(int64_t shared_bytes) {
    const std::string cluster = absl::StrCat(tile_.tall, ", ", tile_.wide);
    const std::string sides = absl::StrCat(tile_.m, ", ", tile_.n);
    w_.out().Line("typedef rg_tiles_of_groups<", cluster, ", ", sides, ", ",
                  c_.sums_in_groups ? 1 : 0, ", ", Unit(), "> tiles_t;");
    w_.out().Line("static_assert(rg_multiply_shape<", tile_.stages, ", ", sides,
                  ">::shared_bytes == ", shared_bytes, ");");
    const bool blocks = c_.scale_block > 0;
    w_.out().Line(blocks ? "rg_multiply_blocks" : "rg_multiply_tiles", "<element_t, result_t, ",
                  LiesAcross(c_.a.col_stride), ", ", LiesAcross(c_.b.row_stride), ", ", cluster,
                  ", ", tile_.stages, ", ", blocks ? absl::StrCat(tile_.n) : sides, ">(");
    w_.out().Line("    &rg_map_a, &rg_map_b, memory,");
    w_.out().Line("    tiles_t(ends + kEndsFirst, ", c_.groups, ", ", c_.m, ", kN, ", c_.k, "),");
    w_.out().Line("    ", Scales(), ",");
  }

  std::string Scales() const {
    if (!c_.scaled) return "rg_no_scales()";
    if (c_.scale_block > 0) return BlockScales();
    const auto first = [](absl::string_view name, const GroupedScales& s) {
      return absl::StrCat(name, " + ", s.offset);
    };
    const GroupedScales &rows = c_.row_scales, &columns = c_.column_scales;
    return absl::StrCat("rg_scales_of_groups<", c_.sums_in_groups ? 1 : 0, ", ",
                        c_.columns_scale_first ? 1 : 0, ">{", first("row_scales", rows), ", ",
                        first("column_scales", columns), ", ", rows.group_stride, ", ", rows.stride,
                        ", ", columns.group_stride, ", ", columns.stride, ", ", c_.groups, ", kN}");
  }

  std::string BlockScales() const {
    const GroupedScales &rows = c_.row_scales, &columns = c_.column_scales;
    return absl::StrCat("rg_scales_of_blocks<", c_.scale_block, ", ", rows.lines, ", ",
                        columns.lines, ">{row_scales + ", rows.offset, ", column_scales + ",
                        columns.offset, ", ", rows.stride, ", ", rows.block_stride, ", ",
                        columns.group_stride, ", ", columns.stride, ", ", columns.block_stride,
                        ", kN}");
  }

  // Terms that lie beside each other are loaded from a multiple of 16 bytes on, and from whole
  // sectors of the cache where the operand's lines begin there. (fp8, one H100, groups of 4,096:
  // 990 TFLOP/s from 16 bytes on, 1,198 from 32, 1,229 from 64, 1,241 from 128; of 512: 666, 624,
  // 585, 524.)
  int64_t Unit() const {
    if (c_.scale_block > 0) return StepOf(c_.in_dtype);  // of which each has terms of one block
    const bool a = LiesAcross(c_.a.col_stride) == 0, b = LiesAcross(c_.b.row_stride) == 0;
    if (!a && !b) return 1;
    const int64_t sector = kSectorBytes / SizeBytes(c_.in_dtype);
    const bool whole =
        (!a || c_.a.row_stride % sector == 0) && (!b || c_.b.col_stride % sector == 0);
    return whole ? sector : kCopiedBytes / SizeBytes(c_.in_dtype);
  }

  // Whether neighbours in memory are of one term of the sum, by the stride from term to term.
  static int LiesAcross(int64_t term_stride) { return term_stride != 1 ? 1 : 0; }

  LaunchWriter w_;
  const GroupedMatMulCall& c_;
  const GemmTile tile_;
};

}  // namespace

LaunchWriter::Launch EmitGroupedMultiplier(const GroupedMatMulCall& call, const GemmTile& tile) {
  return Writer(call, tile).Write();
}

}  // namespace retrograd
