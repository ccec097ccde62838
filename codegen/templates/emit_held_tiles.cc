// Tiles held on chip. A team of 32 threads goes through parts of its block's tile: some threads lie
// side by side along the loads' axis, the others have other rows, four neighbours each. A round of
// reductions adds up what threads hold, then teams by shuffles, then the block by way of shared
// memory, in an order that is the same on all devices. One thread makes what follows from the
// results of a row, of a lane or of the tile; then elements are evaluated again from the registers
// that hold them. Stores that run across the loads pass through a tile in shared memory.
//
// Schedules that hold nothing read the elements again in each stage.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "codegen/print/numbers/sized_number.h"
#include "codegen/print/point_printer.h"
#include "codegen/templates/column_totals.h"
#include "codegen/templates/templates.h"
#include "fusion/kernel/ir/scale.h"
#include "fusion/kernel/templates/held_tiles/tile_walk.h"
#include "fusion/kernel/templates/kernel_template.h"
#include "graph/base/status.h"

namespace retrograd {
namespace {

constexpr int kTeam = kThreadsOfTileTeam, kRows = kRowsOfTileThread;
constexpr TilePart kResultParts[] = {TilePart::kRow, TilePart::kLane, TilePart::kTile};

class TileWriter {
 public:
  TileWriter(const KernelBody& body, Dialect dialect)
      : ir_(body.ir),
        schedule_(body.schedule),
        walk_(TileWalkOf(ir_, *TileAxesOf(ir_, ReadFolds(ir_)), schedule_)),
        stages_(AssignStages(ir_, Classify(ir_))),
        shared_(SharedTileValues(ir_, walk_.axes, stages_)),
        launch_(body, dialect, schedule_.threads, schedule_.blocks),
        printer_(&launch_, walk_.vectors),
        out_(launch_.out),
        rows_fill_(walk_.rows == walk_.padded_rows()),
        lanes_fill_(walk_.lanes == walk_.padded_lanes()),
        teams_fill_(walk_.parts() == walk_.turns * walk_.teams) {}

  Kernel Write() {
    const int64_t tiles = ir_.Points(Outer());
    RG_CHECK(schedule_.blocks == std::max<int64_t>(tiles, 1));
    launch_.UseWideIndexAbove(
        std::max({tiles, walk_.padded_lanes(), walk_.turns * walk_.teams * walk_.rows_of_part()}));
    index_ = launch_.index_type();
    out_.SetDepth(1);
    if (tiles == 0) out_.Open("if (RG_BLOCK < 0)");
    DeclarePlaces();
    if (schedule_.persistent) LoadPacks();
    for (int round = 1; round <= stages_.row_stages; ++round) Reduce(round);
    Finish();
    if (tiles == 0) out_.Close();
    return launch_.Finish("");
  }

 private:
  AxisMask Outer() const { return ir_.all_axes() & ~walk_.axes.mask(); }
  TilePart PartOfInstr(int i) const { return PartOf(ir_.instrs[i].axes, walk_.axes); }
  bool IsPoint(int i) const { return PartOfInstr(i) == TilePart::kPoint; }

  void DeclarePlaces() {
    std::vector<int> roots, stores;
    for (size_t s = 0; s < ir_.stores.size(); ++s) {
      roots.push_back(ir_.stores[s].instr);
      stores.push_back(static_cast<int>(s));
    }
    const AxisUse used = printer_.UsedAxes(printer_.Needed(roots), stores, ir_.all_axes());
    out_.Line("const int team = RG_THREAD / ", kTeam, ", side = RG_THREAD % ", walk_.vectors_side,
              ", group = RG_THREAD % ", kTeam, " / ", walk_.vectors_side, ";");
    if ((used.axes & Outer()) == 0) return;
    out_.Line("const ", index_, " tile = RG_BLOCK;");
    printer_.DeclareAxes(Outer(), used, "tile");
  }

  // A loop over the parts of the thread's team, in one of which what follows is printed.
  void OpenTurns() {
    const int64_t turns = walk_.turns;
    if (schedule_.persistent) {
      if (!launch_.OpenUnrolled("t", turns)) out_.OpenScope();
    } else if (turns > 1) {
      out_.Open("for (int t = 0; t < ", Sized(turns), "; ++t)");
    } else {
      out_.OpenScope();
    }
    out_.Line("const int part = team", turns > 1 ? absl::StrCat(" + t * ", walk_.teams) : "", ";");
    const int64_t side = walk_.blocks_along;
    out_.Line("[[maybe_unused]] const int lane = ",
              side > 1 ? absl::StrCat("part % ", side, " * ", walk_.lanes_of_part(), " + ") : "",
              "side", Times(walk_.width()), ";");
    out_.Line(
        "[[maybe_unused]] const int row0 = ", side > 1 ? absl::StrCat("part / ", side) : "part",
        " * ", walk_.rows_of_part(), " + group * ", kRows, ";");
    if (!lanes_fill_) out_.Line("const bool inside = lane < ", Sized(walk_.lanes), ";");
  }

