// The end of column reductions: threads of a block add up what each of them summed, and the totals
// are finished in place or parked in the workspace for a finalize launch.
#ifndef RETROGRAD_CODEGEN_TEMPLATES_COLUMN_TOTALS_H_
#define RETROGRAD_CODEGEN_TEMPLATES_COLUMN_TOTALS_H_

#include <string>
#include <vector>

#include "codegen/print/point_printer.h"

namespace retrograd {

// Column sums of one block. Thread `lane` of thread row `thread_row` holds, for each reduction, the
// sums of the `width` columns from c on, in v<n>[..]; several such runs where chunks > 1.
struct ColumnTotals {
  std::vector<int> reductions;
  AxisMask column_axes = 0;
  int64_t columns = 0;
  int lanes = 1;  // threads side by side
  int thread_rows = 1;
  int width = 1;       // columns a thread side by side
  int64_t chunks = 1;  // runs of columns a thread
  std::string column;  // first column of a run: "(k * 128 + lane) * 8"; "" if c is declared
  int64_t split = 1;
  std::string piece;        // number of this block among the splits
  std::vector<int> stores;  // what the totals are for
};

// "v5[k * 8 + j]": the accumulator of one lane, as ColumnTotals expects it.
std::string ColumnAccumulator(int reduction, int width, int64_t chunks,
                              absl::string_view lane = "j");

// "float v5[16];" and its start, for each reduction.
void DeclareColumnAccumulators(const ColumnTotals& totals, LaunchText* launch,
                               PointPrinter* printer);

void PrintColumnTotals(const ColumnTotals& totals, const Classification& shape, LaunchText* launch,
                       PointPrinter* printer);

// The launch that adds the splits in order and evaluates what follows.
Kernel ColumnFinalize(const ColumnTotals& totals, const KernelBody& body,
                      const Classification& shape, Dialect dialect);

// The reductions that fold rows, and the stores that vary over columns only.
ColumnTotals ColumnWork(const KernelIr& ir, const Classification& shape, const Schedule& schedule);

// Gives every reduction its finished value's spelling and marks it as known.
void UseFinishedReductions(const std::vector<int>& reductions,
                           const std::vector<std::string>& accumulators, PointPrinter* printer);

}  // namespace retrograd

#endif  // RETROGRAD_CODEGEN_TEMPLATES_COLUMN_TOTALS_H_
