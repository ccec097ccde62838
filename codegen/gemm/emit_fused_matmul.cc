// A product with its epilogue. On a GPU of NVIDIA's a warpgroup leaves the product's tile, rounded
// to the product's type, in shared memory (multiplier_prelude.h); elsewhere a block of 128 threads
// multiplies plainly, for the sake of the epilogue, which is the same text: a thread takes packs of
// 8 elements, 8 rows apart, asks for all that a batch of them reads, and then evaluates pack after
// pack.
#include "codegen/gemm/emit_fused_matmul.h"

#include <algorithm>

#include "codegen/preludes/multiplier_prelude.h"
#include "codegen/print/point_printer.h"
#include "fusion/kernel/ir/vector_access.h"
#include "fusion/ops/matmul/gemm_tile_legality.h"
#include "graph/base/status.h"

namespace retrograd {
namespace {

constexpr int kThreads = 128;  // of an epilogue
constexpr int kPacksARow = kProductTile / kProductPack;
constexpr int kPacksAThread = kProductTile * kPacksARow / kThreads;
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
      : call_(MatMulOf(call)),
        tiled_(dialect == Dialect::kCuda),
        rows_(CeilDiv(call_.m, kProductTile)),
        cols_(CeilDiv(call_.n, kProductTile)),
        wide_(cols_ > 1 ? 2 : 1),
        launch_(call.epilogue->kernel, dialect, tiled_ ? kMultiplierThreads : kThreads, Blocks()),
        printer_(&launch_, kProductPack),
        ir_(call.epilogue->kernel.ir),
        out_(launch_.out) {}

