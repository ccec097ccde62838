#include "codegen/column_totals.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace retrograd {
namespace {

// Shared memory is walked lane by lane, so that neighbouring threads meet different banks.
std::string TileIndex(const ColumnTotals& totals, absl::string_view thread_row) {
  if (totals.width == 1) return absl::StrCat(thread_row, " * ", totals.lanes, " + lane");
  return absl::StrCat("(", thread_row, " * ", totals.width, " + j) * ", totals.lanes, " + lane");
}

void CombineThreadRows(const ColumnTotals& totals, LaunchText* launch, PointPrinter* printer) {
  SourceWriter& out = launch->out;
  bool first = totals.chunks == 1;
  for (int r : totals.reductions) {
    const Instr& reduction = launch->ir().instrs[r];
    const DType type = AccumulatorType(reduction.dtype);
    const std::string tile =
        launch->Shared(type, absl::StrCat("tile_", StorageName(type)),
                       int64_t{totals.lanes} * totals.thread_rows * totals.width);
    const std::string acc = ColumnAccumulator(r, totals.width, totals.chunks);
    if (!first) out.Line("RG_BARRIER();");
    first = false;
    bool loop = launch->OpenUnrolled("j", totals.width);
    out.Line(tile, "[", TileIndex(totals, "thread_row"), "] = ", acc, ";");
    if (loop) out.Close();
    out.Line("RG_BARRIER();");
    out.Open("if (thread_row == 0)");
    out.Open("for (int i = 1; i < ", totals.thread_rows, "; ++i)");
    loop = launch->OpenUnrolled("j", totals.width);
    out.Line(acc, " = ",
             printer->Folded(reduction, acc, absl::StrCat(tile, "[", TileIndex(totals, "i"), "]")),
             ";");
    if (loop) out.Close();
    out.Close();
    out.Close();
  }
}

void StorePartials(const ColumnTotals& totals, const std::vector<int64_t>& offsets,
                   LaunchText* launch) {
  SourceWriter& out = launch->out;
  for (int r : totals.reductions) {
    const DType type = AccumulatorType(launch->ir().instrs[r].dtype);
    const int64_t base = offsets[r] / SizeBytes(type);
    const std::string w = launch->WorkspaceName(StorageName(type));
    const std::string at = absl::StrCat(base > 0 ? absl::StrCat(base, " + ") : "", totals.piece,
                                        " * ", totals.columns, " + c");
    const std::string acc = absl::StrCat("v", r);
    if (totals.width == 1) {
      out.Line("rg_store(", w, ", ", at, ", ", ColumnAccumulator(r, 1, totals.chunks), ");");
      continue;
    }
    const int step = std::min<int>(totals.width, static_cast<int>(16 / SizeBytes(type)));
    for (int m = 0; m < totals.width; m += step) {
      const std::string from =
          absl::StrCat(acc, totals.chunks > 1 ? absl::StrCat(" + k * ", totals.width) : "",
                       m > 0 ? absl::StrCat(" + ", m) : "");
      out.Line("rg_store_vec<", step, ">(", w, ", ", at, m > 0 ? absl::StrCat(" + ", m) : "", ", ",
               from, ");");
    }
  }
}

// Evaluates what follows the totals at the columns from c on.
void FinishColumns(const ColumnTotals& totals, LaunchText* launch, PointPrinter* printer) {
  std::vector<int> roots;
  for (int s : totals.stores) roots.push_back(launch->ir().stores[s].instr);
  const std::vector<int> instrs = printer->Needed(roots);
  printer->DeclareAxes(totals.column_axes,
                       printer->UsedAxes(instrs, totals.stores, totals.column_axes), "c");
  printer->Print(
      {.instrs = instrs, .reductions = {}, .stores = totals.stores, .level = totals.column_axes});
}

}  // namespace

ColumnTotals ColumnWork(const KernelIr& ir, const Classification& shape, const Schedule& schedule) {
  ColumnTotals totals;
  totals.column_axes = shape.shape.column_axes;
  totals.columns = shape.shape.columns;
  totals.width = schedule.vector_width;
  totals.thread_rows = schedule.rows_per_block;
  totals.lanes = schedule.threads / schedule.rows_per_block;
  totals.split = schedule.split;
  const Stages stages = AssignStages(ir, shape);
  for (size_t i = 0; i < ir.instrs.size(); ++i) {
    const AxisMask folded = FoldedAxes(ir, ir.instrs[i]);
    if (folded != 0 && (folded & shape.shape.column_axes) == 0) {
      totals.reductions.push_back(static_cast<int>(i));
    }
  }
  for (size_t s = 0; s < ir.stores.size(); ++s) {
    if (stages.finalize[ir.stores[s].instr]) totals.stores.push_back(static_cast<int>(s));
  }
  return totals;
}

std::string ColumnAccumulator(int reduction, int width, int64_t chunks) {
  if (width == 1 && chunks == 1) return absl::StrCat("v", reduction);
  if (width == 1) return absl::StrCat("v", reduction, "[k]");
  return absl::StrCat("v", reduction, "[", chunks > 1 ? absl::StrCat("k * ", width, " + ") : "",
                      "j]");
}