  static std::string Times(int64_t n) { return n == 1 ? "" : absl::StrCat(" * ", n); }

  // One of the thread's rows. `used`: the axes that it names.
  void OpenRow(const AxisUse& used) {
    launch_.OpenUnrolled("q", kRows);
    out_.Line("[[maybe_unused]] const int row = row0 + q;");
    std::vector<std::string> conditions;
    if (!rows_fill_ || !teams_fill_)
      conditions.push_back(absl::StrCat("row < ", Sized(walk_.rows)));
    if (!lanes_fill_) conditions.push_back("inside");
    guarded_ = !conditions.empty();
    if (guarded_) out_.Open("if (", absl::StrJoin(conditions, " && "), ")");
    DeclareAxis(walk_.axes.along, "lane", used);
    DeclareAxis(walk_.axes.across, "row", used);
  }

  void DeclareAxis(int axis, absl::string_view number, const AxisUse& used) {
    if ((used.axes >> axis & 1) != 0) out_.Line("const ", index_, " a", axis, " = ", number, ";");
  }

  void CloseRow() {
    if (guarded_) out_.Close();
    out_.Close();
  }

  // All elements of the thread are loaded before any is evaluated.
  void LoadPacks() {
    const std::vector<int> held = *HeldLoadsOfTile(ir_, walk_.axes, walk_.vectors);
    const std::string turn = walk_.turns > 1 ? absl::StrCat("(t * ", kRows, " + q)") : "q";
    for (int i : held) {
      const int width = printer_.PackWidth(i), packs = walk_.width() / width;
      RG_CHECK(width > 0);
      const std::string at = absl::StrCat(turn, Times(packs));
      out_.Line("rg_pack<", StorageName(ir_.buffers[ir_.instrs[i].buffer].dtype), ", ", width,
                "> held", i, "[", walk_.turns * kRows * packs, "];");
      printer_.SetHome(i,
                       {.lane = absl::StrCat("rg_lane(held", i, "[", at,
                                             packs > 1 ? absl::StrCat(" + j / ", width) : "", "], ",
                                             packs > 1 ? absl::StrCat("j % ", width) : "j", ")"),
                        .base = "",
                        .pack = absl::StrCat("held", i, " + ", at)});
    }
    OpenTurns();
    OpenRow(printer_.UsedAxes(held, {}, 0));
    printer_.Print({.instrs = held, .reductions = {}, .stores = {}});
    CloseRow();
    out_.Close();
    for (int i : held) printer_.SetKnown(i, true);
  }

  std::vector<int> ReductionsOf(int round) const {
    std::vector<int> reductions;
    for (size_t i = 0; i < ir_.instrs.size(); ++i) {
      if (FoldedAxes(ir_, ir_.instrs[i]) == 0 || stages_.stage[i] != round) continue;
      reductions.push_back(static_cast<int>(i));
    }
    return reductions;
  }

  // Of a reduction: what a thread adds up in each turn.
  int Accumulators(int r) const {
    switch (PartOfInstr(r)) {
      case TilePart::kRow: return kRows;
      case TilePart::kLane: return walk_.width();
      default: return 1;
    }
  }

