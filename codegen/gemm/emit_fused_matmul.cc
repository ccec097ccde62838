// A product with its epilogue. On a GPU of NVIDIA's a warpgroup leaves the product's tile, rounded
// to the product's type, in shared memory (multiplier_prelude.h); elsewhere a block of 128 threads
// multiplies plainly, for the sake of the epilogue, which is the same text: a thread takes packs of
// 8 elements, some rows apart, asks for all that a batch of them reads, and then evaluates pack
// after pack.
#include "codegen/gemm/emit_fused_matmul.h"

#include <algorithm>

#include "codegen/preludes/multiplier_prelude.h"
#include "codegen/print/numbers/sized_number.h"
#include "codegen/print/point_printer.h"
#include "fusion/kernel/gemm/gemm_tile.h"
#include "fusion/kernel/ir/accesses/vector_access.h"
#include "fusion/ops/grouped_matmul/epilogue_product.h"
#include "fusion/ops/grouped_matmul/grouped_multiplier.h"
#include "fusion/ops/matmul/gemm_tile_legality.h"
#include "graph/base/status.h"

namespace retrograd {
namespace {

constexpr int kThreads = kGemmThreads;  // of an epilogue
// Registers that hold what a batch reads: half of what a thread has left.
constexpr int64_t kMostBatchBytes = 256;

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Whether the matrix's rows lie across the sum: its elements of one k are neighbours in memory.
bool LiesAcross(const MatrixOperand& operand, bool first) {
  return first ? operand.col_stride != 1 : operand.row_stride != 1;
}

class FusedMatMulPrinter {
 public:
  FusedMatMulPrinter(const Call& call, Dialect dialect)
      : product_(*EpilogueProductOf(call)),
        call_(product_.matmul),
        groups_(product_.groups ? &*product_.groups : nullptr),
        tile_(call.epilogue->tile),
        tiled_(dialect == Dialect::kCuda),
        rows_(CeilDiv(call_.m, tile_.m)),
        cols_(CeilDiv(call_.n, tile_.n)),
        packs_a_row_(tile_.n / kProductPack),
        launch_(call.epilogue->kernel, dialect, tiled_ ? kMultiplierThreads : kThreads, Blocks()),
        printer_(&launch_, kProductPack),
        ir_(call.epilogue->kernel.ir),
        out_(launch_.out),
        batch_(tile_.m * packs_a_row_ / kThreads) {}

  GroupKernels Print() {
    launch_.UseWideIndexAbove(2 * call_.m * call_.n);
    launch_.Operand("rg_a", call_.in_dtype, call_.a.value);
    launch_.Operand("rg_b", call_.in_dtype, call_.b.value);
    if (groups_ != nullptr) launch_.Operand("rg_ends", DType::kInt32, product_.ends);
    FindLoads();
    out_.SetDepth(1);
    if (tiled_ && groups_ != nullptr) {
      OpenMultiplierOfGroups();
    } else if (tiled_) {
      OpenMultiplier();
    } else {
      PrintPlainProduct();
    }
    PrintEpilogue();
    if (tiled_) {
      out_.Line("});");
    }
    return {.launches = {launch_.Finish("")}};
  }

 private:
  int64_t Blocks() const {
    if (!tiled_) return rows_ * cols_;
    const int64_t clusters =
        groups_ != nullptr ? ClustersOf(tile_, *groups_) : ClustersOf(tile_, call_.m, call_.n);
    return clusters * tile_.cluster();
  }

  // What is loaded ahead, as it lies in memory; the product's packs are taken from the tile.
  void FindLoads() {
    int64_t bytes = 0;
    for (size_t n = 0; n < ir_.instrs.size(); ++n) {
      const int i = static_cast<int>(n);
      const Instr& load = ir_.instrs[i];
      if (load.kind != InstrKind::kLoad) continue;
      const Buffer& buffer = ir_.buffers[load.buffer];
      if (buffer.value == call_.d.value) {
        printer_.SetStaged(
            i, {.array = "rg_tile",
                .place = absl::StrCat("(r * ", packs_a_row_, " + (c ^ (r & 7))) * ", kProductPack),
                .step = kProductPack});
      } else if (printer_.PackWidth(i) > 0) {
        ahead_.push_back(i);
        bytes += kProductPack * SizeBytes(buffer.dtype);
      }
    }
    while (batch_ > 1 && batch_ * bytes > kMostBatchBytes) batch_ /= 2;
  }

  // Returns the bytes of shared memory.
  int64_t StartMultiplier() {
    launch_.SetHead(KernelHead::kMultiplier, PreludePart::kMultiplier);
    launch_.SetCluster(tile_.cluster());
    const int64_t shared_bytes = SharedBytes(tile_);
    launch_.Staged(call_.in_dtype, "rg_memory", shared_bytes / SizeBytes(call_.in_dtype));
    return shared_bytes;
  }

