// The plan checker on schedules, workspaces and bytes that an output takes over.
#include <algorithm>
#include <bit>

#include "absl/strings/str_cat.h"
#include "fusion/kernel/ir/scale.h"
#include "fusion/verify/kernel_check.h"
#include "graph/base/status.h"

namespace retrograd {
namespace {

template <typename... Args>
absl::Status Broken(const Args&... args) {
  return absl::FailedPreconditionError(absl::StrCat(args...));
}
int64_t Round16(int64_t bytes) { return CeilDiv(bytes, 16) * 16; }

// Sums are kept in the compute type; integers in at least 32 bits.
int64_t AccumulatorBytes(DType dtype) { return SizeBytes(dtype) == 8 ? 8 : 4; }

// What the reductions say about rows and columns.
struct Reading {
  AxisMask long_axes = 0;         // of more or less than one position
  int fastest = -1;               // the last axis of more than one
  std::vector<AxisMask> folds;    // distinct sets of folded axes
  std::vector<AxisMask> folded;   // by instruction
  AxisMask across = 0, down = 0;  // the set with the fastest axis, and the other
};

Reading Read(const KernelIr& ir) {
  Reading r;
  for (size_t a = 0; a < ir.extents.size(); ++a) {
    if (ir.extents[a] != 1) r.long_axes |= AxisMask{1} << a;
    if (ir.extents[a] > 1) r.fastest = static_cast<int>(a);
  }
  for (const Instr& instr : ir.instrs) {
    const AxisMask folded = instr.kind == InstrKind::kReduce ? instr.reduced & r.long_axes : 0;
    r.folded.push_back(folded);
    if (folded == 0) continue;
    if (std::find(r.folds.begin(), r.folds.end(), folded) == r.folds.end()) {
      r.folds.push_back(folded);
    }
    const bool fast = r.fastest < 0 || (folded >> r.fastest & 1) != 0;
    (fast ? r.across : r.down) = folded;
  }
  return r;
}

// By instruction: whether it waits for a reduction of the given kind.
std::vector<bool> After(const KernelIr& ir, const Reading& r, bool across) {
  std::vector<bool> after(ir.instrs.size(), false);
  for (size_t i = 0; i < ir.instrs.size(); ++i) {
    for (int o : ir.instrs[i].operands) after[i] = after[i] || after[o];
    for (const Indirect& ind : ir.instrs[i].indirect) after[i] = after[i] || after[ind.instr];
    const AxisMask folded = r.folded[i];
    if (folded != 0 && folded == (across ? r.across : r.down)) after[i] = true;
  }
  return after;
}

class ScheduleChecker {
 public:
  ScheduleChecker(const Group& group, const KernelBody& body)
      : group_(group), ir_(body.ir), s_(body.schedule), r_(Read(body.ir)) {}

  absl::Status Run() {
    if (s_.threads < 1 || s_.threads > 1024 || s_.blocks < 1 || s_.split < 1 ||
        s_.rows_per_block < 1 || s_.rows_per_thread < 1) {
      return Broken("P7: its schedule has a number out of range: ", s_.Print());
    }
    if (s_.staged < 0 || (s_.staged > 0 && s_.prefetch)) {
      return Misfit("loads ahead to two places");
    }
    if ((s_.prefetch || s_.staged > 0) && (s_.kind != Template::kRowColumn || !s_.persistent)) {
      return Misfit("loads ahead where no rows are walked or nothing is kept");
    }
    RG_RETURN_IF_ERROR(CheckWidth());
    RG_RETURN_IF_ERROR(CheckTemplate());
    const int64_t needed = WorkspaceNeeded();
    if (group_.workspace_bytes < needed) {
      return Broken("P7: its workspace has ", group_.workspace_bytes, " of the ", needed,
                    " bytes that its schedule writes");
    }
    return absl::OkStatus();
  }

 private:
  absl::Status Misfit(absl::string_view why) const {
    return Broken("P7: its schedule ", s_.Print(), " ", why);
  }

