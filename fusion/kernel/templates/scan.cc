// One scan: teams of threads have a row each, the places along the scanned axis, and go along it
// chunk by chunk. What varies before and after the scan is made in the same walk. Where places are
// neighbours in memory, each thread has a vector of them. Where rows are, neighbouring threads have
// neighbouring rows, and each thread of a team has several places of a chunk, whose loads are under
// way together.
#include <algorithm>

#include "fusion/kernel/ir/accesses/vector_grid.h"
#include "fusion/kernel/ir/scale.h"
#include "fusion/kernel/templates/kernel_template.h"
#include "fusion/kernel/templates/scan_walk.h"

namespace retrograd {
namespace {

// Lanes that add up by shuffles, whatever the device's warp.
constexpr int kLanes = 32;
// Threads of a row where rows are neighbours: a block has 16 rows, whose elements fill sectors.
constexpr int kMostAcross = 16;
// Search bound: with fewer rows than this for each SM the threads of a row are what fills the
// device, and with more no team is worth pricing.
constexpr int64_t kRowsOfSm = 1024;

std::optional<Classification> Recognise(const KernelIr& ir, const Folds& folds) {
  AxisMask along = 0;
  int scans = 0;
  for (const Instr& instr : ir.instrs) {
    if (instr.kind != InstrKind::kScan) continue;
    ++scans;
    along |= instr.reduced;
  }
  if (scans == 0) return std::nullopt;
  if (scans > 1 || !folds.sets.empty() || ir.scatter.has_value()) {
    return Refused("a scan stands beside another scan, a reduction or a scatter");
  }
  return Recognised(ir, Template::kScan, ir.all_axes() & ~along, along);
}

// The sums of the groups of lanes, or of all threads.
int64_t SumsBytes(const KernelIr& ir, const KernelProfile& p, const Schedule& s, int64_t) {
  const bool along = ScansNeighbours(p.shape.shape);
  if (s.threads_per_row <= (along ? kLanes : 1)) return 0;
  const auto scan = std::find_if(ir.instrs.begin(), ir.instrs.end(),
                                 [](const Instr& i) { return i.kind == InstrKind::kScan; });
  return SharedArrayBytes(along ? s.threads / kLanes : s.threads,
                          SizeBytes(AccumulatorType(scan->dtype)));
}

void Add(CandidateList& list, int threads_per_row, int width = 1) {
  Schedule s{.kind = Template::kScan, .threads = kThreads, .vector_width = width};
  s.threads_per_row = threads_per_row;
  s.rows_per_block = kThreads / threads_per_row;
  s.blocks = CeilDiv(list.shape().rows, s.rows_per_block);
  if (s.blocks <= kMaxBlocks) list.Add(s);
}

void AddAcross(CandidateList& list) {
  Add(list, 1);
  if (list.shape().rows >= kRowsOfSm * list.limits().sms) return;
  const int64_t chunks = CeilDiv(list.shape().columns, PlacesOfThread(list.shape(), {}));
  for (int team = 2; team <= kMostAcross && team / 2 < chunks; team *= 2) Add(list, team);
}

void AddAlong(CandidateList& list, int width) {
  Add(list, 8, width);
  const int64_t vectors = CeilDiv(list.shape().columns, width);
  for (int team = kLanes; team <= kThreads && team / 2 < vectors; team *= 2) Add(list, team, width);
}

// Neighbouring threads read neighbouring elements: along the row where that is the fastest axis,
// else those of neighbouring rows.
void AddCandidates(CandidateList& list) {
  if (!ScansNeighbours(list.shape())) return AddAcross(list);
  AddAlong(list, 1);
  for (int width : list.widths()) {
    if (width > 1 && !HasEnds(list.ir(), width)) AddAlong(list, width);
  }
}

LaunchKind Main(const Schedule&) { return LaunchKind::kRowReduction; }

int64_t Chunks(const KernelProfile& p, const Schedule& s) {
  return CeilDiv(p.shape.shape.columns, s.threads_per_row * PlacesOfThread(p.shape.shape, s));
}

// Shuffles, and where a row has several groups of lanes, or of places, two barriers a chunk.
int64_t Rounds(const KernelProfile& p, const Schedule& s, const DeviceSpec&) {
  const int alone = ScansNeighbours(p.shape.shape) ? kLanes : 1;
  return Chunks(p, s) * (s.threads_per_row > alone ? 2 : 1);
}

// Where rows are neighbours, what stands before the scan is loaded for a whole chunk, and so is
// what stands behind it.
RowBatches Batches(const KernelProfile& p, const Schedule& s) {
  if (ScansNeighbours(p.shape.shape)) return {};
  return {.count = Chunks(p, s), .passes = 2};
}

PointsOfThread Places(const KernelProfile& p, const Schedule& s) {
  const int places = PlacesOfThread(p.shape.shape, s);
  if (ScansNeighbours(p.shape.shape)) return {.at_once = places, .under_way = places};
  return {.under_way = places, .among_stores = 1};
}

}  // namespace

constinit const KernelTemplate kScanTemplate = {
    .id = Template::kScan,
    .name = "scan",
    .recognise = Recognise,
    .candidates = AddCandidates,
    .launch_kind = [](const Schedule& s, int64_t, int64_t) { return Main(s); },
    .main_launch = Main,
    .points_of_thread = Places,
    .shared_bytes = SumsBytes,
    .barrier_rounds = Rounds,
    .row_batches = Batches,
};

}  // namespace retrograd
