// Loads that run along another axis than the stores: a block takes a square tile over both axes,
// reads it along the loads' axis into shared memory, and evaluates its points along the stores'.
// Of a wide tile it evaluates the points along the loads' axis, and the results pass through shared
// memory, by accesses of several elements on either side.
#include <numeric>

#include "absl/strings/str_cat.h"
#include "codegen/print/point_printer.h"
#include "codegen/print/sized_number.h"
#include "codegen/templates/templates.h"
#include "fusion/kernel/ir/scale.h"
#include "fusion/kernel/ir/transposed.h"
#include "fusion/kernel/ir/vector_access.h"
#include "graph/base/status.h"

namespace retrograd {
namespace {

constexpr int kTile = kTransposeTile;

class WideWriter {
 public:
  WideWriter(const KernelBody& body, const WideTiles& tiles, Dialect dialect)
      : ir_(body.ir),
        tiles_(tiles),
        slow_(tiles.axis),
        fast_(FastestAxis(body.ir)),
        launch_(body, dialect, body.schedule.threads, body.schedule.blocks),
        printer_(&launch_, {.axis = tiles.axis, .width = tiles.width}),
        out_(launch_.out),
        index_(launch_.index_type()) {}

  Kernel Write() {
    launch_.UseWideIndexAbove(launch_.blocks() + ir_.extents[slow_] + ir_.extents[fast_] +
                              tiles_.slow() + tiles_.fast());
    index_ = launch_.index_type();
    for (const Store& s : ir_.stores) roots_.push_back(s.instr);
    needed_ = printer_.Needed(roots_);
    stores_.resize(ir_.stores.size());
    std::iota(stores_.begin(), stores_.end(), 0);
    out_.SetDepth(1);
    DeclarePlaces();
    for (int s : stores_) {
      const DType dtype = ir_.buffers[ir_.stores[s].buffer].dtype;
      launch_.Shared(dtype, absl::StrCat("tile", s), tiles_.slow() * tiles_.pitch());
    }
    Evaluate();
    launch_.Barrier();
    for (int s : stores_) StoreTile(s);
    return launch_.Finish("");
  }

 private:
  static constexpr int kRows = WideTiles::kRows;

  void DeclarePlaces() {
    const int64_t slow_tiles = CeilDiv(ir_.extents[slow_], tiles_.slow());
    const int64_t fast_tiles = CeilDiv(ir_.extents[fast_], tiles_.fast());
    const AxisMask tile_axes = AxisMask{1} << slow_ | AxisMask{1} << fast_;
    const AxisMask outer = ir_.all_axes() & ~tile_axes;
    RG_CHECK(launch_.blocks() == ir_.Points(outer) * slow_tiles * fast_tiles &&
             launch_.threads() * tiles_.width * kRows == tiles_.slow() * tiles_.fast());
    out_.Line("const ", index_, " fast0 = static_cast<", index_, ">(RG_BLOCK % ", Sized(fast_tiles),
              ") * ", tiles_.fast(), ";");
    out_.Line("const ", index_, " slow0 = static_cast<", index_, ">(RG_BLOCK / ", Sized(fast_tiles),
              " % ", Sized(slow_tiles), ") * ", tiles_.slow(), ";");
    const AxisMask used = printer_.UsedAxes(needed_, stores_, ir_.all_axes());
    if ((used & outer) == 0) return;
    out_.Line("const ", index_, " o = RG_BLOCK / ", Sized(fast_tiles * slow_tiles), ";");
    printer_.DeclareAxes(outer, used, "o");
  }

