// Sums down the rows. A block takes a run of columns and, where the schedule splits, a piece of the
// rows; its thread rows stride over them with the sums in registers. With several rows a thread at
// once the loads of all are under way before the first is worked on: the compiler itself moves no
// load past a store.
#include <algorithm>

#include "codegen/print/numbers/sized_number.h"
#include "codegen/templates/column_totals.h"
#include "codegen/templates/templates.h"
#include "graph/base/status.h"

namespace retrograd {
namespace {

struct ColumnBody {
  std::vector<int> outer, inner;  // instructions: once a column, once a row of it
  std::vector<int> stores;        // of what varies over rows
};

ColumnBody Split(const KernelIr& ir, const Classification& shape, const ColumnTotals& totals,
                 const PointPrinter& printer) {
  ColumnBody body;
  std::vector<int> roots;
  for (int r : totals.reductions) roots.push_back(ir.instrs[r].operands[0]);
  for (size_t s = 0; s < ir.stores.size(); ++s) {
    const int store = static_cast<int>(s);
    if (std::find(totals.stores.begin(), totals.stores.end(), store) != totals.stores.end()) {
      continue;
    }
    body.stores.push_back(store);
    roots.push_back(ir.stores[s].instr);
  }
  for (int i : printer.Needed(roots)) {
    const bool by_row = (ir.instrs[i].axes & shape.shape.row_axes) != 0;
    (by_row ? body.inner : body.outer).push_back(i);
  }
  return body;
}

// Loads of a row that ask nobody where to look.
std::vector<int> LoadsAhead(const KernelIr& ir, const std::vector<int>& instrs) {
  std::vector<int> ahead;
  for (int i : instrs) {
    if (ir.instrs[i].kind == InstrKind::kLoad && ir.instrs[i].indirect.empty()) ahead.push_back(i);
  }
  return ahead;
}

// Room for a load's lanes in `rows` rows, row r of which is the printer's from now on.
void DeclareAhead(int i, int rows, LaunchText* launch, PointPrinter* printer) {
  const Instr& load = launch->ir().instrs[i];
  const std::string name = absl::StrCat("v", i);
  const int width = printer->InLanes(i) ? printer->width() : 1, pack = printer->GuardedPackWidth(i);
  const int places = pack > 0 ? width / pack : width;  // of a row
  const std::string row = places > 1 ? absl::StrCat("r * ", places) : "r";
  Home home;
  if (pack > 0) {
    const DType stored = launch->ir().buffers[load.buffer].dtype;
    launch->out.Line("rg_pack<", StorageName(stored), ", ", pack, "> ", name, "[", rows * places,
                     "];");
    home.pack = absl::StrCat(name, " + ", row);
    home.lane =
        absl::StrCat("rg_lane(", name, "[", row, places > 1 ? absl::StrCat(" + j / ", pack) : "",
                     "], ", places > 1 ? absl::StrCat("j % ", pack) : "j", ")");
  } else {
    launch->out.Line(ComputeName(load.dtype), " ", name, "[", rows * places, "];");
    if (places > 1) home.base = absl::StrCat(name, " + ", row);
    home.lane = absl::StrCat(name, "[", row, places > 1 ? " + j" : "", "]");
  }
  printer->SetHome(i, std::move(home));
}

struct RowRange {
  std::string first, end;  // of a thread, as text
  int64_t rows = 0;        // that a thread goes through at most
  int64_t step = 1;        // from one to the next
};

// All rows of a thread, some at a time.
void PrintRowsAtOnce(const ColumnBody& work, const std::vector<int>& reductions, AxisMask row_axes,
                     const RowRange& range, LaunchText* launch, PointPrinter* printer) {
  SourceWriter& out = launch->out;
  const int at_once = launch->schedule().rows_per_thread;
  const std::vector<int> ahead = LoadsAhead(launch->ir(), work.inner);
  std::vector<int> later;
  for (int i : work.inner) {
    if (std::find(ahead.begin(), ahead.end(), i) == ahead.end()) later.push_back(i);
  }
  const absl::string_view index = launch->index_type();
  const bool loop = range.rows > at_once;
  if (loop) {
    out.Open("for (", index, " row0 = ", range.first, "; row0 < ", range.end,
             "; row0 += ", range.step * at_once, ")");
  } else {
    out.Line("const ", index, " row0 = ", range.first, ";");
  }
  for (int i : ahead) DeclareAhead(i, at_once, launch, printer);
  const AxisMask all = launch->ir().all_axes();
  for (const bool loads : {true, false}) {
    if (loads && ahead.empty()) continue;
    out.Pragma(SpellingOf(launch->dialect()).unroll);
    out.Open("for (int r = 0; r < ", at_once, "; ++r)");
    out.Line("const ", index, " row = row0 + r * ", range.step, ";");
    out.Open("if (row < ", range.end, ")");
    if (loads) {
      printer->DeclareAxes(row_axes, printer->UsedAxes(ahead, {}, all), "row");
      printer->Print({.instrs = ahead, .reductions = {}, .stores = {}, .level = all});
      for (int i : ahead) printer->SetKnown(i, true);
    } else {
      printer->DeclareAxes(row_axes, printer->UsedAxes(later, work.stores, all), "row");
      printer->Print(
          {.instrs = later, .reductions = reductions, .stores = work.stores, .level = all});
    }
    out.Close();
    out.Close();
  }
  if (loop) out.Close();
  for (int i : ahead) printer->SetKnown(i, false);
}

}  // namespace

GroupKernels EmitColumnReduction(const KernelBody& body, Dialect dialect) {
  const KernelIr& ir = body.ir;
  const Schedule& schedule = body.schedule;
  const Classification shape = Classify(ir);
  const int64_t rows = shape.shape.rows;
  ColumnTotals totals = ColumnWork(ir, shape, schedule);
  const int64_t tile = int64_t{totals.lanes} * totals.width;
  const int64_t tiles = std::max<int64_t>((totals.columns + tile - 1) / tile, 1);
  RG_CHECK(schedule.blocks == tiles * schedule.split);

  LaunchText launch(body, dialect, schedule.threads, schedule.blocks);
  launch.UseWideIndexAbove(std::max(
      rows + schedule.split + int64_t{schedule.rows_per_block} * schedule.rows_per_thread,
      (totals.columns + tile) *
          static_cast<int64_t>(schedule.split * std::max<size_t>(totals.reductions.size(), 1))));
  PointPrinter printer(&launch, schedule.vector_width);
  const absl::string_view index = launch.index_type();
  SourceWriter& out = launch.out;
  out.SetDepth(1);
  if (totals.thread_rows > 1) {
    out.Line("const int lane = RG_THREAD % ", totals.lanes, ";");
    out.Line("const int thread_row = RG_THREAD / ", totals.lanes, ";");
  } else {
    out.Line("const int lane = RG_THREAD;");
  }
  const bool split = schedule.split > 1;
  if (split) out.Line("const ", index, " piece = RG_BLOCK / ", Sized(tiles), ";");
  totals.piece = "piece";
  const std::string column = absl::StrCat(
      "(static_cast<", index, ">(RG_BLOCK", split ? " % " : "", split ? Sized(tiles) : "", ") * ",
      totals.lanes, " + lane)", totals.width > 1 ? absl::StrCat(" * ", totals.width) : "");
  out.Line("const ", index, " c = ", column, ";");
  DeclareColumnAccumulators(totals, &launch, &printer);
  const ColumnBody work = Split(ir, shape, totals, printer);
  const int64_t chunk = (rows + schedule.split - 1) / schedule.split;

  out.Open("if (c < ", Sized(totals.columns), ")");
  std::vector<int> all = work.outer;
  all.insert(all.end(), work.inner.begin(), work.inner.end());
  const AxisUse used = printer.UsedAxes(all, work.stores, ir.all_axes());
  printer.DeclareAxes(shape.shape.column_axes, used, "c");
  printer.Print({.instrs = work.outer, .reductions = {}, .stores = {}, .level = 0, .keep = true});
  for (int i : work.outer) printer.SetKnown(i, true);
  std::string first = totals.thread_rows > 1 ? "thread_row" : "0";
  std::string end = Sized(rows);
  if (split) {
    first = absl::StrCat("piece * ", Sized(chunk), totals.thread_rows > 1 ? " + thread_row" : "");
    out.Line("const ", index, " end = rg_min((piece + 1) * ", Sized(chunk), ", static_cast<", index,
             ">(", Sized(rows), "));");
    end = "end";
  }
  const RowRange range{first, end, (chunk + totals.thread_rows - 1) / totals.thread_rows,
                       totals.thread_rows};
  if (schedule.rows_per_thread > 1) {
    PrintRowsAtOnce(work, totals.reductions, shape.shape.row_axes, range, &launch, &printer);
  } else {
    out.Open("for (", index, " row = ", first, "; row < ", end, "; row += ", totals.thread_rows,
             ")");
    printer.DeclareAxes(shape.shape.row_axes, used, "row");
    printer.Print({.instrs = work.inner,
                   .reductions = totals.reductions,
                   .stores = work.stores,
                   .level = ir.all_axes()});
    out.Close();
  }
  out.Close();
  for (int i : work.outer) printer.SetKnown(i, false);
  PrintColumnTotals(totals, shape, &launch, &printer);

  GroupKernels group;
  group.launches.push_back(launch.Finish(""));
  if (split) group.launches.push_back(ColumnFinalize(totals, body, shape, dialect));
  return group;
}

}  // namespace retrograd