  absl::Status CheckWidth() const {
    const int width = s_.vector_width;
    if (width < 1 || width > 16 || (width & (width - 1)) != 0) return Misfit("has no vector width");
    if (width > 1 && (r_.fastest < 0 || ir_.extents[r_.fastest] % width != 0)) {
      return Misfit("has vectors that reach beyond the fastest axis");
    }
    return absl::OkStatus();
  }

  absl::Status CheckTemplate() {
    if ((s_.kind == Template::kScatterAdd) != ir_.scatter.has_value()) {
      return Misfit("scatters where the kernel does not, or the other way round");
    }
    switch (s_.kind) {
      case Template::kPointwise:
        if (!r_.folds.empty()) return Misfit("walks points where the kernel folds axes");
        if (s_.split != 1) return Misfit("splits what it does not fold");
        return absl::OkStatus();
      case Template::kTranspose: return CheckTranspose();
      case Template::kScatterAdd: return absl::OkStatus();
      case Template::kRowReduction: return CheckRows();
      case Template::kColumnReduction: return CheckColumns();
      case Template::kRowColumn: return CheckRowColumn();
    }
    return absl::OkStatus();
  }

  absl::Status CheckTranspose() const {
    if (!r_.folds.empty()) return Misfit("transposes where the kernel folds axes");
    if (s_.split != 1 || s_.threads % 32 != 0) return Misfit("is no transposing walk");
    // Blocks of 32 x 32 over the fastest axis and one other, whichever it is.
    for (int a = 0; a < r_.fastest; ++a) {
      const int64_t slow = ir_.extents[a], fast = ir_.extents[r_.fastest];
      if (slow <= 1) continue;
      const int64_t others = ir_.Points(ir_.all_axes()) / (slow * fast);
      if (s_.blocks == others * CeilDiv(slow, 32) * CeilDiv(fast, 32)) return absl::OkStatus();
    }
    return Misfit("has another number of blocks than tiles");
  }

  absl::Status CheckTeams() const {
    const int team = s_.threads_per_row;
    if (team < 1 || (team & (team - 1)) != 0 || s_.threads != team * s_.rows_per_block) {
      return Misfit("has other threads than rows times threads of a row");
    }
    return absl::OkStatus();
  }

  absl::Status CheckRows() const {
    const bool across_only = r_.folds.size() == 1 && r_.across != 0;
    if (!across_only) return Misfit("reduces rows where the kernel folds other axes");
    RG_RETURN_IF_ERROR(CheckTeams());
    if (s_.split == 1) return absl::OkStatus();
    const int64_t rows = ir_.Points(ir_.all_axes() & ~r_.across);
    if (s_.persistent || s_.blocks % s_.split != 0 ||
        s_.blocks / s_.split * s_.rows_per_block * s_.rows_per_thread < rows) {
      return Misfit(absl::StrCat("does not cover ", rows, " rows"));
    }
    // Pieces of a row know the fold only after all of them: nothing may wait for it in the row.
    const std::vector<bool> after = After(ir_, r_, true);
    for (size_t i = 0; i < after.size(); ++i) {
      const Instr& instr = ir_.instrs[i];
      if (!after[i]) continue;
      if ((instr.axes & r_.across) != 0) return Misfit("splits rows that are read again");
      if (r_.folded[i] == 0) continue;
      if (after[instr.operands[0]]) return Misfit("splits a fold of a fold");
    }
    return absl::OkStatus();
  }

  absl::Status CheckColumnUse(AxisMask columns) const {
    const std::vector<bool> after = After(ir_, r_, false);
    for (size_t i = 0; i < after.size(); ++i) {
      if (after[i] && (ir_.instrs[i].axes & r_.long_axes & ~columns) != 0) {
        return Misfit("spreads a column sum over the rows that it sums");
      }
    }
    return absl::OkStatus();
  }

