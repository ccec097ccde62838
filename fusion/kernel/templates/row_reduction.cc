// Reductions fold the fastest axis: teams of threads share a row.
#include <algorithm>

#include "fusion/kernel/ir/accesses/vector_grid.h"
#include "fusion/kernel/ir/scale.h"
#include "fusion/kernel/templates/kernel_template.h"
#include "fusion/kernel/templates/row_walks.h"

namespace retrograd {
namespace {

std::optional<Classification> Recognise(const KernelIr& ir, const Folds& folds) {
  if (folds.sets.empty()) return std::nullopt;
  const AxisMask columns = folds.sets[0];
  if (folds.fastest >= 0 && (folds.sets.size() > 1 || !folds.across(columns))) return std::nullopt;
  return Recognised(ir, Template::kRowReduction, ir.all_axes() & ~columns, columns);
}

Schedule Row(const CandidateList& list, int threads_per_row, int width, int at_once,
             bool persistent) {
  return RowSchedule(list, Template::kRowReduction, threads_per_row, width, at_once, persistent);
}

// Nothing that varies over rows and columns waits for a reduction.
bool SplitsRows(const CandidateList& list) {
  const KernelIr& ir = list.ir();
  const AxisMask columns = list.shape().column_axes;
  std::vector<bool> reduced(ir.instrs.size(), false);
  for (size_t i = 0; i < ir.instrs.size(); ++i) {
    const Instr& instr = ir.instrs[i];
    for (int o : instr.operands) reduced[i] = reduced[i] || reduced[o];
    for (const Indirect& ind : instr.indirect) reduced[i] = reduced[i] || reduced[ind.instr];
    const bool folds = FoldedAxes(ir, instr) != 0;
    if (reduced[i] && (folds || (instr.axes & columns) != 0)) return false;
    reduced[i] = reduced[i] || folds;
  }
  return true;
}

void AddSplits(CandidateList& list, int threads_per_row, int width) {
  if (threads_per_row != 256) return;
  const int64_t sms = list.limits().sms;
  const Schedule base = Row(list, threads_per_row, width, 1, false);
  if (base.blocks * 2 > sms) return;
  const int64_t runs = CeilDiv(list.shape().columns, int64_t{threads_per_row} * width);
  for (int waves : {1, 2, 4, 8}) {
    Schedule s = base;
    s.split = std::min(runs, sms * waves / base.blocks);
    s.blocks = base.blocks * s.split;
    if (s.split > 1 && s.blocks <= kMaxBlocks) list.Add(s);
  }
}

// Fewer threads share a row only where one vector of each holds all of it: else neighbours read
// places far apart.
constexpr int kLeastThreadsOfLongRows = 8;

// Clusters share rows of which a thread would hold more than so much otherwise.
constexpr int64_t kHeldAlone = 16;

void AddClusters(CandidateList& list, int threads, int width) {
  if (width == 1 || !list.limits().persistent ||
      ElementsInThread(list, threads, width) <= kHeldAlone)
    return;
  for (int cluster : ClustersOfRow(list, threads, width)) {
    if (ElementsInThread(list, threads * cluster, width) > kMaxPersistentElements) continue;
    const Schedule s = Row(list, threads, width, 1, true);
    if (s.blocks * cluster > kMaxBlocks) continue;
    list.Add(SharedByCluster(s, cluster, s.blocks));
  }
}

// Threads of a block that has an SM for itself and walks rows: fewer leave the SM's units idle.
constexpr int kThreadsOfWalk[] = {1024, 512};

// Two blocks walk rows that are too long for the shared memory of one SM. All clusters of a walk
// must run at once, or the last ones take as long again. Pairs of SMs do on any device; how many
// clusters of four and more do differs from one H100 to another.
constexpr int kMostWalkedBlocks = 2;

// Blocks, or clusters of them, that walk rows.
Schedule WalkBy(const CandidateList& list, int threads, int width, int cluster) {
  const int64_t clusters = SmsForClusters(list.limits().sms, cluster) / cluster;
  const Schedule s = Row(list, threads, width, 1, true);
  return SharedByCluster(s, cluster, std::clamp<int64_t>(clusters, 1, s.blocks));
}

// Whether all that varies along rows comes through shared memory. Of rows with ends nothing is kept
// from row to row.
bool StagesAll(const CandidateList& list, int width) {
  const KernelIr& ir = list.ir();
  for (size_t i = 0; i < ir.instrs.size(); ++i) {
    const Instr& instr = ir.instrs[i];
    if (instr.kind != InstrKind::kLoad || (instr.axes & list.shape().column_axes) == 0) continue;
    if (!CanStage(ir, list.shape(), static_cast<int>(i), width)) return false;
  }
  return true;
}

// Long rows are walked, the loads of the next ones ahead into shared memory. Of shorter ones an SM
// has blocks enough that wait at other times.
void AddWalks(CandidateList& list, int width) {
  if (!list.limits().persistent) return;
  if (ElementsInThread(list, kThreads, width) <= kHeldAlone) return;
  const int64_t element = StagedBytesOfElement(list, width);
  if (element == 0 || (HasEnds(list.ir(), width) && !StagesAll(list, width))) return;
  for (int threads : kThreadsOfWalk) {
    absl::InlinedVector<int, 4> clusters = ClustersOfRow(list, threads, width);
    clusters.insert(clusters.begin(), 1);
    for (int cluster : clusters) {
      if (cluster > kMostWalkedBlocks) break;
      Schedule s = WalkBy(list, threads, width, cluster);
      if (!LoopsOverRows(s, list.shape().rows)) break;
      if (ElementsInThread(list, threads * cluster, width) > kMaxPersistentElements) continue;
      s.staged = StagedBatches(list, s, element);
      if (s.staged == 0) continue;
      list.Add(s);
      break;
    }
  }
}

void AddOfWidth(CandidateList& list, int widest) {
  for (int threads = 1; threads <= 1024; threads *= 2) {
    const bool holds_row = int64_t{threads} * widest >= list.shape().columns;
    if (threads < kLeastThreadsOfLongRows && !holds_row) continue;
    if (!FitsRow(list, threads, widest)) continue;
    const int64_t elements = ElementsInThread(list, threads, widest);
    if (list.limits().persistent && elements <= kMaxPersistentElements) {
      for (int at_once : RowsAtOnce(list.limits())) {
        if (elements * at_once <= kMaxPersistentElements) {
          list.Add(Row(list, threads, widest, at_once, true));
        }
      }
    }
    if (threads >= 128 || !FitsRow(list, threads * 2, widest)) {
      list.Add(Row(list, threads, widest, 1, false));
    }
    AddClusters(list, threads, widest);
    if (list.limits().split && SplitsRows(list)) AddSplits(list, threads, widest);
  }
  AddWalks(list, widest);
}

// Rows with ends are loaded before a stage stores any of them.
PointsOfThread Points(const KernelProfile& p, const Schedule& s) {
  PointsOfThread points = PointsOfRowWalk(p, s);
  const bool fills = p.shape.shape.columns % s.vector_width == 0;
  if (s.persistent && fills) points.among_stores = s.vector_width;
  if (s.staged > 0) points.at_once = s.vector_width;  // the others lie in shared memory
  return points;
}

LaunchKind Main(const Schedule& s) {
  return s.persistent ? LaunchKind::kRowReductionPersistent : LaunchKind::kRowReduction;
}

LaunchKind KindOf(const Schedule& s, int64_t launch, int64_t) {
  return launch == 0 ? Main(s) : LaunchKind::kRowFinalize;
}

int64_t SharedOfBlock(const KernelIr&, const KernelProfile& p, const Schedule& s, int64_t launch) {
  return launch == 0 ? ScratchBytes(p, s) : 0;
}

// Blocks that hold one batch of rows each wait for it once.
RowBatches BatchesOfBlock(const KernelProfile& p, const Schedule& s) {
  if (s.staged == 0) return {};
  const int64_t at_once = int64_t{s.rows_per_block} * s.rows_per_thread;
  return {.count = CeilDiv(p.shape.shape.rows, at_once * RowBlocks(s))};
}

int64_t Held(const KernelProfile& p, const Schedule& s, const DeviceSpec& d) {
  return s.persistent && (p.carried_loads > 0 || KeepsCostly(p, s))
             ? HeldRowsPpm(p, s, d.held_elements, d.held_elements_twice)
             : kPpm;
}

}  // namespace

void AddRowReductions(CandidateList& list) {
  const int64_t plain =
      std::min<int64_t>(PowerOfTwoFrom(std::max<int64_t>(list.shape().columns, 8)), 256);
  list.Add(Row(list, static_cast<int>(plain), 1, 1, false));
  for (int width : list.widths()) {
    const bool one_axis = list.ir().extents[FastestAxis(list.ir())] == list.shape().columns;
    if (one_axis || !HasEnds(list.ir(), width)) AddOfWidth(list, width);
  }
}

constinit const KernelTemplate kRowReductionTemplate = {
    .id = Template::kRowReduction,
    .name = "row_reduction",
    .recognise = Recognise,
    .candidates = AddRowReductions,
    .walk = Walk::kRows,
    .splits_rows = true,
    .shares_launches = true,
    .in_place = true,
    .launch_kind = KindOf,
    .main_launch = Main,
    .points_of_thread = Points,
    .shared_bytes = SharedOfBlock,
    .staged_bytes = StagedBytesOfBlock,
    .barrier_rounds = RoundsOfRowWalk,
    .row_batches = BatchesOfBlock,
    .held_ppm = Held,
    .meets_each_row = true,
};

}  // namespace retrograd
