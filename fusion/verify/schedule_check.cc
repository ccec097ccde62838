// The plan checker on schedules, workspaces and bytes that an output takes over.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "fusion/verify/kernel_check.h"
#include "fusion/verify/template_checks.h"
#include "graph/base/status.h"

namespace retrograd {
namespace {

template <typename... Args>
absl::Status Broken(const Args&... args) {
  return absl::FailedPreconditionError(absl::StrCat(args...));
}

absl::Status CheckWidth(const ScheduleReading& r) {
  const int width = r.schedule.vector_width;
  const bool power = width >= 1 && width <= 16 && (width & (width - 1)) == 0;
  const bool thirds = r.schedule.kind == Template::kPointwise && (width == 12 || width == 24);
  if (!power && !thirds) return r.Misfit("has no vector width");
  const TemplateCheck& check = CheckOf(r.schedule.kind);
  if (width == 1 || check.holds_columns || check.has_tiles) return absl::OkStatus();
  const int64_t row = r.folds.fastest < 0 ? 0 : r.ir.extents[r.folds.fastest];
  if (row > 0 && row % width == 0) return absl::OkStatus();
  const bool whole_rows = r.folds.across == 0 || r.folds.across == AxisMask{1} << r.folds.fastest;
  if (thirds || !check.rows_with_ends || row < width || !whole_rows) {
    return r.Misfit("has vectors that reach beyond the fastest axis");
  }
  return absl::OkStatus();
}

absl::Status CheckLoadsAhead(const ScheduleReading& r) {
  const Schedule& s = r.schedule;
  if (s.staged < 0) return r.Misfit("stages fewer than no rows");
  const TemplateCheck& check = CheckOf(s.kind);
  if (check.scatters || check.stages_points || check.holds_columns) {
    return absl::OkStatus();  // nothing is ahead
  }
  if (s.staged > 0 && (!check.loads_ahead || !s.persistent)) {
    return r.Misfit("loads ahead where no rows are walked or nothing is kept");
  }
  return absl::OkStatus();
}

int BufferOf(const KernelIr& ir, ValueId v, bool written) {
  for (size_t b = 0; b < ir.buffers.size(); ++b) {
    if (ir.buffers[b].value == v && ir.buffers[b].written == written) return static_cast<int>(b);
  }
  return -1;
}

// By instruction: whether the value of `of` is needed for it.
std::vector<bool> NeededBy(const KernelIr& ir, int instr) {
  std::vector<bool> needed(ir.instrs.size(), false);
  needed[instr] = true;
  for (int i = instr; i >= 0; --i) {
    if (!needed[i]) continue;
    for (int o : ir.instrs[i].operands) needed[o] = true;
    for (const Indirect& ind : ir.instrs[i].indirect) needed[ind.instr] = true;
  }
  return needed;
}

// Each element of the output is written by the one point that reads that element of the input, and
// after it has.
bool MayTakeOver(const KernelIr& ir, const Schedule& s, int in, int out) {
  const Buffer &a = ir.buffers[in], &b = ir.buffers[out];
  if (SizeBytes(a.dtype) != SizeBytes(b.dtype) || a.elements != b.elements) return false;
  if (!CheckOf(s.kind).in_place) return false;
  const FoldReading r = ReadFoldsOf(ir);
  // A loop that reads its input again after a row's fold would find what it has stored.
  if ((r.across != 0 || CheckOf(s.kind).holds_columns) && !s.persistent) return false;
  const AxisMask rows = r.across != 0 ? ir.all_axes() & ~r.across : r.down;
  // Rows of threads that have no row of their own read the only one.
  if (!r.folds.empty() && ir.Points(rows) <= 1 && s.rows_per_block > 1) return false;
  if (r.folds.empty() && s.rows_per_block > 1) return false;
  const std::vector<bool> late = AfterFold(ir, r, false);
  for (const Store& store : ir.stores) {
    if (store.buffer != out) continue;
    const bool waits = late[store.instr] && !CheckOf(s.kind).holds_columns;
    if (waits || (r.long_axes & ~store.offset.axes()) != 0) return false;
    const std::vector<bool> needed = NeededBy(ir, store.instr);
    for (size_t i = 0; i < ir.instrs.size(); ++i) {
      const Instr& instr = ir.instrs[i];
      if (instr.kind != InstrKind::kLoad || instr.buffer != in) continue;
      if (!(instr.offset == store.offset) || !instr.guards.empty() || !instr.indirect.empty() ||
          !needed[i]) {
        return false;
      }
    }
  }
  return true;
}

}  // namespace

absl::Status CheckSchedule(const Group& group, const KernelBody& body) {
  const Schedule& s = body.schedule;
  if (s.threads < 1 || s.threads > 1024 || s.blocks < 1 || s.split < 1 || s.rows_per_block < 1 ||
      s.rows_per_thread < 1 || s.turns < 1) {
    return Broken("P7: its schedule has a number out of range: ", s.Print());
  }
  const ScheduleReading r{.ir = body.ir, .schedule = s, .folds = ReadFoldsOf(body.ir)};
  const TemplateCheck& check = CheckOf(s.kind);
  if (s.cluster != 1 && !check.holds_columns && !check.shares_rows)
    return r.Misfit("has clusters where none is needed");
  if (s.turns != 1 && s.kind != Template::kPointwise)
    return r.Misfit("has threads that come back for rows where no points are passed");
  RG_RETURN_IF_ERROR(CheckLoadsAhead(r));
  RG_RETURN_IF_ERROR(CheckWidth(r));
  if (check.scatters != body.ir.scatter.has_value()) {
    return r.Misfit("scatters where the kernel does not, or the other way round");
  }
  const bool scans = std::any_of(body.ir.instrs.begin(), body.ir.instrs.end(),
                                 [](const Instr& i) { return i.kind == InstrKind::kScan; });
  if (check.scans != scans) {
    return r.Misfit("scans where the kernel does not, or the other way round");
  }
  RG_RETURN_IF_ERROR(check.fits(r));
  const int64_t needed = check.workspace_bytes == nullptr ? 0 : check.workspace_bytes(r);
  if (group.workspace_bytes < needed) {
    return Broken("P7: its workspace has ", group.workspace_bytes, " of the ", needed,
                  " bytes that its schedule writes");
  }
  return absl::OkStatus();
}

absl::Status CheckInPlace(const Group& group, const KernelBody& body) {
  for (const Group::InPlace& pair : group.in_place) {
    const int in = BufferOf(body.ir, pair.input, false);
    const int out = BufferOf(body.ir, pair.output, true);
    if (in < 0 || out < 0 || !MayTakeOver(body.ir, body.schedule, in, out)) {
      return Broken("P8: %", Index(pair.output.node), ".", pair.output.result,
                    " may not take over the bytes of %", Index(pair.input.node), ".",
                    pair.input.result);
    }
  }
  return absl::OkStatus();
}

}  // namespace retrograd
