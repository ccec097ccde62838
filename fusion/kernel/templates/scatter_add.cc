// One segment_add: chunks of sorted positions are summed. Their columns may be folded on the way,
// and a value of each position stored.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "fusion/kernel/ir/accesses/vector_access.h"
#include "fusion/kernel/ir/scale.h"
#include "fusion/kernel/templates/kernel_template.h"
#include "fusion/kernel/templates/scatter_workspace.h"

namespace retrograd {
namespace {

constexpr int kWidestFold = 16;  // columns of a thread that folds

// The narrowest vector with which the columns of a fold make a team of a warp, or 0.
int LeastWidth(const KernelIr& ir) {
  const int widest = IsFloat(ir.buffers[ir.scatter->buffer].dtype) ? kWidestFold : 1;
  for (int width = 1; width <= widest; width *= 2) {
    if (FoldsInWarps(ir, width)) return width;
  }
  return 0;
}

// Why no threads of a chunk fold that, or "".
std::string FoldMisused(const KernelIr& ir, const Folds& folds) {
  const AxisMask rows = ir.scatter->row_axes;
  if (folds.sets.size() > 1) return "two reductions beside a scatter fold different axes";
  const AxisMask folded = folds.sets[0];
  const AxisMask last = ir.all_axes() & ~((folded & -folded) - 1);  // from the first one folded on
  if ((folded & rows) != 0 || (last & rows) != 0 || (last & folds.long_axes) != folded) {
    return "a reduction beside a scatter folds other axes than the last ones of each position";
  }
  for (const Instr& instr : ir.instrs) {
    if (FoldedAxes(ir, instr) != 0 && ir.Points(rows & ~instr.axes) != 1) {
      return "a reduction beside a scatter is the same at all positions";
    }
  }
  if (LeastWidth(ir) > 0) return "";
  return absl::StrCat("a reduction beside a scatter folds ", ir.Points(folded),
                      " columns, which make no vectors for the threads of a warp");
}

constexpr int64_t kBytesOfLine = 128;  // of a cache

// Bytes that a position stores side by side, of the tensor of which these are fewest.
int64_t LeastStoredBytes(const KernelIr& ir) {
  int64_t least = kBytesOfLine;
  for (const Store& s : ir.stores) {
    int64_t elements = 1;
    for (int a = static_cast<int>(ir.extents.size()) - 1; a >= 0; --a) {
      if ((ir.scatter->row_axes >> a & 1) != 0 || s.offset.axis_coef(a) != elements) break;
      elements *= ir.extents[a];
    }
    least = std::min(least, elements * SizeBytes(ir.buffers[s.buffer].dtype));
  }
  return least;
}

std::optional<Classification> Recognise(const KernelIr& ir, const Folds& folds) {
  if (!ir.scatter.has_value()) return std::nullopt;
  const bool more = !ir.stores.empty() || !folds.sets.empty();
  if (more && ir.Points(ir.all_axes()) == 0) {
    return Refused("a scatter of no elements has nothing beside it");
  }
  // Of one position all is the same at all positions.
  if (more && ir.Points(ir.scatter->row_axes) == 1) {
    return Refused("a scatter of one position has nothing beside it");
  }
  if (!folds.sets.empty()) {
    if (std::string why = FoldMisused(ir, folds); !why.empty()) return Refused(std::move(why));
  }
  for (const Store& store : ir.stores) {
    if (ir.Points(ir.scatter->row_axes & ~ir.instrs[store.instr].axes) == 1) continue;
    return Refused("a store beside a scatter has no value of each position");
  }
  // Measured: rows of 256 bytes win, pieces of 16 lose (docs/decisions/145-stores-beside-sums.md).
  if (folds.sets.empty() && !ir.stores.empty() && LeastStoredBytes(ir) < kBytesOfLine) {
    return Refused(absl::StrCat(
        "what no fold of its columns makes is stored by a kernel of its own where a position has "
        "less than ",
        kBytesOfLine, " bytes of it side by side"));
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
  const int least = LeastWidth(ir);
  list.Add({.kind = Template::kScatterAdd, .threads = kScatterThreads, .vector_width = least});
  // As many as an access of their sums takes; or more, where all that is read and the table take
  // them.
  const int sums = WidthOfAccess(ir, SizeBytes(AccumulatorType(table)));
  const int narrow = std::min(WidthOfAccess(ir, SizeBytes(table)), list.widest());
  for (int width : {sums, std::max(sums, narrow)}) {
    Schedule s{.kind = Template::kScatterAdd, .threads = kScatterThreads, .vector_width = least};
    if (list.limits().vectorize) s.vector_width = std::max(width, least);
    if (!FoldsInWarps(ir, s.vector_width)) continue;
    list.Add(s);
    s.staged = CanSharePositions(ir, s.vector_width);
    list.Add(s);
  }
}

// The launch of sums comes first.
int64_t Shared(const KernelIr& ir, const KernelProfile&, const Schedule& s, int64_t launch) {
  if (launch > 0) return SharedBytesOfCombine(ir, s.vector_width);
  return s.staged > 0 ? SharedPositionsOf(ir, s.vector_width).bytes : 0;
}

LaunchKind Main(const Schedule&) { return LaunchKind::kScatterSum; }

LaunchKind KindOf(const Schedule& s, int64_t launch, int64_t launches) {
  return launch > 0 && launch + 1 == launches ? LaunchKind::kScatterCombine : Main(s);
}

PointsOfThread Points(const KernelProfile& p, const Schedule& s) {
  const int positions = PositionsAtOnce(p.row_sums > 0);
  return {.at_once = s.vector_width,
          .under_way = int64_t{positions} * s.vector_width,
          .vectors = positions};
}

// The first launch, of sums and zeros. The blocks of the kind that has more of them make its waves,
// and the others fill the last one.
Schedule SummingLaunch(const KernelIr& ir, const Schedule& s) {
  const ScatterWorkspace w = ScatterWorkspaceOf(ir);
  Schedule sums = s;
  const int64_t vectors = CeilDiv(w.inner, s.vector_width);
  const int64_t zeros =
      CeilDiv(w.outer * ir.scatter->table_rows * vectors, s.threads * kScatterZeros);
  sums.blocks = std::max<int64_t>({BlocksOfSums(ir, s), zeros, 1});
  return sums;
}

// Loads of a thread that wait for others, one after the other: of each batch the positions, then
// what all their columns read, then the columns. A block that shares its positions waits for the
// first two once for as many as its threads load at once. Fewer positions a batch are waited for as
// much less.
int64_t ChainedLoads(const KernelIr& ir, const Schedule& s) {
  const int64_t batches = ScatterWorkspaceOf(ir).chunk / PositionsAtOnce(false);
  const SharedPositions shared = SharedPositionsOf(ir, s.vector_width);
  if (s.staged > 0) return 2 * shared.rounds() + batches;
  return batches * (shared.values.empty() ? 2 : 3);
}

Waits WaitsOf(const KernelIr& ir, const Schedule& s, int64_t blocks_per_sm, const DeviceSpec& d) {
  const ScatterWorkspace w = ScatterWorkspaceOf(ir);
  if (w.empty()) return {};
  const int64_t chain = ChainedLoads(ir, s), blocks = BlocksOfSums(ir, s);
  const int64_t at_once = d.sms * std::max<int64_t>(blocks_per_sm, 1);
  const int64_t parts =
      w.sorted.indices / std::max<int64_t>(w.sorted.rows, 1) / w.chunk;  // of a row of the table
  return {.ps = d.block_ps +
                MulDiv(Product({chain, d.scatter_batch_ps}), std::max(blocks, at_once), at_once),
          .later_ps = d.block_ps + Product({parts / PositionsAtOnce(false), d.scatter_batch_ps}),
          .formula = absl::StrCat(chain, " loads of a thread wait for others, ", blocks,
                                  " blocks in waves of ", at_once)};
}

}  // namespace

constinit const KernelTemplate kScatterAddTemplate = {
    .id = Template::kScatterAdd,
    .name = "scatter_add",
    .recognise = Recognise,
    .candidates = AddCandidates,
    .shares_launches = true,
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
