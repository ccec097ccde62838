// Reductions fold two axes, each of them or both: a quantiser's scales of rows, of columns or of
// squares. A block has a tile, all positions of the two axes, which stays in registers from the
// first stage to the last: it is read once, whatever is folded and along which axis results are
// stored.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "fusion/kernel/ir/scale.h"
#include "fusion/kernel/templates/held_columns/column_slabs.h"
#include "fusion/kernel/templates/held_tiles/tile_walk.h"
#include "fusion/kernel/templates/kernel_template.h"
#include "fusion/kernel/templates/row_walks.h"

namespace retrograd {
namespace {

// Search bounds. Larger tiles have no plain schedule whose sums are sure to fit a block.
constexpr int64_t kMostElements = 1 << 15;
constexpr int64_t kMostShared = 40 << 10;
constexpr int kBlockThreads[] = {64, 128, kThreads, 2 * kThreads, 4 * kThreads};

bool Scans(const KernelIr& ir) {
  return std::any_of(ir.instrs.begin(), ir.instrs.end(),
                     [](const Instr& i) { return i.kind == InstrKind::kScan; });
}

// Some results lie side by side along the other axis than the loads.
bool StoresAcross(const KernelIr& ir, const TileAxes& axes) {
  return std::any_of(ir.stores.begin(), ir.stores.end(), [&](const Store& store) {
    return PartOf(ir.instrs[store.instr].axes, axes) == TilePart::kPoint &&
           LaneStride(store.offset, {.axis = axes.across, .width = 2}) == 1;
  });
}

Schedule TileBy(const KernelIr& ir, const TileAxes& axes, int threads, int width, bool persistent) {
  return {.kind = Template::kHeldTiles,
          .threads = threads,
          .vector_width = width,
          .threads_per_row = threads,
          .persistent = persistent,
          .blocks = ir.Points(ir.all_axes() & ~axes.mask())};
}

// Teams go through parts of a tile, of which the threads outside of the tile are idle: at most half
// of them.
bool FillsParts(const KernelIr& ir, const TileAxes& axes, const Schedule& s) {
  const TileWalk walk = TileWalkOf(ir, axes, s);
  return 2 * walk.lanes * walk.rows >= walk.padded_lanes() * walk.padded_rows();
}

int64_t SharedUnder(const KernelIr& ir, const TileAxes& axes, const Stages& stages,
                    const Schedule& s) {
  return SharedBytesOfTile(ir, TileWalkOf(ir, axes, s), stages);
}

// One fold of both axes is a row reduction's, unless its results lie across. Of a tile that is all
// there is, rows and columns are folded by other templates.
std::optional<Classification> Recognise(const KernelIr& ir, const Folds& folds) {
  if (ir.scatter.has_value() || Scans(ir)) return std::nullopt;
  const std::optional<TileAxes> axes = TileAxesOf(ir, folds);
  if (!axes.has_value() || (folds.long_axes & ~axes->mask()) == 0) return std::nullopt;
  if (ir.Points(axes->mask()) > kMostElements) return std::nullopt;
  if (folds.sets.size() == 1 && !(folds.across(axes->mask()) && StoresAcross(ir, *axes))) {
    return std::nullopt;
  }
  const Classification tiles =
      Recognised(ir, Template::kHeldTiles, ir.all_axes() & ~axes->mask(), axes->mask());
  const Schedule plain = TileBy(ir, *axes, kThreads, 1, false);
  if (plain.blocks > kMaxBlocks || !FillsParts(ir, *axes, plain)) return std::nullopt;
  if (SharedUnder(ir, *axes, AssignStages(ir, tiles), plain) > kMostShared) return std::nullopt;
  return tiles;
}

TileAxes AxesOf(const KernelIr& ir) { return *TileAxesOf(ir, ReadFolds(ir)); }

void AddCandidates(CandidateList& list) {
  const KernelIr& ir = list.ir();
  const ScheduleLimits& limits = list.limits();
  const TileAxes axes = AxesOf(ir);
  if (ReadFolds(ir).sets.size() == 1) AddRowReductions(list);
  if (!limits.hold_tiles && ReadFolds(ir).sets.size() == 1) return;
  list.Add(TileBy(ir, axes, kThreads, 1, false));
  const int width = limits.vectorize ? WidestOfColumns(ir, axes.along) : 1;
  if (width == 1 || !FillsParts(ir, axes, TileBy(ir, axes, kThreads, width, false))) return;
  const bool held = HeldLoadsOfTile(ir, axes, {.axis = axes.along, .width = width}).has_value();
  bool holds = false;
  for (int threads : kBlockThreads) {
    if (!held || !limits.persistent) break;
    const Schedule s = TileBy(ir, axes, threads, width, true);
    const TileWalk walk = TileWalkOf(ir, axes, s);
    const bool idle = threads > kBlockThreads[0] && walk.teams > walk.parts();
    const int64_t elements = walk.turns * kRowsOfTileThread * width;
    if (idle || elements > kMaxPersistentElements) continue;
    list.Add(s);
    holds = true;
  }
  // What reads the elements again was 1.1 and 1.4 times as slow where they could be held.
  if (!holds) list.Add(TileBy(ir, axes, kThreads, width, false));
}

// A thread has some rows of each turn, and loads those of all turns at once if it keeps them.
PointsOfThread Points(const KernelProfile& p, const Schedule& s) {
  const int64_t turn = int64_t{kRowsOfTileThread} * s.vector_width;
  const int64_t elements = s.persistent ? std::max(ElementsOfRow(p, s), turn) : turn;
  return {.at_once = elements, .under_way = elements};
}

// Of each round threads meet with what they folded, with the results, and with what follows.
int64_t Rounds(const KernelProfile& p, const Schedule& s, const DeviceSpec& d) {
  return 3 * RoundsOfRowWalk(p, s, d);
}

int64_t SharedOfBlock(const KernelIr& ir, const KernelProfile& p, const Schedule& s, int64_t) {
  return SharedUnder(ir, AxesOf(ir), p.stages, s);
}

int64_t Held(const KernelProfile& p, const Schedule& s, const DeviceSpec& d) {
  return s.persistent && p.carried_loads > 0
             ? HeldRowsPpm(p, s, d.held_elements, d.held_elements_twice)
             : kPpm;
}

// Where nothing is held a thread loads the rows of each turn again in each stage, and waits for
// them before it folds or stores any.
Waits WaitsOf(const KernelIr& ir, const Schedule& s, int64_t blocks_per_sm, const DeviceSpec& d) {
  if (s.persistent) return {};
  const int64_t waves = CeilDiv(s.blocks, d.sms * std::max<int64_t>(blocks_per_sm, 1));
  const int64_t turns = 2 * TileWalkOf(ir, AxesOf(ir), s).turns;
  return {.ps = Product({waves, turns, d.row_batch_ps}),
          .formula = absl::StrCat(waves, " blocks of an SM one after the other wait for ", turns,
                                  " batches of rows")};
}

// As of rows that a block has to itself.
LaunchKind Main(const Schedule& s) {
  return s.persistent ? LaunchKind::kRowReductionPersistent : LaunchKind::kRowReduction;
}

}  // namespace

constinit const KernelTemplate kHeldTilesTemplate = {
    .id = Template::kHeldTiles,
    .name = "held_tiles",
    .recognise = Recognise,
    .candidates = AddCandidates,
    .walk = Walk::kRows,
    .tiles = true,
    .launch_kind = [](const Schedule& s, int64_t, int64_t) { return Main(s); },
    .main_launch = Main,
    .points_of_thread = Points,
    .shared_bytes = SharedOfBlock,
    .barrier_rounds = Rounds,
    .held_ppm = Held,
    .meets_each_row = true,
    .waits = WaitsOf,
};

}  // namespace retrograd
