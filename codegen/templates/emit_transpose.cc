// Accesses along two axes: a block takes a square tile over both, reads what runs along the slow
// one into shared memory, evaluates its points along the fast one, and stores what runs along the
// slow one from shared memory. Of a wide tile it evaluates the points along the loads' axis, and
// the results pass through shared memory, by accesses of several elements on either side.
#include <algorithm>
#include <numeric>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "codegen/print/numbers/sized_number.h"
#include "codegen/print/point_printer.h"
#include "codegen/templates/templates.h"
#include "fusion/kernel/ir/accesses/transposed.h"
#include "fusion/kernel/ir/accesses/vector_access.h"
#include "fusion/kernel/ir/scale.h"
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
    const AxisUse used = printer_.UsedAxes(needed_, stores_, ir_.all_axes());
    if ((used.axes & outer) == 0) return;
    out_.Line("const ", index_, " o = RG_BLOCK / ", Sized(fast_tiles * slow_tiles), ";");
    printer_.DeclareAxes(outer, used, "o");
  }

  // Of 32 threads 4 lie side by side along the loads' axis and 8 along the stores', or more and
  // fewer where these are short: loads are of whole sectors, and lines of the tile in different
  // banks.
  void Evaluate() {
    const int64_t down = std::min<int64_t>(8, tiles_.fast() / kRows), beside = 32 / down;
    const int64_t across = tiles_.slow() / tiles_.width / beside;
    out_.Line("const int team = RG_THREAD / 32;");
    out_.Line("const int s0 = (team % ", across, " * ", beside, " + RG_THREAD % ", beside, ") * ",
              tiles_.width, ";");
    out_.Line("const int f0 = (team / ", across, " * ", down, " + RG_THREAD % 32 / ", beside,
              ") * ", kRows, ";");
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

  // What can be kept as it lies in memory is loaded of all rows before any is evaluated; once, if
  // it is the same in all of them.
  void LoadPacks() {
    std::vector<int> of_rows, of_all;
    for (int i : needed_) {
      const int width = printer_.PackWidth(i);
      if (width == 0) continue;
      const bool by_row = (ir_.instrs[i].axes >> fast_ & 1) != 0;
      (by_row ? of_rows : of_all).push_back(i);
      const int packs = tiles_.width / width;
      const std::string first = by_row ? absl::StrCat("r * ", packs) : "0";
      out_.Line("rg_pack<", StorageName(ir_.buffers[ir_.instrs[i].buffer].dtype), ", ", width,
                "> q", i, "[", by_row ? kRows * packs : packs, "];");
      printer_.SetHome(i, {.lane = absl::StrCat("rg_lane(q", i, "[", first, " + j / ", width,
                                                "], j % ", width, ")"),
                           .base = "",
                           .pack = absl::StrCat("q", i, " + ", first)});
    }
    if (!of_all.empty()) printer_.Print({.instrs = of_all, .reductions = {}, .stores = {}});
    if (!of_rows.empty()) {
      OpenRows();
      printer_.Print({.instrs = of_rows, .reductions = {}, .stores = {}});
      out_.Close();
    }
    for (const std::vector<int>& loads : {of_rows, of_all}) {
      for (int i : loads) printer_.SetKnown(i, true);
    }
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

// Tiles of 32 x 32: what is read along the slow axis comes in by one, and what is stored along it
// goes out by one. A thread has kSquareTurns elements of a tile, and asks for what it reads of all
// of them before it waits for any.
class SquareWriter {
 public:
  SquareWriter(const KernelBody& body, Dialect dialect)
      : ir_(body.ir),
        slow_(*TransposedAxis(body.ir)),
        fast_(FastestAxis(body.ir)),
        launch_(body, dialect, body.schedule.threads, body.schedule.blocks),
        printer_(&launch_, 1),
        out_(launch_.out),
        loads_(TransposedLoads(body.ir, slow_)),
        ahead_(LoadsAhead(body.ir, slow_)),
        late_(TransposedStores(body.ir, slow_)) {}

  Kernel Write() {
    launch_.UseWideIndexAbove(launch_.blocks() + ir_.extents[slow_] + ir_.extents[fast_] +
                              2 * kTile);
    launch_.UseWideIndexAbove(FarthestAsked());
    index_ = launch_.index_type();
    std::vector<int> stores(ir_.stores.size());
    std::iota(stores.begin(), stores.end(), 0);
    for (const Store& s : ir_.stores) roots_.push_back(s.instr);
    out_.SetDepth(1);
    DeclarePlaces(stores);
    for (int i : loads_) DeclareTile(LoadTile(i), i);
    for (int s : late_) DeclareTile(StoreTile(s), ir_.stores[s].instr);
    Ask(loads_, "lane", "n");
    Ask(ahead_, "n", "lane");
    if (!loads_.empty()) {
      FillTiles();
      launch_.Barrier();
    }
    std::erase_if(stores, [&](int s) { return absl::c_linear_search(late_, s); });
    Evaluate(stores);
    if (late_.empty()) return launch_.Finish("");
    launch_.Barrier();
    StoreLate();
    return launch_.Finish("");
  }

 private:
  // One element more a line than needed: a column of the tile then lies in different banks.
  static constexpr int kPitch = kTile + 1;

  static std::string LoadTile(int instr) { return absl::StrCat("tile", instr); }
  static std::string StoreTile(int store) { return absl::StrCat("stored", store); }
  static std::string At(absl::string_view tile, absl::string_view line, absl::string_view place) {
    return absl::StrCat(tile, "[", line, " * ", kPitch, " + ", place, "]");
  }
  static std::string Asked(int instr) { return absl::StrCat("asked", instr, "[k]"); }

  // The largest offset of what is asked for, at places of the tiles beyond both axes, too.
  int64_t FarthestAsked() const {
    std::vector<int64_t> extents(ir_.extents.begin(), ir_.extents.end());
    for (const int axis : {slow_, fast_}) extents[axis] = CeilDiv(extents[axis], kTile) * kTile;
    int64_t farthest = 0;
    for (const std::vector<int>& loads : {loads_, ahead_}) {
      for (const int i : loads) {
        farthest = std::max(farthest, Range(ir_.instrs[i].offset, extents).max);
      }
    }
    return farthest;
  }

  void DeclareTile(const std::string& name, int instr) {
    launch_.Shared(ComputeType(ir_.instrs[instr].dtype), name, kTile * kPitch);
  }

  void DeclarePlaces(const std::vector<int>& stores) {
    const int64_t slow_tiles = CeilDiv(ir_.extents[slow_], kTile);
    const int64_t fast_tiles = CeilDiv(ir_.extents[fast_], kTile);
    const AxisMask tile_axes = AxisMask{1} << slow_ | AxisMask{1} << fast_;
    const AxisMask outer = ir_.all_axes() & ~tile_axes;
    RG_CHECK(launch_.threads() * kSquareTurns == kTile * kTile &&
             launch_.blocks() == ir_.Points(outer) * slow_tiles * fast_tiles);
    out_.Line("const int lane = RG_THREAD % ", kTile, ", first = RG_THREAD / ", kTile, ";");
    out_.Line("const ", index_, " fast0 = static_cast<", index_, ">(RG_BLOCK % ", Sized(fast_tiles),
              ") * ", kTile, ";");
    out_.Line("const ", index_, " slow0 = static_cast<", index_, ">(RG_BLOCK / ", Sized(fast_tiles),
              " % ", Sized(slow_tiles), ") * ", kTile, ";");
    const AxisUse used = printer_.UsedAxes(printer_.Needed(roots_), stores, ir_.all_axes());
    if ((used.axes & outer) == 0) return;
    out_.Line("const ", index_, " o = RG_BLOCK / ", Sized(fast_tiles * slow_tiles), ";");
    printer_.DeclareAxes(outer, used, "o");
  }

  // A walk of the block over the tile, at places that are there.
  void OpenWalk(absl::string_view slow, absl::string_view fast) {
    OpenPlaces(slow, fast);
    out_.Open(absl::StrCat("if (", Inside(), ")"));
  }

  // The same at places that may not be there.
  void OpenPlaces(absl::string_view slow, absl::string_view fast) {
    launch_.OpenUnrolled("k", kSquareTurns);
    out_.Line("const int n = first + k * ", launch_.threads() / kTile, ";");
    out_.Line("const ", index_, " a", slow_, " = slow0 + ", slow, ";");
    out_.Line("const ", index_, " a", fast_, " = fast0 + ", fast, ";");
  }

  std::string Inside() const {
    return absl::StrCat("a", slow_, " < ", Sized(ir_.extents[slow_]), " && a", fast_, " < ",
                        Sized(ir_.extents[fast_]));
  }

  void CloseWalk() {
    out_.Close();
    out_.Close();
  }

  // The loads of all of the thread's elements, into registers.
  void Ask(const std::vector<int>& loads, absl::string_view slow, absl::string_view fast) {
    if (loads.empty()) return;
    for (int i : loads) {
      out_.Line(ComputeName(ir_.instrs[i].dtype), " asked", i, "[", kSquareTurns, "];");
      printer_.SetHome(i, {.lane = Asked(i), .base = ""});
    }
    // Without a branch, at whose end a thread would wait for the load in it.
    OpenPlaces(slow, fast);
    printer_.SetLoadCondition(Inside());
    printer_.Print({.instrs = loads, .reductions = {}, .stores = {}});
    printer_.SetLoadCondition("");
    out_.Close();
    for (int i : loads) printer_.SetKnown(i, true);
  }

  void FillTiles() {
    OpenWalk("lane", "n");
    for (int i : loads_) out_.Line(At(LoadTile(i), "n", "lane"), " = ", Asked(i), ";");
    CloseWalk();
    for (int i : loads_) {
      printer_.SetHome(i, {.lane = At(LoadTile(i), "lane", "n"), .base = ""});
    }
  }

  void Evaluate(const std::vector<int>& stores) {
    OpenWalk("n", "lane");
    printer_.Print({.instrs = printer_.Needed(roots_),
                    .reductions = {},
                    .stores = stores,
                    .level = ir_.all_axes()});
    for (int s : late_) {
      out_.Line(At(StoreTile(s), "n", "lane"), " = ", printer_.Ref(ir_.stores[s].instr), ";");
    }
    CloseWalk();
  }

  void StoreLate() {
    OpenWalk("lane", "n");
    for (int s : late_) {
      printer_.SetHome(ir_.stores[s].instr, {.lane = At(StoreTile(s), "lane", "n"), .base = ""});
      printer_.Print({.instrs = {}, .reductions = {}, .stores = {s}, .level = ir_.all_axes()});
    }
    CloseWalk();
  }

  const KernelIr& ir_;
  const int slow_, fast_;
  LaunchText launch_;
  PointPrinter printer_;
  SourceWriter& out_;
  absl::string_view index_;
  // By tiles: loads, and stores behind all others. In registers: other loads.
  const std::vector<int> loads_, ahead_, late_;
  std::vector<int> roots_;
};

}  // namespace

GroupKernels EmitTranspose(const KernelBody& body, Dialect dialect) {
  if (body.schedule.vector_width == 1) {
    RG_CHECK(TransposedAxis(body.ir).has_value());
    return {.launches = {SquareWriter(body, dialect).Write()}};
  }
  const std::optional<WideTiles> tiles = WideTilesOf(body.ir, body.schedule.blocks);
  RG_CHECK(tiles.has_value() && tiles->width == body.schedule.vector_width);
  return {.launches = {WideWriter(body, *tiles, dialect).Write()}};
}

}  // namespace retrograd