  void Reduce(int round) {
    const std::vector<int> reductions = ReductionsOf(round);
    std::vector<int> roots;
    for (int r : reductions) {
      roots.push_back(ir_.instrs[r].operands[0]);
      const TilePart part = PartOfInstr(r);
      launch_.Shared(AccumulatorType(ir_.instrs[r].dtype), absl::StrCat("part", r),
                     walk_.PartialLines(part) * walk_.PartialPitch(part));
      launch_.Shared(AccumulatorType(ir_.instrs[r].dtype), absl::StrCat("total", r),
                     walk_.Count(part));
      const bool lanes = part == TilePart::kLane && walk_.width() > 1;
      printer_.SetAccumulator(r, absl::StrCat("acc", r,
                                              part == TilePart::kRow ? "[q]"
                                              : lanes                ? "[j]"
                                                                     : "[0]"));
    }
    const std::vector<int> instrs = printer_.Needed(roots);
    OpenTurns();
    for (int r : reductions) {
      out_.Line(AccumulatorName(ir_.instrs[r].dtype), " acc", r, "[", Accumulators(r), "];");
      const bool loop = launch_.OpenUnrolled("n", Accumulators(r));
      out_.Line("acc", r, loop ? "[n]" : "[0]", " = ", printer_.Identity(ir_.instrs[r]), ";");
      if (loop) out_.Close();
    }
    OpenRow(printer_.UsedAxes(instrs, {}, 0));
    printer_.Print(
        {.instrs = instrs, .reductions = reductions, .stores = {}, .level = ir_.all_axes()});
    CloseRow();
    for (int r : reductions) FoldTeam(r);
    launch_.SetThreadsMeet();
    if (!teams_fill_) out_.Open("if (part < ", walk_.parts(), ")");
    for (int r : reductions) LeavePartials(r);
    if (!teams_fill_) out_.Close();
    out_.Close();
    launch_.Barrier();
    FollowRound(round, reductions);
    for (int r : reductions) UseTotal(r);
    for (int i : shared_[round - 1]) UseShared(i);
  }

  // The threads of a team that have the same rows, or the same lanes, add up in pairs.
  void FoldTeam(int r) {
    const TilePart part = PartOfInstr(r);
    const int side = walk_.vectors_side;
    const int from = part == TilePart::kRow ? side / 2 : kTeam / 2;
    const int to = part == TilePart::kLane ? side : 1;
    const bool loop = launch_.OpenUnrolled("n", Accumulators(r));
    const std::string acc = absl::StrCat("acc", r, loop ? "[n]" : "[0]");
    for (int apart = from; apart >= to; apart /= 2) {
      out_.Line(acc, " = ",
                printer_.Folded(ir_.instrs[r], acc,
                                absl::StrCat("RG_SHUFFLE_XOR(", acc, ", ", apart, ")")),
                ";");
    }
    if (loop) out_.Close();
  }

  void LeavePartials(int r) {
    const TilePart part = PartOfInstr(r);
    const int64_t side = walk_.blocks_along, pitch = walk_.PartialPitch(part);
    const absl::string_view alone = part == TilePart::kRow    ? "side == 0"
                                    : part == TilePart::kLane ? "group == 0"
                                                              : "side == 0 && group == 0";
    const std::string line =
        part == TilePart::kTile ? "part"
        : part == TilePart::kRow
            ? (side > 1 ? absl::StrCat("part % ", side, " * ", pitch, " + row0") : "row0")
            : absl::StrCat(side > 1 ? absl::StrCat("part / ", side) : "part", " * ", pitch,
                           " + lane");
    out_.Open("if (", alone, ")");
    const bool loop = launch_.OpenUnrolled("n", Accumulators(r));
    out_.Line("part", r, "[", line, loop ? " + n" : "", "] = acc", r, loop ? "[n]" : "[0]", ";");
    if (loop) out_.Close();
    out_.Close();
  }

  // Whether what is made of results of the round in one kind of place needs those of others.
  bool NeedsOthers(const std::vector<int>& roots, int round, TilePart part) const {
    std::vector<bool> needed(ir_.instrs.size(), false);
    for (int r : roots) needed[r] = true;
    for (size_t i = ir_.instrs.size(); i-- > 0;) {
      if (!needed[i] || stages_.stage[i] < round) continue;
      if (FoldedAxes(ir_, ir_.instrs[i]) != 0) {
        if (PartOfInstr(static_cast<int>(i)) != part) return true;
        continue;
      }
      for (int o : ir_.instrs[i].operands) needed[o] = true;
      for (const Indirect& ind : ir_.instrs[i].indirect) needed[ind.instr] = true;
    }
    return false;
  }

  // Totals of the round, and what rows, lanes and tiles have of them.
  void FollowRound(int round, const std::vector<int>& reductions) {
    bool apart = false;
    for (TilePart part : kResultParts) {
      apart = apart || NeedsOthers(RootsOf(round, part), round, part);
    }
    for (TilePart part : kResultParts) Follow(round, reductions, part, /*totals=*/true, !apart);
    if (apart) {
      launch_.Barrier();
      for (TilePart part : kResultParts) Follow(round, {}, part, /*totals=*/false, true);
    }
    launch_.Barrier();
  }

  std::vector<int> ValuesOf(int round, TilePart part) const {
    std::vector<int> values;
    for (int i : shared_[round - 1]) {
      if (PartOfInstr(i) == part) values.push_back(i);
    }
    return values;
  }

