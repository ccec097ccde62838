// A thread evaluates `vector_width` consecutive points of the fastest axis; where the grid does not
// cover all points it strides over them. Of rows with ends each has its vectors and then its ends,
// one a thread. Where rows of points are staged, a block copies those of its points first.
#include <numeric>

#include "absl/algorithm/container.h"
#include "absl/functional/function_ref.h"
#include "codegen/print/numbers/sized_number.h"
#include "codegen/print/row_ends.h"
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
    AxisUse used = vectors.UsedAxes(passes.instrs, passes.stores, ir.all_axes());
    used.AddOffset(vectors.vectors().phase);
    vectors.DeclareAxes(rows, used, "row");
  }
  DeclareEnds(vectors, &launch);
  out.Open("if (", at, " < ", Sized(in_row), ")");
  out.Line("const ", launch.index_type(), " c = head + ", at, " * ", width, ";");
  out.Open("if (c < tail)");
  PrintPoint(vectors, passes, fastest, "c");
  out.Close();
  out.Else();
  PointPrinter ends(&launch, 1);
  ends.SetAxes(vectors.axes());
  out.Line("const ", launch.index_type(), " e = ", at, " - ", Sized(in_row), ";");
  OpenEnd("e", "", &launch);
  PrintPoint(ends, passes, fastest, "c");
  out.Close();
  out.Close();
}

// The loads of several rows that a thread can ask for before it evaluates any: lanes stay as they
// lie in memory.
std::vector<int> LoadsAhead(const PointPrinter& printer, const std::vector<int>& instrs) {
  std::vector<int> loads;
  for (int i : instrs) {
    if (printer.ir().instrs[i].kind != InstrKind::kLoad) continue;
    if (!printer.InLanes(i) || printer.GuardedPackWidth(i) > 0) loads.push_back(i);
  }
  return loads;
}

// An array of what a load brings in, of all rows.
void KeepRows(PointPrinter& printer, LaunchText& launch, int load, int rows) {
  const KernelIr& ir = launch.ir();
  const std::string name = absl::StrCat("q", load);
  if (!printer.InLanes(load)) {
    launch.out.Line(ComputeName(ir.instrs[load].dtype), " ", name, "[", rows, "];");
    printer.SetHome(load, {.lane = absl::StrCat(name, "[n]")});
    return;
  }
  const int width = printer.GuardedPackWidth(load), packs = printer.width() / width;
  const DType stored = ir.buffers[ir.instrs[load].buffer].dtype;
  launch.out.Line("rg_pack<", StorageName(stored), ", ", width, "> ", name, "[", rows * packs,
                  "];");
  const std::string first = packs > 1 ? absl::StrCat("n * ", packs) : "n";
  const std::string pack = packs > 1 ? absl::StrCat(first, " + j / ", width) : first;
  printer.SetHome(load, {.lane = absl::StrCat("rg_lane(", name, "[", pack, "], ",
                                              packs > 1 ? absl::StrCat("j % ", width) : "j", ")"),
                         .base = "",
                         .pack = absl::StrCat(name, " + ", first)});
}

// The work of rows that a thread loads together: all loads before the first row is evaluated.
// `open` opens a loop over these rows, `n`, and declares the axes.
void PrintTogether(PointPrinter& printer, LaunchText& launch, PointPrinter::Work work, int rows,
                   absl::FunctionRef<void()> open) {
  const std::vector<int> ahead = LoadsAhead(printer, work.instrs);
  for (int i : ahead) KeepRows(printer, launch, i, rows);
  const std::vector<int> needed = printer.Needed(ahead);
  PointPrinter::Work loads{.instrs = {}, .reductions = {}, .stores = {}, .level = work.level};
  absl::c_set_intersection(work.instrs, needed, std::back_inserter(loads.instrs));
  open();
  printer.Print(loads);
  launch.out.Close();
  for (int i : ahead) printer.SetKnown(i, true);
  std::erase_if(work.instrs, [&](int i) { return printer.known(i); });
  open();
  printer.Print(work);
  launch.out.Close();
}

// The rows of a thread, from `first` on. used: the axes that the work mentions.
void PrintRowLoop(PointPrinter& printer, LaunchText& launch, const PassColumns& columns,
                  PointPrinter::Work work, const AxisUse& used) {
  SourceWriter& out = launch.out;
  const absl::string_view index = launch.index_type();
  const int together = launch.schedule().rows_per_thread;
  const int64_t at_once = columns.RowsAtOnce(launch.schedule().turns), step = at_once * together;
  const AxisMask rows = launch.ir().all_axes() & ~columns.axes;
  const std::string end = Sized(columns.rows);
  const absl::string_view at = together > 1 ? "row0" : "row";
  out.Open("for (", index, " ", at, " = first; ", at, " < ", end, "; ", at, " += ", Sized(step),
           ")");
  if (together == 1) {
    printer.DeclareAxes(rows, used, "row");
    printer.Print(work);
    out.Close();
    return;
  }
  // Behind the last row the first of these is loaded again, and nothing stored.
  const bool all_there = columns.rows % step == 0;
  if (!all_there) work.store_condition = absl::StrCat("next < ", end);
  PrintTogether(printer, launch, work, together, [&] {
    launch.OpenUnrolled("n", together);
    out.Line("const ", index, " next = row0 + n * ", Sized(at_once), ";");
    out.Line("const ", index, " row = next",
             all_there ? "" : absl::StrCat(" < ", end, " ? next : row0"), ";");
    printer.DeclareAxes(rows, used, "row");
  });
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
  const AxisMask all = ir.all_axes();
  std::vector<int> of_columns, of_row, stores_of_columns, stores_of_row;
  for (int i : passes.instrs) {
    (columns.Keeps(ir.instrs[i]) ? of_columns : of_row).push_back(i);
  }
  for (int store : passes.stores) {
    const bool once = columns.Keeps(ir.instrs[ir.stores[store].instr]);
    (once ? stores_of_columns : stores_of_row).push_back(store);
  }
  const AxisUse used = printer.UsedAxes(passes.instrs, passes.stores, all);
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
  PrintRowLoop(printer, launch, columns,
               {.instrs = of_row, .reductions = {}, .stores = stores_of_row, .level = all}, used);
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
  launch.UseWideIndexAbove(std::max(points, covered) + covered * schedule.rows_per_thread);

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
