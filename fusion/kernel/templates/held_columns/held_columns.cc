// Reductions keep the axis that loads run along, and what varies over the rows waits for their
// results: clusters have slabs of columns (column_slabs.h). The rows of a slab lie in the shared
// memory of its cluster's blocks from the first stage to the last, so that each is read once.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "fusion/kernel/ir/scale.h"
#include "fusion/kernel/templates/held_columns/column_slabs.h"
#include "fusion/kernel/templates/kernel_template.h"

namespace retrograd {
namespace {

// Search bounds. Pieces of rows are of one sector to one line of the caches; a thread evaluates
// four neighbouring rows in straight-line code. Blocks have fewer threads than kThreads only where
// those would have no rows.
constexpr int64_t kPieceBytes[] = {32, 64, 128};
constexpr int kBlockThreads[] = {64, 128, kThreads, 2 * kThreads};
constexpr int kRowsAtOnce = 4;

bool Scans(const KernelIr& ir) {
  return std::any_of(ir.instrs.begin(), ir.instrs.end(),
                     [](const Instr& i) { return i.kind == InstrKind::kScan; });
}

// Where the fastest axis is folded, the kernel is one of row reductions, too.
std::optional<Classification> Recognise(const KernelIr& ir, const Folds& folds) {
  if (folds.sets.size() != 1 || folds.fastest < 0 || ir.scatter.has_value() || Scans(ir)) {
    return std::nullopt;
  }
  const AxisMask folded = folds.sets[0], kept = ir.all_axes() & ~folded;
  if (ColumnAxis(ir, folded) < 0) return std::nullopt;
  if (!folds.across(folded) && ColumnResultMisused(ir, kept, folds.long_axes).empty()) {
    return std::nullopt;  // one pass over the rows is enough
  }
  return Recognised(ir, Template::kHeldColumns, kept, folded);
}

class Slabs {
 public:
  explicit Slabs(CandidateList& list)
      : list_(list),
        limits_(list.limits()),
        axis_(ColumnAxis(list.ir(), list.shape().column_axes)),
        widest_(limits_.vectorize ? WidestOfColumns(list.ir(), axis_) : 1),
        held_(HeldLoads(list.ir(), list.shape(), {.axis = axis_, .width = widest_})) {}

  void Run() {
    if ((list_.shape().column_axes >> FastestAxis(list_.ir()) & 1) != 0) {
      AddRowReductions(list_);
    } else {
      list_.Add(SlabBy(kThreads, kThreads, 1, 1, 1));
    }
    if (!limits_.hold_columns || !limits_.persistent || !held_.has_value()) return;
    for (int64_t bytes : kPieceBytes) {
      for (int threads : kBlockThreads) {
        for (int cluster = 1; cluster <= limits_.cluster_blocks; cluster *= 2) {
          AddHeld(bytes / (widest_ * WidestElement()), threads, cluster);
        }
      }
    }
  }

 private:
  Schedule SlabBy(int64_t lanes, int threads, int width, int rows_at_once, int cluster) const {
    Schedule s{.kind = Template::kHeldColumns, .threads = threads, .vector_width = width};
    s.rows_per_block = static_cast<int>(threads / lanes);
    s.rows_per_thread = rows_at_once;
    s.cluster = cluster;
    s.blocks = SlabOf(list_.ir(), list_.shape(), s).slabs * cluster;
    return s;
  }

  int64_t WidestElement() const {
    int64_t bytes = 1;
    for (int i : *held_) {
      bytes = std::max<int64_t>(bytes,
                                SizeBytes(list_.ir().buffers[list_.ir().instrs[i].buffer].dtype));
    }
    return bytes;
  }

  void AddHeld(int64_t lanes, int threads, int cluster) {
    const int64_t columns = list_.shape().rows, rows = list_.shape().columns;
    if (lanes < 1 || lanes > threads || threads % limits_.warp != 0) return;
    if (lanes > 1 && lanes * widest_ >= 2 * std::max<int64_t>(columns, 1)) return;
    Schedule s = SlabBy(lanes, threads, widest_, kRowsAtOnce, cluster);
    s.persistent = true;
    s.staged = 1;
    const ColumnSlab slab = SlabOf(list_.ir(), list_.shape(), s);
    // Each block of a cluster has rows, and so has half of a block's threads.
    const int64_t share = CeilDiv(rows, cluster);
    if (cluster > 1 && (cluster - 1) * slab.rows_of_block >= rows) return;
    if (threads < kThreads && 2 * slab.rows_of_batch() <= share) return;
    if (threads > kBlockThreads[0] && slab.rows_of_batch() >= 2 * share) return;
    const int64_t shared =
        TemplateOf(s).staged_bytes(list_.ir(), list_.profile(), s) + list_.MostShared(s);
    if (s.blocks <= kMaxBlocks && shared <= limits_.staged_bytes) list_.Add(s);
  }