  // Stores of what is one for each of the places, behind the last round.
  std::vector<int> StoresOf(int round, TilePart part) const {
    std::vector<int> stores;
    for (size_t s = 0; s < ir_.stores.size() && round == stages_.row_stages; ++s) {
      if (PartOfInstr(ir_.stores[s].instr) == part) stores.push_back(static_cast<int>(s));
    }
    return stores;
  }

  std::vector<int> RootsOf(int round, TilePart part) const {
    std::vector<int> roots = ValuesOf(round, part);
    for (int s : StoresOf(round, part)) roots.push_back(ir_.stores[s].instr);
    return roots;
  }

  void Follow(int round, const std::vector<int>& reductions, TilePart part, bool totals,
              bool values) {
    std::vector<int> here;
    for (int r : reductions) {
      if (totals && PartOfInstr(r) == part) here.push_back(r);
    }
    const std::vector<int> roots = values ? RootsOf(round, part) : std::vector<int>{};
    if (here.empty() && roots.empty()) return;
    OpenPlaces(walk_.Count(part));
    for (int r : here) FoldPartials(r, part);
    if (!roots.empty()) MakeValues(round, part, roots);
    out_.Close();
  }

  // A thread has place n.
  void OpenPlaces(int64_t count) {
    if (count > schedule_.threads) {
      out_.Open("for (int n = RG_THREAD; n < ", Sized(count), "; n += ", schedule_.threads, ")");
      return;
    }
    out_.Open("if (RG_THREAD < ", count, ")");
    out_.Line("[[maybe_unused]] const int n = RG_THREAD;");
  }

  // What the teams left, one after the other.
  void FoldPartials(int r, TilePart part) {
    const Instr& reduction = ir_.instrs[r];
    const std::string all = absl::StrCat("all", r), from = absl::StrCat("part", r);
    const int64_t pitch = walk_.PartialPitch(part), lines = walk_.PartialLines(part);
    const absl::string_view plus = part == TilePart::kTile ? "" : " + n";
    out_.Line(AccumulatorName(reduction.dtype), " ", all, " = ", from,
              part == TilePart::kTile ? "[0]" : "[n]", ";");
    if (lines > 1) {
      out_.Open("for (int b = 1; b < ", lines, "; ++b)");
      out_.Line(all, " = ",
                printer_.Folded(reduction, all, absl::StrCat(from, "[b", Times(pitch), plus, "]")),
                ";");
      out_.Close();
    }
    out_.Line("total", r, "[n] = ", all, ";");
  }

  static std::string At(absl::string_view name, int i, TilePart part, absl::string_view place) {
    return absl::StrCat(name, i, "[", part == TilePart::kTile ? "0" : place, "]");
  }

  void MakeValues(int round, TilePart part, const std::vector<int>& roots) {
    PointPrinter one(&launch_, Vectors{.axis = walk_.axes.along, .width = 1});
    one.SetAxes(printer_.axes());
    std::vector<std::string> totals;
    std::vector<int> finished;
    for (size_t i = 0; i < ir_.instrs.size(); ++i) {
      const int r = static_cast<int>(i);
      if (FoldedAxes(ir_, ir_.instrs[i]) == 0 || stages_.stage[i] > round) continue;
      finished.push_back(r);
      totals.push_back(At("total", r, PartOfInstr(r), "n"));
    }
    UseFinishedReductions(finished, totals, &one);
    for (int earlier = 1; earlier < round; ++earlier) {
      for (int i : shared_[earlier - 1]) {
        one.SetHome(i, {.lane = At("follows", i, PartOfInstr(i), "n"), .base = ""});
        one.SetKnown(i, true);
      }
    }
    const std::vector<int> instrs = one.Needed(roots), stores = StoresOf(round, part);
    const AxisMask level = ir_.all_axes() & ~AxesBeside(part);
    const AxisUse used = one.UsedAxes(instrs, stores, level);
    if (part == TilePart::kLane) DeclareAxis(walk_.axes.along, "n", used);
    if (part == TilePart::kRow) DeclareAxis(walk_.axes.across, "n", used);
    one.Print({.instrs = instrs, .reductions = {}, .stores = stores, .level = level});
    for (int i : ValuesOf(round, part)) {
      const DType type = ComputeType(ir_.instrs[i].dtype);
      out_.Line(launch_.Shared(type, absl::StrCat("follows", i), walk_.Count(part)),
                "[n] = ", one.Ref(i), ";");
    }
  }

  // The axes of a tile of which a place has all positions.
  AxisMask AxesBeside(TilePart part) const {
    switch (part) {
      case TilePart::kRow: return AxisMask{1} << walk_.axes.along;
      case TilePart::kLane: return AxisMask{1} << walk_.axes.across;
      default: return walk_.axes.mask();
    }
  }

