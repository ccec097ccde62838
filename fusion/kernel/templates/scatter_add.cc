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
  return launch > 0 && launch + 1 == launches ? LaunchKind::kScatterCombine : Main(s);
}

PointsOfThread Points(const KernelProfile&, const Schedule& s) {
  return {.at_once = s.vector_width,
          .under_way = kScatterAtOnce * s.vector_width,
          .vectors = kScatterAtOnce};
}

// The first launch, of sums and zeros.
Schedule SummingLaunch(const KernelIr& ir, const Schedule& s) {
  const ScatterWorkspace w = ScatterWorkspaceOf(ir);
  Schedule sums = s;
  const int64_t vectors = CeilDiv(w.inner, s.vector_width);
  sums.blocks = CeilDiv(w.outer * w.chunks * vectors, s.threads) +
                CeilDiv(w.outer * ir.scatter->table_rows * vectors, s.threads * kScatterZeros);
  sums.blocks = std::max<int64_t>(sums.blocks, 1);
  return sums;
}

// A thread that sums rows, or partial sums, waits for each batch of them.
Preparation Batches(const KernelIr& ir, const DeviceSpec& d) {
  const ScatterWorkspace w = ScatterWorkspaceOf(ir);
  if (w.empty()) return {};
  const int64_t partials =
      w.sorted.indices / std::max<int64_t>(w.sorted.rows, 1) / w.chunk;  // of a row of the table
  const int64_t batches = w.chunk / kScatterAtOnce + partials / kScatterAtOnce;
  return {.ps = d.block_ps + Product({batches, d.scatter_batch_ps}),
          .formula = absl::StrCat(batches, " batches of a thread")};
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
    .launches = [](const KernelIr& ir) -> int64_t {
      return ScatterLaunches(ScatterWorkspaceOf(ir));
    },
    .workspace_bytes = [](const KernelIr& ir) { return ScatterWorkspaceOf(ir).bytes; },
    .working_launch = SummingLaunch,
    .preparation = Batches,
};

}  // namespace retrograd