void DeclareColumnAccumulators(const ColumnTotals& totals, LaunchText* launch,
                               PointPrinter* printer) {
  SourceWriter& out = launch->out;
  const int64_t elements = totals.width * totals.chunks;
  for (int r : totals.reductions) {
    const Instr& reduction = launch->ir().instrs[r];
    const absl::string_view type = AccumulatorName(reduction.dtype);
    if (elements == 1) {
      out.Line(type, " v", r, " = ", printer->Identity(reduction), ";");
    } else {
      out.Line(type, " v", r, "[", elements, "];");
      launch->out.Pragma(SpellingOf(launch->dialect()).unroll);
      out.Line("for (int n = 0; n < ", elements, "; ++n) v", r,
               "[n] = ", printer->Identity(reduction), ";");
    }
    printer->SetAccumulator(r, ColumnAccumulator(r, totals.width, totals.chunks));
    printer->SetKnown(r, true);
  }
}

void UseFinishedReductions(const std::vector<int>& reductions,
                           const std::vector<std::string>& accumulators, PointPrinter* printer) {
  const KernelIr& ir = printer->ir();
  for (size_t n = 0; n < reductions.size(); ++n) {
    const Instr& reduction = ir.instrs[reductions[n]];
    std::string value = accumulators[n];
    if (AccumulatorType(reduction.dtype) != ComputeType(reduction.dtype)) {
      value = absl::StrCat("static_cast<", ComputeName(reduction.dtype), ">(", value, ")");
    }
    if (reduction.round && ComputeType(reduction.dtype) != reduction.dtype) {
      value = absl::StrCat("rg_round<", StorageName(reduction.dtype), ">(", value, ")");
    }
    printer->SetHome(reductions[n], {.lane = value, .base = ""});
    printer->SetKnown(reductions[n], true);
  }
}

void PrintColumnTotals(const ColumnTotals& totals, const Classification& shape, LaunchText* launch,
                       PointPrinter* printer) {
  SourceWriter& out = launch->out;
  const bool chunked = launch->OpenUnrolled("k", totals.chunks);
  if (totals.thread_rows > 1) CombineThreadRows(totals, launch, printer);
  std::vector<std::string> accumulators;
  for (int r : totals.reductions) {
    accumulators.push_back(ColumnAccumulator(r, totals.width, totals.chunks));
  }
  UseFinishedReductions(totals.reductions, accumulators, printer);
  if (!totals.column.empty()) {
    out.Line("const ", launch->index_type(), " c = ", totals.column, ";");
  }
  out.Open("if (", totals.thread_rows > 1 ? "thread_row == 0 && " : "", "c < ", totals.columns,
           ")");
  if (totals.split == 1) {
    FinishColumns(totals, launch, printer);
  } else {
    StorePartials(totals, WorkspaceOffsets(launch->ir(), shape, launch->schedule()), launch);
  }
  out.Close();
  if (chunked) out.Close();
}

Kernel ColumnFinalize(const ColumnTotals& main, const KernelBody& body, const Classification& shape,
                      Dialect dialect) {
  ColumnTotals totals = main;
  totals.width = 1;
  totals.chunks = 1;
  // Several threads a column where there are many splits: each adds up every n-th of them.
  totals.thread_rows = main.split >= 64 ? 16 : main.split >= 16 ? 8 : 1;
  totals.lanes = totals.thread_rows > 1 ? 32 : 128;
  totals.split = 1;
  const int threads = totals.lanes * totals.thread_rows;
  LaunchText launch(body, dialect, threads, (main.columns + totals.lanes - 1) / totals.lanes);
  launch.UseWideIndexAbove((main.columns + threads) *
                           static_cast<int64_t>(main.split * main.reductions.size() + 1));
  PointPrinter printer(&launch, 1);
  SourceWriter& out = launch.out;
  out.SetDepth(1);
  if (totals.thread_rows > 1) {
    out.Line("const int lane = RG_THREAD % ", totals.lanes, ";");
    out.Line("const int thread_row = RG_THREAD / ", totals.lanes, ";");
  } else {
    out.Line("const int lane = RG_THREAD;");
  }
  out.Line("const ", launch.index_type(), " c = static_cast<", launch.index_type(),
           ">(RG_BLOCK) * ", totals.lanes, " + lane;");
  totals.column = "";
  DeclareColumnAccumulators(totals, &launch, &printer);
  const std::vector<int64_t> offsets = WorkspaceOffsets(body.ir, shape, body.schedule);
  out.Open("if (c < ", totals.columns, ")");
  out.Open("for (int s = ", totals.thread_rows > 1 ? "thread_row" : "0", "; s < ", main.split,
           "; s += ", totals.thread_rows, ")");
  out.Line("const ", launch.index_type(), " at = static_cast<", launch.index_type(), ">(s) * ",
           totals.columns, " + c;");
  for (int r : totals.reductions) {
    const Instr& reduction = body.ir.instrs[r];
    const DType type = AccumulatorType(reduction.dtype);
    const int64_t base = offsets[r] / SizeBytes(type);
    const std::string acc = absl::StrCat("v", r);
    const std::string value = absl::StrCat("rg_load(", launch.WorkspaceName(StorageName(type)),
                                           ", ", base > 0 ? absl::StrCat(base, " + ") : "", "at)");
    out.Line(acc, " = ", printer.Folded(reduction, acc, value), ";");
  }
  out.Close();
  out.Close();
  PrintColumnTotals(totals, shape, &launch, &printer);
  return launch.Finish("finalize");
}

}  // namespace retrograd