  absl::Status CheckColumns() const {
    if (r_.folds.size() != 1 || r_.down == 0) {
      return Misfit("reduces columns where the kernel folds other axes");
    }
    const AxisMask column_axes = ir_.all_axes() & ~r_.down;
    RG_RETURN_IF_ERROR(CheckColumnUse(column_axes));
    const int64_t columns = ir_.Points(column_axes);
    if (s_.threads % s_.rows_per_block != 0) return Misfit("has a broken row of threads");
    const int64_t lanes = s_.threads / s_.rows_per_block;
    const int64_t tiles = std::max<int64_t>(CeilDiv(columns, lanes * s_.vector_width), 1);
    if (s_.blocks != tiles * s_.split) {
      return Misfit(absl::StrCat("does not cover ", columns, " columns"));
    }
    return absl::OkStatus();
  }

  absl::Status CheckRowColumn() const {
    if (r_.folds.size() != 2 || r_.across == 0 || r_.down == 0 || (r_.across & r_.down) != 0 ||
        (r_.across | r_.down) != r_.long_axes) {
      return Misfit("reduces rows and columns where the kernel folds other axes");
    }
    RG_RETURN_IF_ERROR(CheckTeams());
    RG_RETURN_IF_ERROR(CheckColumnUse(r_.across));
    if (s_.split != s_.blocks) return Misfit("has other partial sums than blocks");
    return absl::OkStatus();
  }

  // Partial results of a split fold: one for each line and piece; a scatter's sorted indices.
  int64_t WorkspaceNeeded() const {
    if (ir_.scatter) return ScatterWorkspace();
    if (s_.split <= 1) return 0;
    const bool by_row = s_.kind == Template::kRowReduction;
    const int64_t lines = s_.kind == Template::kColumnReduction
                              ? ir_.Points(ir_.all_axes() & ~r_.down)
                          : by_row ? ir_.Points(ir_.all_axes() & ~r_.across)
                                   : ir_.Points(r_.across);
    int64_t begin = 0, end = 0;
    for (size_t i = 0; i < ir_.instrs.size(); ++i) {
      if (r_.folded[i] == 0 || r_.folded[i] != (by_row ? r_.across : r_.down)) continue;
      end = begin + lines * s_.split * AccumulatorBytes(ir_.instrs[i].dtype);
      begin = Round16(end);
    }
    return end;
  }

  // Four lists of int32 (where each table row begins; order, keys, and keys once more for the
  // sort), and two partial rows for every 64 sorted positions, or for fewer.
  int64_t ScatterWorkspace() const {
    const Scatter& s = *ir_.scatter;
    const int64_t rows = ir_.Points(s.row_axes);
    const int64_t around = ir_.Points(ir_.all_axes() & ~s.row_axes);
    const int64_t partials = around * CeilDiv(rows, 64) * 2;
    return Round16(4 * (s.table_rows + 1)) + 3 * Round16(4 * rows) +
           Round16(partials * AccumulatorBytes(ir_.buffers[s.buffer].dtype));
  }

  const Group& group_;
  const KernelIr& ir_;
  const Schedule& s_;
  Reading r_;
};

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
  if (ir.scatter || s.kind == Template::kTranspose) return false;
  const Reading r = Read(ir);
  // A loop that reads its input again after a row's fold would find what it has stored.
  if (r.across != 0 && !s.persistent) return false;
  const AxisMask rows = r.across != 0 ? ir.all_axes() & ~r.across : r.down;
  // Rows of threads that have no row of their own read the only one.
  if (!r.folds.empty() && ir.Points(rows) <= 1 && s.rows_per_block > 1) return false;
  if (r.folds.empty() && s.rows_per_block > 1) return false;
  const std::vector<bool> late = After(ir, r, false);
  for (const Store& store : ir.stores) {
    if (store.buffer != out) continue;
    if (late[store.instr] || (r.long_axes & ~store.offset.axes()) != 0) return false;
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
  return ScheduleChecker(group, body).Run();
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