  // Of 32 threads 4 lie side by side along the loads' axis and 8 along the stores': loads are of
  // whole sectors, and lines of the tile in different banks.
  void Evaluate() {
    const int64_t across = tiles_.slow() / tiles_.width / 4;
    out_.Line("const int team = RG_THREAD / 32;");
    out_.Line("const int s0 = (team % ", across, " * 4 + RG_THREAD % 4) * ", tiles_.width, ";");
    out_.Line("const int f0 = (team / ", across, " * 8 + RG_THREAD % 32 / 4) * ", kRows, ";");
    out_.Line("const ", index_, " a", slow_, " = slow0 + s0;");
    out_.Open("if (a", slow_, " < ", Sized(ir_.extents[slow_]), " && fast0 + f0 < ",
              Sized(ir_.extents[fast_]), ")");
    for (int s : stores_) {
      out_.Line(ComputeName(ir_.instrs[ir_.stores[s].instr].dtype), " held", s, "[",
                tiles_.width * kRows, "];");
    }
    LoadPacks();
    OpenRows();
    printer_.Print(
        {.instrs = printer_.Needed(roots_), .reductions = {}, .stores = {}, .keep = true});
    launch_.OpenUnrolled("j", tiles_.width);
    for (int s : stores_) {
      out_.Line("held", s, "[j * ", kRows, " + r] = ", printer_.Ref(ir_.stores[s].instr), ";");
    }
    out_.Close();
    out_.Close();
    launch_.OpenUnrolled("j", tiles_.width);
    for (int s : stores_) {
      out_.Line(VectorStoreName(ir_, ir_.stores[s]), "<", kRows, ">(tile", s, ", (s0 + j) * ",
                tiles_.pitch(), " + f0, held", s, " + j * ", kRows, ");");
    }
    out_.Close();
    out_.Close();
  }

  void OpenRows() {
    launch_.OpenUnrolled("r", kRows);
    out_.Line("const ", index_, " a", fast_, " = fast0 + f0 + r;");
  }

  // What can be kept as it lies in memory is loaded of all rows before any is evaluated.
  void LoadPacks() {
    std::vector<int> packed;
    for (int i : needed_) {
      const int width = printer_.PackWidth(i);
      if (width == 0) continue;
      packed.push_back(i);
      const int packs = tiles_.width / width;
      out_.Line("rg_pack<", StorageName(ir_.buffers[ir_.instrs[i].buffer].dtype), ", ", width,
                "> q", i, "[", kRows * packs, "];");
      printer_.SetHome(i, {.lane = absl::StrCat("rg_lane(q", i, "[r * ", packs, " + j / ", width,
                                                "], j % ", width, ")"),
                           .base = "",
                           .pack = absl::StrCat("q", i, " + r * ", packs)});
    }
    if (packed.empty()) return;
    OpenRows();
    printer_.Print({.instrs = packed, .reductions = {}, .stores = {}});
    out_.Close();
    for (int i : packed) printer_.SetKnown(i, true);
  }

  void StoreTile(int s) {
    const Store& store = ir_.stores[s];
    const int width = WideStoreWidth(ir_, store);
    const int64_t in_line = tiles_.fast() / width;
    const int64_t turns = tiles_.slow() * in_line / launch_.threads();
    RG_CHECK(turns > 0);
    if (!launch_.OpenUnrolled("n", turns)) out_.OpenScope();
    out_.Line("const int place = ", turns > 1 ? absl::StrCat("n * ", launch_.threads(), " + ") : "",
              "RG_THREAD;");
    out_.Line("const int s = place / ", in_line, ", f = place % ", in_line, " * ", width, ";");
    out_.Line("const ", index_, " a", slow_, " = slow0 + s;");
    out_.Line("const ", index_, " a", fast_, " = fast0 + f;");
    out_.Open("if (a", slow_, " < ", Sized(ir_.extents[slow_]), " && a", fast_, " < ",
              Sized(ir_.extents[fast_]), ")");
    out_.Line("rg_store_from<", width, ", ", kRows, ">(", launch_.BufferName(store.buffer), ", ",
              printer_.Text(store.offset), ", tile", s, ", s * ", tiles_.pitch(), " + f);");
    out_.Close();
    out_.Close();
  }

