#include "fusion/verify/template_checks.h"

#include <algorithm>
#include <bit>

#include "absl/strings/str_cat.h"
#include "fusion/kernel/ir/scale.h"
#include "graph/base/status.h"

namespace retrograd {
namespace {

int64_t Round16(int64_t bytes) { return CeilDiv(bytes, 16) * 16; }

// Sums are kept in the compute type; integers in at least 32 bits.
int64_t AccumulatorBytes(DType dtype) { return SizeBytes(dtype) == 8 ? 8 : 4; }

// Partial results of the folds of `set`: one for each line and piece.
int64_t PartialBytes(const ScheduleReading& r, AxisMask set, AxisMask lines) {
  if (r.schedule.split <= 1) return 0;
  int64_t begin = 0, end = 0;
  for (size_t i = 0; i < r.ir.instrs.size(); ++i) {
    if (r.folds.folded[i] == 0 || r.folds.folded[i] != set) continue;
    end = begin + r.ir.Points(lines) * r.schedule.split * AccumulatorBytes(r.ir.instrs[i].dtype);
    begin = Round16(end);
  }
  return end;
}

AxisMask Without(const KernelIr& ir, AxisMask axes) { return ir.all_axes() & ~axes; }

absl::Status CheckTeams(const ScheduleReading& r) {
  const int team = r.schedule.threads_per_row;
  if (team < 1 || (team & (team - 1)) != 0 ||
      r.schedule.threads != team * r.schedule.rows_per_block) {
    return r.Misfit("has other threads than rows times threads of a row");
  }
  return absl::OkStatus();
}

// Clusters whose blocks have a part of each row between them: all of a block's threads share it,
// and what they hold of it is read once.
absl::Status CheckClustersOfRows(const ScheduleReading& r) {
  const Schedule& s = r.schedule;
  if (s.cluster == 1) return absl::OkStatus();
  if (s.cluster < 1 || s.cluster > 8 || (s.cluster & (s.cluster - 1)) != 0) {
    return r.Misfit("has no such clusters");
  }
  if (s.rows_per_block != 1 || s.rows_per_thread != 1 || !s.persistent || s.threads <= 32 ||
      s.blocks % s.cluster != 0) {
    return r.Misfit("shares rows that its blocks do not have to themselves");
  }
  return absl::OkStatus();
}

absl::Status CheckColumnUse(const ScheduleReading& r, AxisMask columns) {
  const std::vector<bool> after = AfterFold(r.ir, r.folds, false);
  for (size_t i = 0; i < after.size(); ++i) {
    if (after[i] && (r.ir.instrs[i].axes & r.folds.long_axes & ~columns) != 0) {
      return r.Misfit("spreads a column sum over the rows that it sums");
    }
  }
  return absl::OkStatus();
}

// Threads that go through several rows: of whole vectors, as many as have every column of some load
// in all its rows.
absl::Status CheckTurns(const ScheduleReading& r) {
  const Schedule& s = r.schedule;
  const int fastest = r.folds.fastest;
  bool all_rows = false;
  for (const Instr& load : r.ir.instrs) {
    if (load.kind != InstrKind::kLoad || fastest < 0 || (load.axes >> fastest & 1) == 0) continue;
    const int64_t rows = CeilDiv(r.ir.Points(Without(r.ir, load.axes)), int64_t{s.turns});
    all_rows |=
        Product({r.ir.Points(load.axes), rows}) <= Product({s.blocks, s.threads, s.vector_width});
  }
  if (s.staged != 0 || s.rows_per_thread > s.turns || !all_rows ||
      r.ir.extents[fastest] % s.vector_width != 0) {
    return r.Misfit("leaves out rows that its threads go through");
  }
  return absl::OkStatus();
}

absl::Status CheckPasses(const ScheduleReading& r) {
  if (!r.folds.folds.empty()) return r.Misfit("walks points where the kernel folds axes");
  if (r.schedule.split != 1) return r.Misfit("splits what it does not fold");
  if (r.schedule.turns != 1) return CheckTurns(r);
  if (r.schedule.rows_per_thread != 1) return r.Misfit("loads rows together where it has one");
  if (r.schedule.staged == 0) return absl::OkStatus();
  // Blocks whose threads have one point each and never come back for another.
  const int64_t points = r.ir.Points(r.ir.all_axes());
  if (r.schedule.staged != 1 || r.schedule.vector_width != 1 ||
      r.schedule.blocks * r.schedule.threads < points) {
    return r.Misfit(absl::StrCat("does not stage the rows of ", points, " points"));
  }
  return absl::OkStatus();
}

absl::Status CheckTranspose(const ScheduleReading& r) {
  const Schedule& s = r.schedule;
  if (!r.folds.folds.empty()) return r.Misfit("transposes where the kernel folds axes");
  if (s.split != 1 || s.threads % 32 != 0) return r.Misfit("is no transposing walk");
  // Blocks over the fastest axis and one other, whichever it is: of 32 x 32, or of 1,024 vectors,
  // 16 elements to 16 vectors along the fastest axis.
  if (s.vector_width != 1 && s.vector_width != 4 && s.vector_width != 8) {
    return r.Misfit("transposes by no width that it has");
  }
  const bool wide = s.vector_width > 1;
  // A thread has a vector along the other axis in each of four neighbours along the fastest one.
  const int64_t fast = r.folds.fastest < 0 ? 1 : r.ir.extents[r.folds.fastest];
  if (wide && fast % 4 != 0) return r.Misfit("has rows of four that reach beyond the fastest axis");
  for (int a = 0; a < r.folds.fastest; ++a) {
    const int64_t slow = r.ir.extents[a];
    if (slow <= 1 || slow % s.vector_width != 0) continue;
    const int64_t others = r.ir.Points(r.ir.all_axes()) / (slow * fast);
    const int64_t shortest = wide ? 16 : 32, longest = wide ? int64_t{16} * s.vector_width : 32;
    const int64_t elements = int64_t{1024} * s.vector_width;
    for (int64_t tile = shortest; tile <= longest; tile *= 2) {
      if (s.blocks == others * CeilDiv(slow, elements / tile) * CeilDiv(fast, tile))
        return absl::OkStatus();
    }
  }
  return r.Misfit("has another number of blocks than tiles");
}

// Pieces of a row know the fold only after all of them: nothing may wait for it in the row.
absl::Status CheckRowSplit(const ScheduleReading& r) {
  const Schedule& s = r.schedule;
  const int64_t rows = r.ir.Points(Without(r.ir, r.folds.across));
  if (s.persistent || s.blocks % s.split != 0 ||
      s.blocks / s.split * s.rows_per_block * s.rows_per_thread < rows) {
    return r.Misfit(absl::StrCat("does not cover ", rows, " rows"));
  }
  const std::vector<bool> after = AfterFold(r.ir, r.folds, true);
  for (size_t i = 0; i < after.size(); ++i) {
    const Instr& instr = r.ir.instrs[i];
    if (!after[i]) continue;
    if ((instr.axes & r.folds.across) != 0) return r.Misfit("splits rows that are read again");
    if (r.folds.folded[i] == 0) continue;
    if (after[instr.operands[0]]) return r.Misfit("splits a fold of a fold");
  }
  return absl::OkStatus();
}

absl::Status CheckRows(const ScheduleReading& r) {
  if (r.folds.folds.size() != 1 || r.folds.across == 0) {
    return r.Misfit("reduces rows where the kernel folds other axes");
  }
  RG_RETURN_IF_ERROR(CheckTeams(r));
  RG_RETURN_IF_ERROR(CheckClustersOfRows(r));
  if (r.schedule.split == 1) return absl::OkStatus();
  return r.schedule.cluster == 1 ? CheckRowSplit(r) : r.Misfit("splits rows that clusters share");
}

int64_t RowPartials(const ScheduleReading& r) {
  return PartialBytes(r, r.folds.across, Without(r.ir, r.folds.across));
}

absl::Status CheckColumns(const ScheduleReading& r) {
  const Schedule& s = r.schedule;
  if (r.folds.folds.size() != 1 || r.folds.down == 0) {
    return r.Misfit("reduces columns where the kernel folds other axes");
  }
  const AxisMask column_axes = Without(r.ir, r.folds.down);
  RG_RETURN_IF_ERROR(CheckColumnUse(r, column_axes));
  const int64_t columns = r.ir.Points(column_axes);
  if (s.threads % s.rows_per_block != 0) return r.Misfit("has a broken row of threads");
  const int64_t lanes = s.threads / s.rows_per_block;
  const int64_t tiles = std::max<int64_t>(CeilDiv(columns, lanes * s.vector_width), 1);
  if (s.blocks != tiles * s.split) {
    return r.Misfit(absl::StrCat("does not cover ", columns, " columns"));
  }
  return absl::OkStatus();
}

int64_t ColumnPartials(const ScheduleReading& r) {
  return PartialBytes(r, r.folds.down, Without(r.ir, r.folds.down));
}

absl::Status CheckRowColumn(const ScheduleReading& r) {
  const FoldReading& f = r.folds;
  if (f.folds.size() != 2 || f.across == 0 || f.down == 0 || (f.across & f.down) != 0 ||
      (f.across | f.down) != f.long_axes) {
    return r.Misfit("reduces rows and columns where the kernel folds other axes");
  }
  RG_RETURN_IF_ERROR(CheckTeams(r));
  RG_RETURN_IF_ERROR(CheckClustersOfRows(r));
  RG_RETURN_IF_ERROR(CheckColumnUse(r, f.across));
  if (r.schedule.split * r.schedule.cluster != r.schedule.blocks) {
    return r.Misfit("has other partial sums than blocks");
  }
  return absl::OkStatus();
}

int64_t RowColumnPartials(const ScheduleReading& r) {
  return PartialBytes(r, r.folds.down, r.folds.across);
}

// Positions have folds of their last columns, by threads of a warp whose vectors fill a fold, and
// stores of their own.
absl::Status CheckScatter(const ScheduleReading& r) {
  const AxisMask rows = r.ir.scatter->row_axes & r.folds.long_axes;
  for (const Store& store : r.ir.stores) {
    if ((rows & ~r.ir.instrs[store.instr].axes) == 0) continue;
    return r.Misfit("goes through positions, of which a store is none");
  }
  if (r.folds.folds.empty()) return absl::OkStatus();
  const AxisMask folded = r.folds.folds[0];
  if (r.folds.folds.size() > 1) return r.Misfit("folds different columns of its positions");
  int64_t columns = 1;
  for (int a = r.folds.fastest; a >= std::countr_zero(folded); --a) {
    columns *= r.ir.extents[a];
    if (((r.folds.long_axes & (rows | ~folded)) >> a & 1) != 0) {
      return r.Misfit("folds other columns than the last ones of its positions");
    }
  }
  for (size_t i = 0; i < r.ir.instrs.size(); ++i) {
    if (r.folds.folded[i] == 0 || (rows & ~r.ir.instrs[i].axes) == 0) continue;
    return r.Misfit("folds what is the same at all positions");
  }
  if (columns % r.schedule.vector_width != 0 || columns > int64_t{32} * r.schedule.vector_width) {
    return r.Misfit(absl::StrCat("does not fold ", columns, " columns in a warp"));
  }
  return absl::OkStatus();
}

// Two partial rows for every 128 sorted positions, or for fewer.
int64_t ScatterWorkspace(const ScheduleReading& r) {
  const Scatter& s = *r.ir.scatter;
  const int64_t rows = r.ir.Points(s.row_axes);
  const int64_t around = r.ir.Points(Without(r.ir, s.row_axes));
  const int64_t partials = around * CeilDiv(rows, 128) * 2;
  return Round16(partials * AccumulatorBytes(r.ir.buffers[s.buffer].dtype));
}

// Teams that have a row each and go along it together.
absl::Status CheckScan(const ScheduleReading& r) {
  const Schedule& s = r.schedule;
  if (!r.folds.folds.empty()) return r.Misfit("scans where the kernel folds axes");
  if (s.split != 1 || s.rows_per_thread != 1) return r.Misfit("is no scanning walk");
  RG_RETURN_IF_ERROR(CheckTeams(r));
  AxisMask along = 0;
  int scans = 0;
  for (const Instr& instr : r.ir.instrs) {
    if (instr.kind != InstrKind::kScan) continue;
    ++scans;
    along |= instr.reduced;
  }
  const int64_t rows = r.ir.Points(Without(r.ir, along));
  if (scans != 1) return r.Misfit("makes one scan where the kernel has several");
  const int fastest = r.folds.fastest;
  if (s.vector_width != 1 && (fastest < 0 || (along >> fastest & 1) == 0)) {
    return r.Misfit("scans across its vectors");
  }
  if (s.blocks < CeilDiv(rows, s.rows_per_block)) {
    return r.Misfit(absl::StrCat("does not cover ", rows, " rows"));
  }
  return absl::OkStatus();
}

// Clusters that have a slab of columns each, and blocks of them that have its rows between them.
absl::Status CheckHeldColumns(const ScheduleReading& r) {
  const Schedule& s = r.schedule;
  const FoldReading& f = r.folds;
  if (f.folds.size() != 1) return r.Misfit("holds columns where the kernel folds several sets");
  if (s.cluster < 1 || s.cluster > 8 || (s.cluster & (s.cluster - 1)) != 0) {
    return r.Misfit("has no such clusters");
  }
  if (s.split != 1 || s.threads_per_row != 0 || s.threads % s.rows_per_block != 0 ||
      s.persistent != (s.staged == 1)) {
    return r.Misfit("holds no columns");
  }
  const int64_t lanes = s.threads / s.rows_per_block;
  if ((lanes & (lanes - 1)) != 0 || (s.staged == 1 && s.threads % 32 != 0)) {
    return r.Misfit("has threads of a column that no teams add up");
  }
  if (f.across != 0 && s.staged != 1) return r.Misfit("reads again what row reductions read");
  const AxisMask kept = Without(r.ir, f.folds[0]);
  bool divides = false;
  for (size_t a = 0; a < r.ir.extents.size(); ++a) {
    divides |=
        (kept >> a & 1) != 0 && r.ir.extents[a] != 1 && r.ir.extents[a] % s.vector_width == 0;
  }
  if (!divides) return r.Misfit("has vectors that reach beyond the columns");
  const int64_t columns = r.ir.Points(kept);
  const int64_t slab = int64_t{s.threads / s.rows_per_block} * s.vector_width;
  if (s.blocks != std::max<int64_t>(CeilDiv(columns, slab), 1) * s.cluster) {
    return r.Misfit(absl::StrCat("does not cover ", columns, " columns"));
  }
  return absl::OkStatus();
}

// Blocks that have each a tile of two axes, which together are all that is folded.
absl::Status CheckHeldTiles(const ScheduleReading& r) {
  const Schedule& s = r.schedule;
  AxisMask tile = 0;
  for (AxisMask set : r.folds.folds) tile |= set;
  if (std::popcount(tile) != 2) return r.Misfit("has tiles of other axes than two");
  for (size_t i = 0; i < r.ir.instrs.size(); ++i) {
    if (r.folds.folded[i] == 0) continue;
    if ((tile & ~r.ir.instrs[r.ir.instrs[i].operands[0]].axes) != 0) {
      return r.Misfit("folds what a tile does not have at each of its elements");
    }
  }
  if (s.split != 1 || s.rows_per_block != 1 || s.rows_per_thread != 1 ||
      s.threads_per_row != s.threads || s.threads % 32 != 0) {
    return r.Misfit("is no walk of tiles");
  }
  bool divides = false;
  for (size_t a = 0; a < r.ir.extents.size(); ++a) {
    divides |= (tile >> a & 1) != 0 && r.ir.extents[a] % s.vector_width == 0;
  }
  if (!divides) return r.Misfit("has vectors that reach beyond the tiles");
  const int64_t tiles = r.ir.Points(Without(r.ir, tile));
  if (s.blocks != std::max<int64_t>(tiles, 1)) {
    return r.Misfit(absl::StrCat("does not cover ", tiles, " tiles"));
  }
  return absl::OkStatus();
}

constexpr TemplateCheck kChecks[] = {
    {.id = Template::kPointwise,
     .fits = CheckPasses,
     .stages_points = true,
     .rows_with_ends = true},
    {.id = Template::kRowReduction,
     .fits = CheckRows,
     .workspace_bytes = RowPartials,
     .loads_ahead = true,
     .rows_with_ends = true,
     .shares_rows = true},
    {.id = Template::kColumnReduction, .fits = CheckColumns, .workspace_bytes = ColumnPartials},
    {.id = Template::kRowColumn,
     .fits = CheckRowColumn,
     .workspace_bytes = RowColumnPartials,
     .loads_ahead = true,
     .shares_rows = true},
    {.id = Template::kTranspose, .fits = CheckTranspose, .has_tiles = true, .in_place = false},
    {.id = Template::kScatterAdd,
     .fits = CheckScatter,
     .workspace_bytes = ScatterWorkspace,
     .scatters = true,
     .in_place = false},
    {.id = Template::kScan, .fits = CheckScan, .scans = true, .in_place = false},
    {.id = Template::kHeldColumns, .fits = CheckHeldColumns, .holds_columns = true},
    {.id = Template::kHeldTiles, .fits = CheckHeldTiles, .has_tiles = true, .in_place = false},
};

constexpr bool InOrder() {
  for (size_t i = 0; i < std::size(kChecks); ++i) {
    if (static_cast<size_t>(kChecks[i].id) != i) return false;
  }
  return true;
}
static_assert(InOrder(), "rows stand by number of Template");

}  // namespace

const TemplateCheck& CheckOf(Template id) { return kChecks[static_cast<int>(id)]; }

}  // namespace retrograd