  // Where an element finds what its row, lane or tile has.
  std::string OfElement(absl::string_view name, int i) const {
    const bool lanes = printer_.InLanes(i);
    return At(name, i, PartOfInstr(i),
              PartOfInstr(i) == TilePart::kRow ? "row"
              : lanes                          ? "lane + j"
                                               : "lane");
  }

  void UseTotal(int r) { UseFinishedReductions({r}, {OfElement("total", r)}, &printer_); }

  void UseShared(int i) {
    printer_.SetHome(i, {.lane = OfElement("follows", i), .base = ""});
    printer_.SetKnown(i, true);
  }

  void Finish() {
    std::vector<int> roots, direct, by_tile;
    for (size_t n = 0; n < ir_.stores.size(); ++n) {
      const Store& store = ir_.stores[n];
      if (!IsPoint(store.instr)) continue;  // stored where it was made
      roots.push_back(store.instr);
      const bool tile = AcrossStoreWidth(ir_, walk_.axes, walk_.vectors, store) > 0;
      (tile ? by_tile : direct).push_back(static_cast<int>(n));
    }
    if (roots.empty()) return;
    const std::vector<int> instrs = printer_.Needed(roots);
    for (int s : by_tile) {
      launch_.Shared(ir_.buffers[ir_.stores[s].buffer].dtype, absl::StrCat("across", s),
                     walk_.padded_lanes() * AcrossPitch(walk_));
    }
    OpenTurns();
    const int width = walk_.width();
    for (int s : by_tile) {
      out_.Line(ComputeName(ir_.instrs[ir_.stores[s].instr].dtype), " made", s, "[", kRows * width,
                "];");
    }
    OpenRow(printer_.UsedAxes(instrs, direct, ir_.all_axes()));
    printer_.Print({.instrs = instrs,
                    .reductions = {},
                    .stores = direct,
                    .level = ir_.all_axes(),
                    .keep = !by_tile.empty()});
    if (!by_tile.empty()) {
      launch_.OpenUnrolled("j", width);
      for (int s : by_tile) {
        out_.Line("made", s, "[j * ", kRows, " + q] = ", printer_.Ref(ir_.stores[s].instr), ";");
      }
      out_.Close();
    }
    CloseRow();
    for (int s : by_tile) PackAcross(s);
    out_.Close();
    if (by_tile.empty()) return;
    launch_.Barrier();
    for (int s : by_tile) StoreAcross(s);
  }

  // A thread's rows of each lane go to the tile as one access.
  void PackAcross(int s) {
    if (!teams_fill_) out_.Open("if (part < ", walk_.parts(), ")");
    launch_.OpenUnrolled("j", walk_.width());
    out_.Line(VectorStoreName(ir_, ir_.stores[s]), "<", kRows, ">(across", s, ", (lane + j) * ",
              AcrossPitch(walk_), " + row0, made", s, " + j * ", kRows, ");");
    out_.Close();
    if (!teams_fill_) out_.Close();
  }

  void StoreAcross(int s) {
    const Store& store = ir_.stores[s];
    const int width = AcrossStoreWidth(ir_, walk_.axes, walk_.vectors, store);
    const int64_t in_lane = walk_.rows / width, places = walk_.lanes * in_lane;
    out_.Open("for (int place = RG_THREAD; place < ", Sized(places),
              "; place += ", schedule_.threads, ")");
    out_.Line("const int lane = place / ", in_lane, ", row = place % ", in_lane, " * ", width, ";");
    AxisUse used;
    used.AddOffset(store.offset);
    DeclareAxis(walk_.axes.along, "lane", used);
    DeclareAxis(walk_.axes.across, "row", used);
    out_.Line("rg_store_from<", width, ", ", kRows, ">(", launch_.BufferName(store.buffer), ", ",
              printer_.Text(store.offset), ", across", s, ", lane * ", AcrossPitch(walk_),
              " + row);");
    out_.Close();
  }

  const KernelIr& ir_;
  const Schedule& schedule_;
  const TileWalk walk_;
  const Stages stages_;
  const std::vector<std::vector<int>> shared_;  // by round
  LaunchText launch_;
  PointPrinter printer_;
  SourceWriter& out_;
  const bool rows_fill_, lanes_fill_, teams_fill_;  // no thread is left with fewer than the others
  absl::string_view index_;
  bool guarded_ = false;
};

}  // namespace

GroupKernels EmitHeldTiles(const KernelBody& body, Dialect dialect) {
  return {.launches = {TileWriter(body, dialect).Write()}};
}

}  // namespace retrograd
