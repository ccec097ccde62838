// Reductions along rows and down columns in one pass: rows are walked as in row_reduction, while
// the column sums stay in the registers of the threads that own the columns.
#include "codegen/templates/column_totals.h"
#include "codegen/templates/row_walk.h"
#include "codegen/templates/templates.h"
#include "graph/base/status.h"

namespace retrograd {

GroupKernels EmitRowColumn(const KernelBody& body, Dialect dialect) {
  const Schedule& schedule = body.schedule;
  const Classification shape = Classify(body.ir);
  RG_CHECK(schedule.split * schedule.cluster == schedule.blocks);
  LaunchText launch(body, dialect, schedule.threads, schedule.blocks);
  const int64_t threads = LanesOfRow(schedule) * schedule.rows_per_block * schedule.rows_per_thread;
  launch.UseWideIndexAbove(
      std::max(shape.shape.rows + (2 + schedule.staged) * schedule.blocks * threads,
               (shape.shape.columns + 2 * threads * schedule.vector_width) *
                   static_cast<int64_t>(schedule.blocks * (body.ir.instrs.size() + 1))));
  PointPrinter printer(&launch, schedule.vector_width);
  RowWalk walk(shape, &launch, &printer);
  ColumnTotals totals = ColumnWork(body.ir, shape, schedule);
  totals.chunks = walk.chunks();
  totals.column = walk.ChunkColumn();
  totals.piece =
      absl::StrCat("static_cast<", launch.index_type(), ">(RG_BLOCK",
                   schedule.cluster > 1 ? absl::StrCat(" / ", schedule.cluster) : "", ")");
  walk.AddColumnReductions(totals.reductions);
  walk.LeaveOut(totals.stores);
  launch.out.SetDepth(1);
  walk.PrintThreadNumbers();
  DeclareColumnAccumulators(totals, &launch, &printer);
  walk.PrintRows();
  if (totals.split == 1) launch.out.Line("// What follows the column sums.");
  PrintColumnTotals(totals, shape, &launch, &printer);
  GroupKernels group;
  group.launches.push_back(launch.Finish(""));
  if (totals.split > 1) group.launches.push_back(ColumnFinalize(totals, body, shape, dialect));
  return group;
}

}  // namespace retrograd