  // A tile has rows of one group; those behind the last group are zeros, and have an epilogue, too.
  void OpenMultiplierOfGroups() {
    const int64_t shared_bytes = StartMultiplier();
    launch_.SetHead(KernelHead::kMultiplier, PreludePart::kGroupedTiles);
    const absl::string_view type = StorageName(call_.in_dtype);
    const std::string cluster = absl::StrCat(tile_.tall, ", ", tile_.wide);
    const std::string sides = absl::StrCat(tile_.m, ", ", tile_.n);
    out_.Line("static_assert(rg_multiply_shape<", tile_.stages, ", ", sides,
              ">::shared_bytes == ", shared_bytes, ");");
    out_.Line("rg_multiply_tiles<", type, ", ", type, ", 0, ", LiesAcross(call_.b, false), ", ",
              cluster, ", ", tile_.stages, ", ", sides, ">(");
    out_.Line("    &rg_map_a, &rg_map_b, rg_memory,");
    out_.Line("    rg_tiles_of_groups<", cluster, ", ", sides, ", 0, 1>(rg_ends + ",
              Sized(groups_->ends_offset), ", ", Sized(groups_->groups), ", ", Sized(call_.m), ", ",
              Sized(call_.n), ", ", Sized(call_.k), "), rg_no_scales(),");
    out_.Line("    [&](const ", type, "* rg_tile, const rg_product_tile& rg_at, const int t) {");
    out_.SetDepth(4);
    out_.Line("const int rg_row = rg_at.row, rg_col = rg_at.col;");
  }

  void OpenMultiplier() {
    const int64_t shared_bytes = StartMultiplier();
    const absl::string_view type = StorageName(call_.in_dtype);
    // The prelude's tile unless it is another.
    const bool own = tile_.m != GemmTile().m || tile_.n != GemmTile().n;
    const std::string shape =
        absl::StrCat(tile_.stages, own ? absl::StrCat(", ", tile_.m, ", ", tile_.n) : "");
    out_.Line("static_assert(rg_multiply_shape<", shape, ">::shared_bytes == ", shared_bytes, ");");
    out_.Line("rg_multiply<", type, ", ", LiesAcross(call_.a, true), ", ",
              LiesAcross(call_.b, false), ", ", tile_.tall, ", ", tile_.wide, ", ", shape, ">(");
    out_.Line("    &rg_map_a, &rg_map_b, rg_memory, ", Sized(call_.m), ", ", Sized(call_.n), ", ",
              Sized(call_.k), ",");
    out_.Line("    [&](const ", type,
              "* rg_tile, const int rg_row, const int rg_col, const int t) {");
  }

  std::string At(const MatrixOperand& operand, absl::string_view row, absl::string_view col) const {
    return absl::StrCat("int64_t(", Sized(operand.offset), ") + int64_t(", row, ") * ",
                        Sized(operand.row_stride), " + int64_t(", col, ") * ",
                        Sized(operand.col_stride));
  }

  void PrintPlainProduct() {
    launch_.Shared(call_.in_dtype, "rg_tile", tile_.m * tile_.n);
    out_.Line("const int rg_row = RG_BLOCK / ", Sized(cols_), " * ", tile_.m, ";");
    out_.Line("const int rg_col = RG_BLOCK % ", Sized(cols_), " * ", tile_.n, ", t = RG_THREAD;");
    out_.Open("for (int e = t; e < ", tile_.m * tile_.n, "; e += ", kThreads, ")");
    out_.Line("const int r = e / ", tile_.n, ", c = e % ", tile_.n, ";");
    out_.Line("float sum = 0;");
    out_.Open("if (rg_row + r < ", Sized(call_.m), " && rg_col + c < ", Sized(call_.n), ")");
    std::string right = At(call_.b, "k", "rg_col + c"), terms = absl::StrCat(Sized(call_.k));
    if (groups_ != nullptr) {
      PrintGroupOfRow();
      absl::StrAppend(&right, " + int64_t(rg_group) * ", Sized(groups_->b.group_stride));
      terms = absl::StrCat("rg_group < ", Sized(groups_->groups), " ? ", terms, " : 0");
      out_.Line("const int rg_terms = ", terms, ";");
      terms = "rg_terms";
    }
    out_.Line("for (int k = 0; k < ", terms, "; ++k) sum += rg_load(rg_a, ",
              At(call_.a, "rg_row + r", "k"), ") * rg_load(rg_b, ", right, ");");
    out_.Close();
    out_.Line("rg_store(rg_tile, (r * ", packs_a_row_, " + (c / ", kProductPack, " ^ (r & 7))) * ",
              kProductPack, " + c % ", kProductPack, ", sum);");
    out_.Close();
    launch_.Barrier();
  }

  // The group that has the row; the groups' number if none has it. An end below the one before it
  // ends an empty group.
  void PrintGroupOfRow() {
    out_.Line("int rg_group = 0;");
    out_.Line("while (rg_group < ", Sized(groups_->groups), " && rg_load(rg_ends, ",
              Sized(groups_->ends_offset), " + rg_group) <= rg_row + r) ++rg_group;");
  }

