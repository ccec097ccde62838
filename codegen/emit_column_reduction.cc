// Sums down the rows. A block takes a run of columns and, where the schedule splits, a piece of the
// rows; its thread rows stride over them with the sums in registers.
#include <algorithm>

#include "codegen/column_totals.h"
#include "codegen/templates.h"
#include "graph/status.h"

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
      rows + schedule.split + schedule.rows_per_block,
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
  if (split) out.Line("const ", index, " piece = RG_BLOCK / ", tiles, ";");
  totals.piece = "piece";
  const std::string column = absl::StrCat(
      "(static_cast<", index, ">(RG_BLOCK", split ? " % " : "", split ? absl::StrCat(tiles) : "",
      ") * ", totals.lanes, " + lane)", totals.width > 1 ? absl::StrCat(" * ", totals.width) : "");
  out.Line("const ", index, " c = ", column, ";");
  DeclareColumnAccumulators(totals, &launch, &printer);
  const ColumnBody work = Split(ir, shape, totals, printer);
  const int64_t chunk = (rows + schedule.split - 1) / schedule.split;

  out.Open("if (c < ", totals.columns, ")");
  std::vector<int> all = work.outer;
  all.insert(all.end(), work.inner.begin(), work.inner.end());
  const AxisMask used = printer.UsedAxes(all, work.stores, ir.all_axes());
  printer.DeclareAxes(shape.shape.column_axes, used, "c");
  printer.Print({.instrs = work.outer, .reductions = {}, .stores = {}, .level = 0, .keep = true});
  for (int i : work.outer) printer.SetKnown(i, true);
  std::string first = totals.thread_rows > 1 ? "thread_row" : "0";
  std::string end = absl::StrCat(rows);
  if (split) {
    first = absl::StrCat("piece * ", chunk, totals.thread_rows > 1 ? " + thread_row" : "");
    out.Line("const ", index, " end = rg_min((piece + 1) * ", chunk, ", static_cast<", index, ">(",
             rows, "));");
    end = "end";
  }
  if (schedule.rows_per_thread > 1 && !SpellingOf(dialect).unroll.empty()) {
    out.Pragma(absl::StrCat(SpellingOf(dialect).unroll, " ", schedule.rows_per_thread));
  }
  out.Open("for (", index, " row = ", first, "; row < ", end, "; row += ", totals.thread_rows, ")");
  printer.DeclareAxes(shape.shape.row_axes, used, "row");
  printer.Print({.instrs = work.inner,
                 .reductions = totals.reductions,
                 .stores = work.stores,
                 .level = ir.all_axes()});
  out.Close();
  out.Close();
  for (int i : work.outer) printer.SetKnown(i, false);
  PrintColumnTotals(totals, shape, &launch, &printer);

  GroupKernels group;
  group.launches.push_back(launch.Finish(""));
  if (split) group.launches.push_back(ColumnFinalize(totals, body, shape, dialect));
  return group;
}

}  // namespace retrograd