  CandidateList& list_;
  const ScheduleLimits& limits_;
  const int axis_, widest_;
  const std::optional<std::vector<int>> held_;
};

int64_t HeldBytes(const KernelIr& ir, const KernelProfile& p, const Schedule& s) {
  if (!HoldsRows(s)) return 0;
  const ColumnSlab slab = SlabOf(ir, p.shape.shape, s);
  const int64_t element = HeldBytesOfElement(ir, *HeldLoads(ir, p.shape.shape, slab.vectors));
  return slab.places_of_block() * slab.columns_of_slab() * element;
}

// What teams of threads, blocks and clusters have of each reduction, what columns have of the
// values that follow, and the tiles of transposed stores.
int64_t SharedOfBlock(const KernelIr& ir, const KernelProfile& p, const Schedule& s, int64_t) {
  const ColumnSlab slab = SlabOf(ir, p.shape.shape, s);
  const int64_t teams = TeamsOf(slab), columns = slab.columns_of_slab();
  int64_t bytes = 0;
  if (SharesColumns(s)) {
    for (const int size : p.row_accumulators) {
      bytes += SharedArrayBytes(columns, size);
      if (teams > 1) bytes += SharedArrayBytes(columns * teams, size);
      if (s.cluster > 1) bytes += SharedArrayBytes(columns, size);
    }
    for (const int size : p.shared_column_values) bytes += SharedArrayBytes(columns, size);
  }
  for (const Store& store : ir.stores) {
    if (TileStoreWidth(ir, slab, store) == 0) continue;
    bytes += SharedArrayBytes(slab.columns_of_slab() * TilePitch(slab),
                              SizeBytes(ir.buffers[store.buffer].dtype));
  }
  return bytes;
}

// All that a thread holds is under way at once.
PointsOfThread Points(const KernelProfile& p, const Schedule& s) {
  const int64_t vectors = int64_t{s.rows_per_thread};
  if (!HoldsRows(s)) return {.at_once = s.vector_width, .under_way = s.vector_width * vectors};
  const int64_t rows = CeilDiv(p.shape.shape.columns, ThreadsOfRow(s) * vectors) * vectors;
  return {.at_once = s.vector_width, .under_way = rows * s.vector_width};
}

// Of each round of reductions: threads add up, blocks meet and read each other's sums.
int64_t Rounds(const KernelProfile& p, const Schedule& s, const DeviceSpec& d) {
  int64_t rounds = s.rows_per_block > 1 ? 2 : 0;
  if (s.cluster > 1) rounds += 1 + d.cluster_barrier_ps / d.barrier_ps;
  return 1 + rounds * p.stages.row_stages;
}

// Where nothing is held a thread goes along its column row by row, at least twice, and waits for
// each.
Waits WaitsOf(const KernelIr& ir, const Schedule& s, int64_t, const DeviceSpec& d) {
  if (HoldsRows(s)) return {};
  AxisMask folded = 0;
  for (const Instr& instr : ir.instrs) folded |= FoldedAxes(ir, instr);
  const int64_t rows = 2 * ir.Points(folded);
  return {.ps = Product({rows, d.row_batch_ps}),
          .formula = absl::StrCat("a thread waits for ", rows, " rows, one after the other")};
}

LaunchKind Main(const Schedule&) { return LaunchKind::kHeldColumns; }

}  // namespace

constinit const KernelTemplate kHeldColumnsTemplate = {
    .id = Template::kHeldColumns,
    .name = "held_columns",
    .recognise = Recognise,
    .candidates = [](CandidateList& list) { Slabs(list).Run(); },
    .walk = Walk::kColumns,
    .in_place = true,
    .holds = true,
    .launch_kind = [](const Schedule& s, int64_t, int64_t) { return Main(s); },
    .main_launch = Main,
    .points_of_thread = Points,
    .shared_bytes = SharedOfBlock,
    .staged_bytes = HeldBytes,
    .barrier_rounds = Rounds,
    .waits = WaitsOf,
};

}  // namespace retrograd