  // The innermost axis, if it counts the product's columns and the others its rows; else -1.
  int ColumnAxis() const {
    int last = static_cast<int>(ir_.extents.size()) - 1;
    while (last > 0 && ir_.extents[last] == 1) --last;
    return last >= 0 && ir_.extents[last] == call_.n ? last : -1;
  }

  // The pack's place in the tile, and the axes of its first point; of a pack outside of the product
  // those of the product's first point, so that loads stay inside.
  void PrintPlace(const AxisUse& used) {
    const bool whole = groups_ == nullptr && call_.m % (tile_.m * tile_.tall) == 0 &&
                       call_.n % (tile_.n * tile_.wide) == 0;
    out_.Line("const int r = (first + u) * ", kThreads / packs_a_row_, " + t / ", packs_a_row_,
              ", c = t % ", packs_a_row_, ";");
    if (!whole) {
      const std::string rows_end =
          groups_ != nullptr && tiled_ ? "rg_at.rows_end" : absl::StrCat(Sized(call_.m));
      out_.Line("const bool inside = rg_row + r < ", rows_end, " && rg_col + c * ", kProductPack,
                " < ", Sized(call_.n), ";");
      condition_ = "inside";
    }
    const auto place = [&](absl::string_view name, absl::string_view text) {
      const absl::string_view inside = whole ? "" : "inside ? ", outside = whole ? "" : " : 0";
      out_.Line("const ", launch_.index_type(), " ", name, " = ", inside, text, outside, ";");
    };
    const std::string column = absl::StrCat("rg_col + c * ", kProductPack);
    const int last = ColumnAxis();
    if (last < 0) {
      place("i", absl::StrCat("static_cast<", launch_.index_type(), ">(rg_row + r) * ",
                              Sized(call_.n), " + ", column));
      printer_.DeclareAxes(ir_.all_axes(), used, "i");
      return;
    }
    const AxisMask columns = AxisMask{1} << last, rows = ir_.all_axes() & ~columns;
    if ((used.axes & rows) != 0) {
      place("row", "rg_row + r");
      printer_.DeclareAxes(rows, used, "row");
    }
    if ((used.axes & columns) != 0) place(absl::StrCat("a", last), column);
  }

  void PrintEpilogue() {
    std::vector<int> roots, stores;
    for (size_t s = 0; s < ir_.stores.size(); ++s) {
      stores.push_back(static_cast<int>(s));
      roots.push_back(ir_.stores[s].instr);
    }
    out_.SetDepth(tiled_ ? 4 : 1);
    out_.Open("for (int first = 0; first < ", tile_.m * packs_a_row_ / kThreads,
              "; first += ", batch_, ")");
    for (int i : ahead_) {
      const int width = printer_.PackWidth(i);
      const int packs = kProductPack / width;
      out_.Line("rg_pack<", StorageName(ir_.buffers[ir_.instrs[i].buffer].dtype), ", ", width,
                "> q", i, "[", packs * batch_, "];");
      const std::string at = packs > 1 ? absl::StrCat("u * ", packs) : "u";
      printer_.SetHome(i, {.lane = absl::StrCat("rg_lane(q", i, "[", at, " + j / ", width,
                                                "], j % ", width, ")"),
                           .pack = absl::StrCat("q", i, " + ", at)});
    }
    if (!ahead_.empty()) {
      OpenPacks(printer_.UsedAxes(ahead_, {}, 0));
      printer_.Print({.instrs = ahead_, .reductions = {}, .stores = {}});
      out_.Close();
    }
    for (int i : ahead_) printer_.SetKnown(i, true);
    const std::vector<int> instrs = printer_.Needed(roots);
    OpenPacks(printer_.UsedAxes(instrs, stores, ir_.all_axes()));
    printer_.Print({.instrs = instrs,
                    .reductions = {},
                    .stores = stores,
                    .level = ir_.all_axes(),
                    .store_condition = condition_});
    out_.Close();
    out_.Close();
  }

  void OpenPacks(const AxisUse& used) {
    if (!launch_.OpenUnrolled("u", batch_)) {
      out_.OpenScope();
      out_.Line("constexpr int u = 0;");
    }
    PrintPlace(used);
  }

  const EpilogueProduct product_;
  const MatMulCall& call_;
  const GroupedMatMulCall* const groups_;  // null: one product
  const GemmTile tile_;
  const bool tiled_;
  const int64_t rows_, cols_;  // tiles
  const int packs_a_row_;      // of a tile
  LaunchText launch_;
  PointPrinter printer_;
  const KernelIr& ir_;
  SourceWriter& out_;
  std::vector<int> ahead_;
  int batch_;  // packs of a thread at once: all of them, if they are few bytes
  std::string condition_;
};

}  // namespace

GroupKernels EmitFusedMatMul(const Call& call, Dialect dialect) {
  RG_CHECK(call.epilogue && EpilogueProductOf(call));
  return FusedMatMulPrinter(call, dialect).Print();
}

}  // namespace retrograd
