// A thread evaluates `vector_width` consecutive points of the fastest axis; where the grid does not
// cover all points it strides over them.
#include <numeric>

#include "codegen/print/point_printer.h"
#include "codegen/templates/templates.h"

namespace retrograd {

GroupKernels EmitPointwise(const KernelBody& body, Dialect dialect) {
  const Schedule& schedule = body.schedule;
  const KernelIr& ir = body.ir;
  LaunchText launch(body, dialect, schedule.threads, schedule.blocks);
  const int64_t per_block = int64_t{schedule.threads} * schedule.vector_width;
  const int64_t points = ir.Points(ir.all_axes());
  const int64_t covered = per_block * launch.blocks();
  launch.UseWideIndexAbove(std::max(points, covered) + covered);

  PointPrinter printer(&launch, schedule.vector_width);
  std::vector<int> roots, stores(ir.stores.size());
  std::iota(stores.begin(), stores.end(), 0);
  for (const Store& s : ir.stores) roots.push_back(s.instr);
  const std::vector<int> instrs = printer.Needed(roots);

  SourceWriter& out = launch.out;
  const absl::string_view index = launch.index_type();
  out.SetDepth(1);
  const std::string first =
      absl::StrCat("(static_cast<", index, ">(RG_BLOCK) * ", schedule.threads, " + RG_THREAD)",
                   schedule.vector_width > 1 ? absl::StrCat(" * ", schedule.vector_width) : "");
  if (covered >= points) {
    out.Line("const ", index, " i = ", first, ";");
    out.Open("if (i < ", points, ")");
  } else {
    out.Open("for (", index, " i = ", first, "; i < ", points, "; i += ", covered, ")");
  }
  printer.DeclareAxes(ir.all_axes(), printer.UsedAxes(instrs, stores, ir.all_axes()), "i");
  printer.Print({.instrs = instrs, .reductions = {}, .stores = stores, .level = ir.all_axes()});
  out.Close();
  return {.launches = {launch.Finish("")}};
}

}  // namespace retrograd