  const KernelIr& ir_;
  const WideTiles tiles_;
  const int slow_, fast_;
  LaunchText launch_;
  PointPrinter printer_;
  SourceWriter& out_;
  absl::string_view index_;
  std::vector<int> roots_, needed_, stores_;
};

}  // namespace

GroupKernels EmitTranspose(const KernelBody& body, Dialect dialect) {
  if (body.schedule.vector_width > 1) {
    const std::optional<WideTiles> tiles = WideTilesOf(body.ir);
    RG_CHECK(tiles.has_value() && tiles->width == body.schedule.vector_width);
    return {.launches = {WideWriter(body, *tiles, dialect).Write()}};
  }
  const KernelIr& ir = body.ir;
  const int fast = FastestAxis(ir);
  const std::optional<int> found = TransposedAxis(ir);
  RG_CHECK(found.has_value() && body.schedule.threads % kTile == 0);
  const int slow = *found;
  const int64_t slow_tiles = (ir.extents[slow] + kTile - 1) / kTile;
  const int64_t fast_tiles = (ir.extents[fast] + kTile - 1) / kTile;
  const AxisMask tile_axes = AxisMask{1} << slow | AxisMask{1} << fast;
  const AxisMask outer = ir.all_axes() & ~tile_axes;
  RG_CHECK(body.schedule.blocks == ir.Points(outer) * slow_tiles * fast_tiles);

  LaunchText launch(body, dialect, body.schedule.threads, body.schedule.blocks);
  launch.UseWideIndexAbove(body.schedule.blocks + ir.extents[slow] + ir.extents[fast] + 2 * kTile);
  PointPrinter printer(&launch, 1);
  SourceWriter& out = launch.out;
  const absl::string_view index = launch.index_type();
  const std::vector<int> loads = TransposedLoads(ir, slow);
  const int step = body.schedule.threads / kTile;
  std::vector<int> roots, stores(ir.stores.size());
  std::iota(stores.begin(), stores.end(), 0);
  for (const Store& s : ir.stores) roots.push_back(s.instr);

  out.SetDepth(1);
  out.Line("const int lane = RG_THREAD % ", kTile, ", first = RG_THREAD / ", kTile, ";");
  out.Line("const ", index, " fast0 = static_cast<", index, ">(RG_BLOCK % ", Sized(fast_tiles),
           ") * ", kTile, ";");
  out.Line("const ", index, " slow0 = static_cast<", index, ">(RG_BLOCK / ", Sized(fast_tiles),
           " % ", Sized(slow_tiles), ") * ", kTile, ";");
  const AxisMask used = printer.UsedAxes(printer.Needed(roots), stores, ir.all_axes());
  if ((used & outer) != 0) {
    out.Line("const ", index, " o = RG_BLOCK / ", Sized(fast_tiles * slow_tiles), ";");
    printer.DeclareAxes(outer, used, "o");
  }
  // One element more a line than needed: a column of the tile then lies in different banks.
  for (int i : loads) {
    launch.Shared(ComputeType(ir.instrs[i].dtype), absl::StrCat("tile", i), kTile * (kTile + 1));
  }
  auto in_tile = [&](absl::string_view s, absl::string_view f) {
    out.Line("const ", index, " a", slow, " = slow0 + ", s, ";");
    out.Line("const ", index, " a", fast, " = fast0 + ", f, ";");
    out.Open("if (a", slow, " < ", Sized(ir.extents[slow]), " && a", fast, " < ",
             Sized(ir.extents[fast]), ")");
  };

  out.Open("for (int n = first; n < ", kTile, "; n += ", step, ")");
  in_tile("lane", "n");
  for (int i : loads) {
    printer.SetHome(i,
                    {.lane = absl::StrCat("tile", i, "[n * ", kTile + 1, " + lane]"), .base = ""});
  }
  printer.Print({.instrs = loads, .reductions = {}, .stores = {}});
  out.Close();
  out.Close();
  launch.Barrier();
  for (int i : loads) {
    printer.SetHome(i,
                    {.lane = absl::StrCat("tile", i, "[lane * ", kTile + 1, " + n]"), .base = ""});
    printer.SetKnown(i, true);
  }
  out.Open("for (int n = first; n < ", kTile, "; n += ", step, ")");
  in_tile("n", "lane");
  printer.Print({.instrs = printer.Needed(roots),
                 .reductions = {},
                 .stores = stores,
                 .level = ir.all_axes()});
  out.Close();
  out.Close();
  return {.launches = {launch.Finish("")}};
}

}  // namespace retrograd