  GroupKernels Print() {
    launch_.UseWideIndexAbove(2 * call_.m * call_.n);
    launch_.Operand("rg_a", call_.in_dtype, call_.a.value);
    launch_.Operand("rg_b", call_.in_dtype, call_.b.value);
    FindLoads();
    out_.SetDepth(1);
    if (tiled_) {
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
    return CeilDiv(rows_, 3 - wide_) * CeilDiv(cols_, wide_) * kMultiplierCluster;
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
                .place = absl::StrCat("(r * ", kPacksARow, " + (c ^ (r & 7))) * ", kProductPack),
                .step = kProductPack});
      } else if (printer_.PackWidth(i) > 0) {
        ahead_.push_back(i);
        bytes += kProductPack * SizeBytes(buffer.dtype);
      }
    }
    while (batch_ > 1 && batch_ * bytes > kMostBatchBytes) batch_ /= 2;
  }

  void OpenMultiplier() {
    launch_.SetHead(KernelHead::kMultiplier, PreludePart::kMultiplier);
    launch_.Staged(call_.in_dtype, "rg_memory", kMultiplierSharedBytes / SizeBytes(call_.in_dtype));
    const absl::string_view type = StorageName(call_.in_dtype);
    out_.Line("static_assert(rg_multiply_shape<", kMultiplierStages,
              ">::shared_bytes == ", kMultiplierSharedBytes, ");");
    out_.Line("rg_multiply<", type, ", ", LiesAcross(call_.a, true), ", ",
              LiesAcross(call_.b, false), ", ", 3 - wide_, ", ", wide_, ", ", kMultiplierStages,
              ">(");
    out_.Line("    &rg_map_a, &rg_map_b, rg_memory, ", call_.m, ", ", call_.n, ", ", call_.k, ",");
    out_.Line("    [&](const ", type,
              "* rg_tile, const int rg_row, const int rg_col, const int t) {");
  }

  std::string At(const MatrixOperand& operand, absl::string_view row, absl::string_view col) const {
    return absl::StrCat("int64_t(", operand.offset, ") + int64_t(", row, ") * ", operand.row_stride,
                        " + int64_t(", col, ") * ", operand.col_stride);
  }

  void PrintPlainProduct() {
    launch_.Shared(call_.in_dtype, "rg_tile", kProductTile * kProductTile);
    out_.Line("const int rg_row = RG_BLOCK / ", cols_, " * ", kProductTile, ";");
    out_.Line("const int rg_col = RG_BLOCK % ", cols_, " * ", kProductTile, ", t = RG_THREAD;");
    out_.Open("for (int e = t; e < ", kProductTile * kProductTile, "; e += ", kThreads, ")");
    out_.Line("const int r = e / ", kProductTile, ", c = e % ", kProductTile, ";");
    out_.Line("float sum = 0;");
    out_.Open("if (rg_row + r < ", call_.m, " && rg_col + c < ", call_.n, ")");
    out_.Line("for (int k = 0; k < ", call_.k, "; ++k) sum += rg_load(rg_a, ",
              At(call_.a, "rg_row + r", "k"), ") * rg_load(rg_b, ", At(call_.b, "k", "rg_col + c"),
              ");");
    out_.Close();
    out_.Line("rg_store(rg_tile, (r * ", kPacksARow, " + (c / ", kProductPack, " ^ (r & 7))) * ",
              kProductPack, " + c % ", kProductPack, ", sum);");
    out_.Close();
    launch_.Barrier();
  }

  // The pack's place in the tile, and the number of its first point; of a pack outside of the
  // product the first point's, so that loads stay inside.
  void PrintPlace() {
    const bool whole =
        call_.m % (kProductTile * (3 - wide_)) == 0 && call_.n % (kProductTile * wide_) == 0;
    out_.Line("const int r = (first + u) * ", kThreads / kPacksARow, " + t / ", kPacksARow,
              ", c = t % ", kPacksARow, ";");
    const std::string number =
        absl::StrCat("static_cast<", launch_.index_type(), ">(rg_row + r) * ", call_.n,
                     " + rg_col + c * ", kProductPack);
    if (whole) {
      out_.Line("const ", launch_.index_type(), " i = ", number, ";");
      return;
    }
    out_.Line("const bool inside = rg_row + r < ", call_.m, " && rg_col + c * ", kProductPack,
              " < ", call_.n, ";");
    out_.Line("const ", launch_.index_type(), " i = inside ? ", number, " : 0;");
    condition_ = "inside";
  }

  void PrintEpilogue() {
    std::vector<int> roots, stores;
    for (size_t s = 0; s < ir_.stores.size(); ++s) {
      stores.push_back(static_cast<int>(s));
      roots.push_back(ir_.stores[s].instr);
    }
    out_.SetDepth(tiled_ ? 4 : 1);
    out_.Open("for (int first = 0; first < ", kPacksAThread, "; first += ", batch_, ")");
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
      OpenPacks();
      printer_.DeclareAxes(ir_.all_axes(), printer_.UsedAxes(ahead_, {}, 0), "i");
      printer_.Print({.instrs = ahead_, .reductions = {}, .stores = {}});
      out_.Close();
    }
    for (int i : ahead_) printer_.SetKnown(i, true);
    OpenPacks();
    const std::vector<int> instrs = printer_.Needed(roots);
    printer_.DeclareAxes(ir_.all_axes(), printer_.UsedAxes(instrs, stores, ir_.all_axes()), "i");
    printer_.Print({.instrs = instrs,
                    .reductions = {},
                    .stores = stores,
                    .level = ir_.all_axes(),
                    .store_condition = condition_});
    out_.Close();
    out_.Close();
  }

  void OpenPacks() {
    if (!launch_.OpenUnrolled("u", batch_)) {
      out_.OpenScope();
      out_.Line("constexpr int u = 0;");
    }
    PrintPlace();
  }

  const MatMulCall call_;
  const bool tiled_;
  const int64_t rows_, cols_;  // tiles
  const int64_t wide_;         // tiles of a cluster, side by side; else one below the other
  LaunchText launch_;
  PointPrinter printer_;
  const KernelIr& ir_;
  SourceWriter& out_;
  std::vector<int> ahead_;
  int batch_ = kPacksAThread;  // packs of a thread at once
  std::string condition_;
};

}  // namespace

GroupKernels EmitFusedMatMul(const Call& call, Dialect dialect) {
  RG_CHECK(call.epilogue && WhyNoTiles(MatMulOf(call)).empty());
  return FusedMatMulPrinter(call, dialect).Print();
}

}  // namespace retrograd
