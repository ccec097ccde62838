// Reductions of both kinds: blocks walk rows and keep the sums of all columns in registers.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "fusion/kernel/ir/accesses/vector_grid.h"
#include "fusion/kernel/ir/scale.h"
#include "fusion/kernel/templates/column_walks.h"
#include "fusion/kernel/templates/kernel_template.h"
#include "fusion/kernel/templates/row_walks.h"

namespace retrograd {
namespace {

// Columns live in the registers of one block.
constexpr int64_t kMaxRowColumns = int64_t{1024} * kMaxPersistentElements;
// A search bound: the elements of a thread that leave an SM to one block (with their column sums
// 130 registers).
constexpr int64_t kMuchHeld = 32;

std::string AxisList(AxisMask axes) {
  std::string out;
  for (int a = 0; a < kMaxAxes; ++a) {
    if (axes >> a & 1) absl::StrAppend(&out, out.empty() ? "a" : ",a", a);
  }
  return out;
}

std::optional<Classification> Recognise(const KernelIr& ir, const Folds& folds) {
  if (folds.sets.size() < 2 || folds.fastest < 0) return std::nullopt;
  if (folds.sets.size() > 2) return Refused("its reductions fold three or more sets of axes");
  const bool first = folds.across(folds.sets[0]);
  const AxisMask across = folds.sets[first ? 0 : 1], down = folds.sets[first ? 1 : 0];
  if ((across & down) != 0 || (across | down) != folds.long_axes) {
    return Refused(absl::StrCat("its reductions fold ", AxisList(across), " and ", AxisList(down),
                                ", which are no rows and columns of ", AxisList(folds.long_axes)));
  }
  const int64_t columns = ir.Points(across);
  if (columns > kMaxRowColumns) {
    return Refused(absl::StrCat("rows of ", columns, " elements are wider than the ",
                                kMaxRowColumns, " column sums that a block can hold"));
  }
  if (std::string why = ColumnResultMisused(ir, across, folds.long_axes); !why.empty()) {
    return Refused(why);
  }
  return Recognised(ir, Template::kRowColumn, ir.all_axes() & ~across, across);
}

class RowColumns {
 public:
  explicit RowColumns(CandidateList& list)
      : list_(list),
        limits_(list.limits()),
        widest_(list.widest()),
        staged_element_(HasEnds(list.ir(), widest_) ? 0 : StagedBytesOfElement(list, widest_)) {}

  void Run() {
    int plain = static_cast<int>(
        std::min<int64_t>(PowerOfTwoFrom(std::max<int64_t>(list_.shape().columns, 8)), 256));
    while (ElementsInThread(list_, plain, 1) > 16 && plain < 1024) plain *= 2;
    list_.Add(WalkBy(plain, 1, 1, false, limits_.split ? limits_.sms : 1));
    for (int threads = 8; threads <= 1024; threads *= 2) {
      if (!FitsRow(list_, threads, widest_)) continue;
      for (int at_once : RowsAtOnce(limits_)) AddTeams(threads, at_once);
      for (int cluster : ClustersOfRow(list_, threads, widest_)) AddClusters(threads, cluster);
    }
  }

 private:
  Schedule WalkBy(int threads_per_row, int width, int at_once, bool persistent,
                  int64_t blocks) const {
    Schedule s =
        RowSchedule(list_, Template::kRowColumn, threads_per_row, width, at_once, persistent);
    s.blocks = std::clamp<int64_t>(
        blocks, 1, std::max<int64_t>(CeilDiv(list_.shape().rows, s.rows_per_block * at_once), 1));
    s.split = s.blocks;
    return s;
  }

  void AddTeams(int threads, int at_once) {
    const int64_t elements = ElementsInThread(list_, threads, widest_);
    if (elements * at_once > kMaxPersistentElements) return;
    for (int waves : {1, 2, 4}) {
      if (!limits_.split && waves > 1) continue;
      if (at_once > 1 && waves == 4) continue;
      const int64_t blocks = limits_.split ? int64_t{limits_.sms} * waves : 1;
      if (limits_.persistent && !StagesInstead(threads, elements, at_once, waves)) {
        AddPersistent(WalkBy(threads, widest_, at_once, true, blocks));
      }
      if (at_once == 1 && (waves == 2 || !limits_.persistent)) {
        list_.Add(WalkBy(threads, widest_, at_once, false, blocks));
      }
    }
  }

