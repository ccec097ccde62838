// One index_add: the indices are sorted, then chunks of sorted positions are summed.
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

// Inner columns of a thread: as many as one access of their sums takes.
void AddCandidates(CandidateList& list) {
  const KernelIr& ir = list.ir();
  list.Add({.kind = Template::kScatterAdd, .threads = kThreads});
  const Buffer& table = ir.buffers[ir.scatter->buffer];
  const DType sum = AccumulatorType(table.dtype);
  const int axis = FastestAxis(ir);
  if (!list.limits().vectorize || axis < 0 || !IsFloat(sum) ||
      (ir.scatter->row_axes >> axis) != 0) {
    return;
  }
  int width = kMaxAccessBytes / static_cast<int>(SizeBytes(sum));
  while (ir.extents[axis] % width != 0 || table.alignment % (width * SizeBytes(table.dtype)) != 0) {
    width /= 2;
  }
  list.Add({.kind = Template::kScatterAdd, .threads = kThreads, .vector_width = width});
}

LaunchKind Main(const Schedule&) { return LaunchKind::kScatterSum; }

LaunchKind KindOf(const Schedule& s, int64_t launch, int64_t launches) {
  if (launch + 1 == launches) return LaunchKind::kScatterCombine;
  return launch + 2 == launches ? Main(s) : LaunchKind::kScatterSort;
}

PointsOfThread Points(const KernelProfile&, const Schedule& s) {
  return {.at_once = s.vector_width,
          .under_way = kScatterAtOnce * s.vector_width,
          .vectors = kScatterAtOnce};
}

// The first launches sort the indices; then come the sums and zeros.
Schedule SummingLaunch(const KernelIr& ir, const Schedule& s) {
  const ScatterWorkspace w = ScatterWorkspaceOf(ir);
  Schedule sums = s;
  const int64_t vectors = CeilDiv(w.inner, s.vector_width);
  sums.blocks = CeilDiv(w.outer * w.chunks * vectors, s.threads) +
                CeilDiv(w.outer * ir.scatter->table_rows * vectors, s.threads * kScatterZeros);
  sums.blocks = std::max<int64_t>(sums.blocks, 1);
  return sums;
}

// The launches of the sort behind the first.
int64_t SharedOfSort(const KernelIr& ir, const KernelProfile&, const Schedule&, int64_t launch) {
  const ScatterWorkspace w = ScatterWorkspaceOf(ir);
  if (w.empty() || launch < 1 || launch > w.sort.passes) return 0;
  return SharedArrayBytes(ScatterCounters(w.sort), 4) + 2 * SharedArrayBytes(w.sort.threads, 4);
}

// The keys, the passes of the sort and the combining of partial sums, beside their launches. A pass
// that is not the last puts indices far from each other, and a thread that sums rows, or partial
// sums, waits for each batch of them.
Preparation Sort(const KernelIr& ir, const DeviceSpec& d) {
  const ScatterWorkspace w = ScatterWorkspaceOf(ir);
  if (w.empty()) return {};
  const int64_t passes = d.sort_far_passes * (w.sort.passes - 1) + 1;
  const int64_t partials =
      w.rows / std::max<int64_t>(ir.scatter->table_rows, 1) / w.chunk;  // of a row of the table
  const int64_t batches = w.chunk / kScatterAtOnce + partials / kScatterAtOnce;
  return {.ps = (ScatterLaunches(w) - 1) * d.block_ps + Product({passes, w.rows, d.sort_pass_ps}) +
                Product({batches, d.scatter_batch_ps}),
          .formula = absl::StrCat(w.sort.passes, " passes over the indices")};
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
    .shared_bytes = SharedOfSort,
    .launches = [](const KernelIr& ir) -> int64_t {
      return ScatterLaunches(ScatterWorkspaceOf(ir));
    },
    .workspace_bytes = [](const KernelIr& ir) { return ScatterWorkspaceOf(ir).bytes; },
    .working_launch = SummingLaunch,
    .preparation = Sort,
};

}  // namespace retrograd
