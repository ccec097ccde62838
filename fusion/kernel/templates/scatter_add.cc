// One segment_add: chunks of sorted positions are summed.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "fusion/kernel/ir/scale.h"
#include "fusion/kernel/ir/vector_access.h"
#include "fusion/kernel/templates/kernel_template.h"
#include "fusion/kernel/templates/scatter_workspace.h"

namespace retrograd {
namespace {

std::optional<Classification> Recognise(const KernelIr& ir, const Folds&) {
  if (!ir.scatter.has_value()) return std::nullopt;
  for (const Instr& instr : ir.instrs) {
    if (instr.kind != InstrKind::kReduce) continue;
    return Refused("a scatter reads its source point by point: no reduction may stand before it");
  }
  const AxisMask rows = ir.scatter->row_axes;
  return Recognised(ir, Template::kScatterAdd, rows, ir.all_axes() & ~rows);
}

// Inner columns of a thread: no more than one access takes of elements of so many bytes.
int WidthOfAccess(const KernelIr& ir, int64_t element_bytes) {
  const Buffer& table = ir.buffers[ir.scatter->buffer];
  const int axis = FastestAxis(ir);
  if (axis < 0 || !IsFloat(table.dtype) || (ir.scatter->row_axes >> axis) != 0) return 1;
  int width = kMaxAccessBytes / static_cast<int>(element_bytes);
  while (ir.extents[axis] % width != 0 || table.alignment % (width * SizeBytes(table.dtype)) != 0) {
    width /= 2;
  }
  return width;
}

void AddCandidates(CandidateList& list) {
  const KernelIr& ir = list.ir();
  const DType table = ir.buffers[ir.scatter->buffer].dtype;
  list.Add({.kind = Template::kScatterAdd, .threads = kScatterThreads});
  // As many as an access of their sums takes; or more, where all that is read and the table take
  // them.
  const int sums = WidthOfAccess(ir, SizeBytes(AccumulatorType(table)));
  const int narrow = std::min(WidthOfAccess(ir, SizeBytes(table)), list.widest());
  for (int width : {sums, std::max(sums, narrow)}) {
    Schedule s{.kind = Template::kScatterAdd, .threads = kScatterThreads};
    if (list.limits().vectorize) s.vector_width = width;
    list.Add(s);
    s.staged = CanSharePositions(ir, s.vector_width);
    list.Add(s);
  }
}

// The launch of sums comes first.
int64_t Shared(const KernelIr& ir, const KernelProfile&, const Schedule& s, int64_t launch) {
  return s.staged > 0 && launch == 0 ? SharedPositionsOf(ir, s.vector_width).bytes : 0;
}

LaunchKind Main(const Schedule&) { return LaunchKind::kScatterSum; }

LaunchKind KindOf(const Schedule& s, int64_t launch, int64_t launches) {
  return launch > 0 && launch + 1 == launches ? LaunchKind::kScatterCombine : Main(s);
}

PointsOfThread Points(const KernelProfile&, const Schedule& s) {
  return {.at_once = s.vector_width,
          .under_way = kScatterAtOnce * s.vector_width,
          .vectors = kScatterAtOnce};
}

// The first launch, of sums and zeros. The blocks of the kind that has more of them make its waves,
// and the others fill the last one.
Schedule SummingLaunch(const KernelIr& ir, const Schedule& s) {
  const ScatterWorkspace w = ScatterWorkspaceOf(ir);
  Schedule sums = s;
  const int64_t vectors = CeilDiv(w.inner, s.vector_width);
  const int64_t zeros =
      CeilDiv(w.outer * ir.scatter->table_rows * vectors, s.threads * kScatterZeros);
  sums.blocks = std::max<int64_t>({BlocksOfSums(w, s), zeros, 1});
  return sums;
}

// Loads of a thread that wait for others, one after the other: of each batch the positions, then
// what all their columns read, then the columns. A block that shares its positions waits for the
// first two once.
int64_t ChainedLoads(const KernelIr& ir, const Schedule& s) {
  const int64_t batches = ScatterWorkspaceOf(ir).chunk / kScatterAtOnce;
  if (s.staged > 0) return 2 + batches;
  return batches * (SharedPositionsOf(ir, s.vector_width).values.empty() ? 2 : 3);
}

Waits WaitsOf(const KernelIr& ir, const Schedule& s, int64_t blocks_per_sm, const DeviceSpec& d) {
  const ScatterWorkspace w = ScatterWorkspaceOf(ir);
  if (w.empty()) return {};
  const int64_t chain = ChainedLoads(ir, s), blocks = BlocksOfSums(w, s);
  const int64_t at_once = d.sms * std::max<int64_t>(blocks_per_sm, 1);
  const int64_t parts =
      w.sorted.indices / std::max<int64_t>(w.sorted.rows, 1) / w.chunk;  // of a row of the table
  return {.ps = d.block_ps +
                MulDiv(Product({chain, d.scatter_batch_ps}), std::max(blocks, at_once), at_once),
          .later_ps = d.block_ps + Product({parts / kScatterAtOnce, d.scatter_batch_ps}),
          .formula = absl::StrCat(chain, " loads of a thread wait for others, ", blocks,
                                  " blocks in waves of ", at_once)};
}

}  // namespace

constinit const KernelTemplate kScatterAddTemplate = {
    .id = Template::kScatterAdd,
    .name = "scatter_add",
    .recognise = Recognise,
    .candidates = AddCandidates,
    .launch_kind = KindOf,
    .main_launch = Main,
    .points_of_thread = Points,
    .shared_bytes = Shared,
    .launches = [](const KernelIr& ir) -> int64_t {
      return ScatterLaunches(ScatterWorkspaceOf(ir));
    },
    .workspace_bytes = [](const KernelIr& ir) { return ScatterWorkspaceOf(ir).bytes; },
    .working_launch = SummingLaunch,
    .waits = WaitsOf,
};

}  // namespace retrograd
