// A thread evaluates `vector_width` consecutive points of the fastest axis; where the grid does not
// cover all points it strides over them. Of rows with ends each has its vectors and then its ends,
// one a thread. Where rows of points are staged, a block copies those of its points first.
#include <numeric>

#include "codegen/print/row_ends.h"
#include "codegen/print/sized_number.h"
#include "codegen/templates/point_staging.h"
#include "codegen/templates/templates.h"
#include "fusion/kernel/ir/accesses/pass_columns.h"
#include "fusion/kernel/ir/accesses/vector_grid.h"
#include "fusion/kernel/templates/kernel_template.h"
#include "graph/base/status.h"

namespace retrograd {
namespace {

struct Passes {
  LaunchText& launch;
  std::vector<int> instrs, stores;
};

void PrintPoint(PointPrinter& printer, const Passes& passes, AxisMask axes,
                absl::string_view number) {
  const AxisMask all = passes.launch.ir().all_axes();
  printer.DeclareAxes(axes, printer.UsedAxes(passes.instrs, passes.stores, all), number);
  printer.Print({.instrs = passes.instrs, .reductions = {}, .stores = passes.stores, .level = all});
}

void PrintRowWithEnds(PointPrinter& vectors, const Passes& passes) {
  LaunchText& launch = passes.launch;
  const KernelIr& ir = launch.ir();
  SourceWriter& out = launch.out;
  const AxisMask fastest = AxisMask{1} << vectors.vectors().axis;
  const AxisMask rows = ir.all_axes() & ~fastest;
  const int width = vectors.width();
  const int64_t in_row = MostVectors(ir, width), all = in_row + MostEnds(ir, width);
  const bool many = ir.Points(rows) > 1;
  const absl::string_view at = many ? "s" : "i";
  if (many) {
    out.Line("const ", launch.index_type(), " row = i / ", Sized(all), ", s = i % ", Sized(all),
             ";");
    const AxisMask used = vectors.UsedAxes(passes.instrs, passes.stores, ir.all_axes());
    vectors.DeclareAxes(rows, used | vectors.vectors().phase.axes(), "row");
  }
  DeclareEnds(vectors, &launch);
  out.Open("if (", at, " < ", Sized(in_row), ")");
  out.Line("const ", launch.index_type(), " c = head + ", at, " * ", width, ";");
  out.Open("if (c < tail)");
  PrintPoint(vectors, passes, fastest, "c");
  out.Close();
  out.Else();
  PointPrinter ends(&launch, 1);
  out.Line("const ", launch.index_type(), " e = ", at, " - ", Sized(in_row), ";");
  OpenEnd("e", "", &launch);
  PrintPoint(ends, passes, fastest, "c");
  out.Close();
  out.Close();
}

// A thread stays at its columns from row to row, with what varies along them alone. Neighbours have
// neighbouring columns, then neighbouring rows.
void PrintRowsOfThread(PointPrinter& printer, const Passes& passes, absl::string_view first) {
  LaunchText& launch = passes.launch;
  const KernelIr& ir = launch.ir();
  const PassColumns columns = PassColumnsOf(ir);
  const Schedule& s = launch.schedule();
  const int64_t at_once = columns.RowsAtOnce(s.turns);
  const int64_t places = Product({columns.outer, at_once, columns.inner});
  RG_CHECK(columns.axes != 0 && Product({s.threads, s.vector_width, launch.blocks()}) >= places);
  SourceWriter& out = launch.out;
  const absl::string_view index = launch.index_type();
  const AxisMask all = ir.all_axes(), rows = all & ~columns.axes;
  std::vector<int> of_columns, of_row, stores_of_columns, stores_of_row;
  for (int i : passes.instrs) {
    (columns.Keeps(ir.instrs[i]) ? of_columns : of_row).push_back(i);
  }
  for (int store : passes.stores) {
    const bool once = columns.Keeps(ir.instrs[ir.stores[store].instr]);
    (once ? stores_of_columns : stores_of_row).push_back(store);
  }
  const AxisMask used = printer.UsedAxes(passes.instrs, passes.stores, all);
  const std::string inner = Sized(columns.inner);
  const bool many = columns.outer > 1;
  out.Line("const ", index, " i = ", first, ";");
  out.Open("if (i < ", Sized(places), ")");
  out.Line("const ", index, " first = i / ", inner, many ? absl::StrCat(" % ", Sized(at_once)) : "",
           ";");
  out.Line("const ", index, " column = ",
           many
               ? absl::StrCat("i / ", Sized(Product({at_once, columns.inner})), " * ", inner, " + ")
               : "",
           "i % ", inner, ";");
  printer.DeclareAxes(columns.axes, used, "column");
  printer.Print({.instrs = of_columns,
                 .reductions = {},
                 .stores = stores_of_columns,
                 .level = columns.axes,
                 .store_condition = "first == 0",
                 .keep = true});
  out.Open("for (", index, " row = first; row < ", Sized(columns.rows), "; row += ", Sized(at_once),
           ")");
  printer.DeclareAxes(rows, used, "row");
  printer.Print({.instrs = of_row, .reductions = {}, .stores = stores_of_row, .level = all});
  out.Close();
  out.Close();
}

}  // namespace

GroupKernels EmitPointwise(const KernelBody& body, Dialect dialect) {
  const Schedule& schedule = body.schedule;
  const KernelIr& ir = body.ir;
  LaunchText launch(body, dialect, schedule.threads, schedule.blocks);
  const bool has_ends = HasEnds(ir, schedule.vector_width);
  // Numbers of a thread, and how many there are.
  const int64_t step = has_ends ? 1 : schedule.vector_width;
  const int64_t points = PassPlaces(ir, schedule.vector_width) * step;
  const int64_t covered = schedule.threads * step * launch.blocks();
  launch.UseWideIndexAbove(std::max(points, covered) + covered);

  PointPrinter printer(&launch, schedule.vector_width);
  Passes passes{.launch = launch, .instrs = {}, .stores = std::vector<int>(ir.stores.size())};
  std::vector<int> roots;
  std::iota(passes.stores.begin(), passes.stores.end(), 0);
  for (const Store& s : ir.stores) roots.push_back(s.instr);
  passes.instrs = printer.Needed(roots);

  SourceWriter& out = launch.out;
  const absl::string_view index = launch.index_type();
  out.SetDepth(1);
  if (StagesPoints(schedule)) {
    RG_CHECK(covered >= points && step == 1);  // all threads of a block meet once
    StageRowsOfPoints(points, &launch, &printer);
  }
  const std::string first =
      absl::StrCat("(static_cast<", index, ">(RG_BLOCK) * ", schedule.threads, " + RG_THREAD)",
                   step > 1 ? absl::StrCat(" * ", step) : "");
  if (schedule.turns > 1) {
    PrintRowsOfThread(printer, passes, first);
    return {.launches = {launch.Finish("")}};
  }
  if (covered >= points) {
    out.Line("const ", index, " i = ", first, ";");
    out.Open("if (i < ", Sized(points), ")");
  } else {
    out.Open("for (", index, " i = ", first, "; i < ", Sized(points), "; i += ", Sized(covered),
             ")");
  }
  if (has_ends) {
    PrintRowWithEnds(printer, passes);
  } else {
    PrintPoint(printer, passes, ir.all_axes(), "i");
  }
  out.Close();
  return {.launches = {launch.Finish("")}};
}

}  // namespace retrograd
