// One scan: teams of threads have a row each, the places along the scanned axis, and go along it
// chunk by chunk. What varies before and after the scan is made in the same walk.
#include <algorithm>

#include "fusion/kernel/ir/scale.h"
#include "fusion/kernel/ir/vector_access.h"
#include "fusion/kernel/templates/kernel_template.h"

namespace retrograd {
namespace {

// Lanes that add up by shuffles, whatever the device's warp.
constexpr int kLanes = 32;
// Search bound: with fewer rows than this for each SM the threads of a row are what fills the
// device, and with more no team is worth pricing.
constexpr int64_t kRowsOfSm = 64;

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

// The sums of the groups of lanes.
int64_t SumsBytes(const KernelIr& ir, const KernelProfile&, const Schedule& s, int64_t) {
  if (s.threads_per_row <= kLanes) return 0;
  const auto scan = std::find_if(ir.instrs.begin(), ir.instrs.end(),
                                 [](const Instr& i) { return i.kind == InstrKind::kScan; });
  return SharedArrayBytes(s.threads / kLanes, SizeBytes(AccumulatorType(scan->dtype)));
}

void Add(CandidateList& list, int threads_per_row) {
  Schedule s{.kind = Template::kScan, .threads = kThreads};
  s.threads_per_row = threads_per_row;
  s.rows_per_block = kThreads / threads_per_row;
  s.blocks = CeilDiv(list.shape().rows, s.rows_per_block);
  if (s.blocks <= kMaxBlocks) list.Add(s);
}

// Neighbouring threads read neighbouring elements: along the row where that is the fastest axis,
// else each thread has a row.
void AddCandidates(CandidateList& list) {
  const int fastest = FastestAxis(list.ir());
  const bool along = fastest >= 0 && (list.shape().column_axes >> fastest & 1) != 0;
  if (!along) Add(list, 1);
  if (!along && list.shape().rows >= kRowsOfSm * list.limits().sms) return;
  Add(list, 8);
  for (int team = kLanes; team <= kThreads && team / 2 < list.shape().columns; team *= 2) {
    Add(list, team);
  }
}

LaunchKind Main(const Schedule&) { return LaunchKind::kRowReduction; }

// Shuffles, and where a row has several groups of lanes two barriers a chunk.
int64_t Rounds(const KernelProfile& p, const Schedule& s, const DeviceSpec&) {
  const int64_t chunks = CeilDiv(p.shape.shape.columns, s.threads_per_row);
  return chunks * (s.threads_per_row > kLanes ? 2 : 1);
}

}  // namespace

constinit const KernelTemplate kScanTemplate = {
    .id = Template::kScan,
    .name = "scan",
    .recognise = Recognise,
    .candidates = AddCandidates,
    .launch_kind = [](const Schedule& s, int64_t, int64_t) { return Main(s); },
    .main_launch = Main,
    .points_of_thread = OneVector,
    .shared_bytes = SumsBytes,
    .barrier_rounds = Rounds,
};

}  // namespace retrograd