  // Clusters of blocks that fill the device as often as blocks of their own would, and a block of
  // fewer columns.
  void AddClusters(int threads, int cluster) {
    if (!limits_.split || !limits_.persistent) return;
    const int64_t elements = ElementsInThread(list_, threads * cluster, widest_);
    if (elements > kMaxPersistentElements) return;
    for (int waves : {1, 2, 4}) {
      Schedule s =
          WalkBy(threads, widest_, 1, true, SmsForClusters(limits_.sms, cluster) * waves / cluster);
      s = SharedByCluster(s, cluster, s.blocks);
      AddPersistent(s);
    }
  }

  // With and without the loads of the next rows ahead into shared memory, where a block walks
  // several and the device can.
  void AddPersistent(Schedule s) {
    list_.Add(s);
    if (!LoopsOverRows(s, list_.shape().rows)) return;
    s.staged = Batches(s);
    if (s.staged > 0) list_.Add(s);
  }

  // Whether loads ahead into shared memory take the place of rows at once: those were faster for
  // none of the kernels of a transformer whose schedules were timed. Blocks whose threads hold much
  // have an SM for themselves.
  bool StagesInstead(int threads_per_row, int64_t elements, int at_once, int waves) const {
    if (at_once == 1 && (elements < kMuchHeld || waves == 1)) return false;
    return Batches(WalkBy(threads_per_row, widest_, 1, true, limits_.sms)) > 0;
  }

  int Batches(const Schedule& s) const {
    return s.split <= 1 ? 0 : StagedBatches(list_, s, staged_element_);
  }

  CandidateList& list_;
  const ScheduleLimits& limits_;
  const int widest_;
  const int64_t staged_element_;  // bytes of an element that staged loads bring in
};

LaunchKind Main(const Schedule& s) {
  return s.persistent ? LaunchKind::kRowColumnPersistent : LaunchKind::kRowColumn;
}

LaunchKind KindOf(const Schedule& s, int64_t launch, int64_t) {
  return launch == 0 ? Main(s) : LaunchKind::kColumnFinalize;
}

int64_t SharedOfBlock(const KernelIr&, const KernelProfile& p, const Schedule& s, int64_t launch) {
  return (launch == 0 ? ScratchBytes(p, s) : 0) + ColumnTileBytes(p, s, launch);
}

RowBatches BatchesOfBlock(const KernelProfile& p, const Schedule& s) {
  const int64_t at_once = int64_t{s.rows_per_block} * s.rows_per_thread;
  return {.count = CeilDiv(p.shape.shape.rows, at_once * RowBlocks(s)),
          .passes = s.persistent ? 1 : p.stages.row_stages + 1};
}

int64_t Held(const KernelProfile& p, const Schedule& s, const DeviceSpec& d) {
  return HeldRowsPpm(p, s, d.held_beside_sums, d.held_beside_sums_twice);
}

}  // namespace

constinit const KernelTemplate kRowColumnTemplate = {
    .id = Template::kRowColumn,
    .name = "row_column",
    .recognise = Recognise,
    .candidates = [](CandidateList& list) { RowColumns(list).Run(); },
    .walk = Walk::kRows,
    .sums_columns = true,
    .keeps_columns = true,
    .shares_launches = true,
    .in_place = true,
    .launch_kind = KindOf,
    .main_launch = Main,
    .points_of_thread = PointsOfRowWalk,
    .shared_bytes = SharedOfBlock,
    .staged_bytes = StagedBytesOfBlock,
    .barrier_rounds = RoundsOfRowWalk,
    .row_batches = BatchesOfBlock,
    .held_ppm = Held,
};

}  // namespace retrograd
