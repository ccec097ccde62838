// Reductions along rows, in as many rounds as they depend on each other. With a split, a block
// reduces a piece of its rows and a finalize launch adds the pieces in order.
#include <algorithm>

#include "codegen/print/numbers/sized_number.h"
#include "codegen/templates/column_totals.h"
#include "codegen/templates/row_walk.h"
#include "codegen/templates/templates.h"
#include "fusion/kernel/ir/scale.h"
#include "fusion/kernel/templates/row_walks.h"
#include "graph/base/status.h"

namespace retrograd {
namespace {

// With a split, whatever varies over rows only waits for the finalize launch.
std::vector<int> RowStores(const KernelIr& ir, const Classification& shape) {
  std::vector<int> stores;
  AxisMask columns = 0;
  for (size_t a = 0; a < ir.extents.size(); ++a) {
    if (ir.extents[a] != 1) columns |= shape.shape.column_axes & (AxisMask{1} << a);
  }
  for (size_t s = 0; s < ir.stores.size(); ++s) {
    if ((ir.instrs[ir.stores[s].instr].axes & columns) == 0) stores.push_back(static_cast<int>(s));
  }
  return stores;
}

void StorePieces(const Classification& shape, const RowWalk& walk, LaunchText* launch) {
  const Schedule& schedule = launch->schedule();
  const std::vector<int64_t> offsets = WorkspaceOffsets(launch->ir(), shape, schedule);
  SourceWriter& out = launch->out;
  const bool loop = launch->OpenUnrolled("r", schedule.rows_per_thread);
  if (!loop) out.OpenScope();
  out.Line("const ", launch->index_type(), " row = ", walk.Row(), ";");
  out.Open("if (", schedule.threads_per_row > 1 ? "lane == 0 && " : "", "row < ",
           Sized(shape.shape.rows), ")");
  for (int r : walk.row_reductions()) {
    const DType type = AccumulatorType(launch->ir().instrs[r].dtype);
    const int64_t base = offsets[r] / SizeBytes(type);
    out.Line("rg_store(", launch->WorkspaceName(StorageName(type)), ", ",
             base > 0 ? absl::StrCat(Sized(base), " + ") : "", "row * ", Sized(schedule.split),
             " + piece, ", RowWalk::RowAccumulator(r, schedule.rows_per_thread), ");");
  }
  out.Close();
  out.Close();
}

// A team of kLeastWarp threads adds up the pieces of a row: each thread every so many of them, then
// all threads by shuffles.
Kernel RowFinalize(const KernelBody& body, const Classification& shape,
                   const std::vector<int>& reductions, const std::vector<int>& stores,
                   Dialect dialect) {
  constexpr int kThreads = 128, kRows = kThreads / kLeastWarp;
  const int64_t rows = shape.shape.rows;
  LaunchText launch(body, dialect, kThreads, CeilDiv(rows, kRows));
  launch.UseWideIndexAbove((rows + kThreads) * (body.schedule.split + kLeastWarp) *
                           static_cast<int64_t>(reductions.size() + 1));
  PointPrinter printer(&launch, 1);
  SourceWriter& out = launch.out;
  const absl::string_view index = launch.index_type();
  out.SetDepth(1);
  out.Line("const int lane = RG_THREAD % ", kLeastWarp, ";");
  out.Line("const ", index, " row = static_cast<", index, ">(RG_BLOCK) * ", kRows,
           " + RG_THREAD / ", kLeastWarp, ";");
  const std::vector<int64_t> offsets = WorkspaceOffsets(body.ir, shape, body.schedule);
  std::vector<std::string> accumulators;
  for (int r : reductions) {
    const Instr& reduction = body.ir.instrs[r];
    const DType type = AccumulatorType(reduction.dtype);
    const int64_t base = offsets[r] / SizeBytes(type);
    const std::string acc = absl::StrCat("v", r);
    out.Line(StorageName(type), " ", acc, " = ", printer.Identity(reduction), ";");
    const std::string value = absl::StrCat("rg_load(", launch.WorkspaceName(StorageName(type)),
                                           ", ", base > 0 ? absl::StrCat(Sized(base), " + ") : "",
                                           "row * ", Sized(body.schedule.split), " + s)");
    out.Open("if (row < ", Sized(rows), ")");
    out.Line("for (int s = lane; s < ", Sized(body.schedule.split), "; s += ", kLeastWarp, ") ",
             acc, " = ", printer.Folded(reduction, acc, value), ";");
    out.Close();
    launch.SetThreadsMeet();
    out.Line("for (int n = ", kLeastWarp / 2, "; n > 0; n /= 2) ", acc, " = ",
             printer.Folded(reduction, acc, absl::StrCat("RG_SHUFFLE_XOR(", acc, ", n)")), ";");
    accumulators.push_back(acc);
  }
  UseFinishedReductions(reductions, accumulators, &printer);
  std::vector<int> roots;
  for (int s : stores) roots.push_back(body.ir.stores[s].instr);
  const std::vector<int> instrs = printer.Needed(roots);
  out.Open("if (lane == 0 && row < ", Sized(rows), ")");
  printer.DeclareAxes(shape.shape.row_axes, printer.UsedAxes(instrs, stores, shape.shape.row_axes),
                      "row");
  printer.Print(
      {.instrs = instrs, .reductions = {}, .stores = stores, .level = shape.shape.row_axes});
  out.Close();
  return launch.Finish("finalize");
}

}  // namespace

GroupKernels EmitRowReduction(const KernelBody& body, Dialect dialect) {
  const Schedule& schedule = body.schedule;
  const Classification shape = Classify(body.ir);
  const bool split = schedule.split > 1;
  RG_CHECK(schedule.blocks % schedule.split == 0);
  LaunchText launch(body, dialect, schedule.threads, schedule.blocks);
  const int64_t threads = int64_t{schedule.threads} * schedule.cluster * schedule.rows_per_thread;
  launch.UseWideIndexAbove(std::max(
      (shape.shape.rows + (1 + schedule.staged) * schedule.blocks * threads) * schedule.split,
      shape.shape.columns + 2 * threads * schedule.vector_width * schedule.split));
  PointPrinter printer(&launch, schedule.vector_width);
  RowWalk walk(shape, &launch, &printer);
  std::vector<int> later;
  if (split) later = RowStores(body.ir, shape);
  walk.LeaveOut(later);
  launch.out.SetDepth(1);
  walk.PrintThreadNumbers();
  walk.PrintRows();
  if (split) {
    RG_CHECK(AssignStages(body.ir, shape).row_stages == 1);
    RG_CHECK(schedule.blocks / schedule.split * schedule.rows_per_block *
                 schedule.rows_per_thread >=
             shape.shape.rows);
    StorePieces(shape, walk, &launch);
  }
  GroupKernels group;
  group.launches.push_back(launch.Finish(""));
  if (split) {
    group.launches.push_back(RowFinalize(body, shape, walk.row_reductions(), later, dialect));
  }
  return group;
}

}  // namespace retrograd
