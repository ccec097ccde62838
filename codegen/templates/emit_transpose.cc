// Loads that run along another axis than the stores: a block takes a square tile over both axes,
// reads it along the loads' axis into shared memory, and evaluates its points along the stores'.
#include <numeric>

#include "absl/strings/str_cat.h"
#include "codegen/print/point_printer.h"
#include "codegen/print/sized_number.h"
#include "codegen/templates/templates.h"
#include "fusion/kernel/ir/transposed.h"
#include "fusion/kernel/ir/vector_access.h"
#include "graph/base/status.h"

namespace retrograd {
namespace {

constexpr int kTile = kTransposeTile;

}  // namespace

GroupKernels EmitTranspose(const KernelBody& body, Dialect dialect) {
  const KernelIr& ir = body.ir;
  const int fast = FastestAxis(ir);
  const std::optional<int> found = TransposedAxis(ir);
  RG_CHECK(found.has_value() && body.schedule.threads % kTile == 0);
  const int slow = *found;
  const int64_t slow_tiles = (ir.extents[slow] + kTile - 1) / kTile;
  const int64_t fast_tiles = (ir.extents[fast] + kTile - 1) / kTile;
  const AxisMask tile_axes = AxisMask{1} << slow | AxisMask{1} << fast;
  const AxisMask outer = ir.all_axes() & ~tile_axes;
  RG_CHECK(body.schedule.blocks == ir.Points(outer) * slow_tiles * fast_tiles);

  LaunchText launch(body, dialect, body.schedule.threads, body.schedule.blocks);
  launch.UseWideIndexAbove(body.schedule.blocks + ir.extents[slow] + ir.extents[fast] + 2 * kTile);
  PointPrinter printer(&launch, 1);
  SourceWriter& out = launch.out;
  const absl::string_view index = launch.index_type();
  const std::vector<int> loads = TransposedLoads(ir, slow);
  const int step = body.schedule.threads / kTile;
  std::vector<int> roots, stores(ir.stores.size());
  std::iota(stores.begin(), stores.end(), 0);
  for (const Store& s : ir.stores) roots.push_back(s.instr);

  out.SetDepth(1);
  out.Line("const int lane = RG_THREAD % ", kTile, ", first = RG_THREAD / ", kTile, ";");
  out.Line("const ", index, " fast0 = static_cast<", index, ">(RG_BLOCK % ", Sized(fast_tiles),
           ") * ", kTile, ";");
  out.Line("const ", index, " slow0 = static_cast<", index, ">(RG_BLOCK / ", Sized(fast_tiles),
           " % ", Sized(slow_tiles), ") * ", kTile, ";");
  const AxisMask used = printer.UsedAxes(printer.Needed(roots), stores, ir.all_axes());
  if ((used & outer) != 0) {
    out.Line("const ", index, " o = RG_BLOCK / ", Sized(fast_tiles * slow_tiles), ";");
    printer.DeclareAxes(outer, used, "o");
  }
  // One element more a line than needed: a column of the tile then lies in different banks.
  for (int i : loads) {
    launch.Shared(ComputeType(ir.instrs[i].dtype), absl::StrCat("tile", i), kTile * (kTile + 1));
  }
  auto in_tile = [&](absl::string_view s, absl::string_view f) {
    out.Line("const ", index, " a", slow, " = slow0 + ", s, ";");
    out.Line("const ", index, " a", fast, " = fast0 + ", f, ";");
    out.Open("if (a", slow, " < ", Sized(ir.extents[slow]), " && a", fast, " < ",
             Sized(ir.extents[fast]), ")");
  };

  out.Open("for (int n = first; n < ", kTile, "; n += ", step, ")");
  in_tile("lane", "n");
  for (int i : loads) {
    printer.SetHome(i,
                    {.lane = absl::StrCat("tile", i, "[n * ", kTile + 1, " + lane]"), .base = ""});
  }
  printer.Print({.instrs = loads, .reductions = {}, .stores = {}});
  out.Close();
  out.Close();
  launch.Barrier();
  for (int i : loads) {
    printer.SetHome(i,
                    {.lane = absl::StrCat("tile", i, "[lane * ", kTile + 1, " + n]"), .base = ""});
    printer.SetKnown(i, true);
  }
  out.Open("for (int n = first; n < ", kTile, "; n += ", step, ")");
  in_tile("n", "lane");
  printer.Print({.instrs = printer.Needed(roots),
                 .reductions = {},
                 .stores = stores,
                 .level = ir.all_axes()});
  out.Close();
  out.Close();
  return {.launches = {launch.Finish("")}};
}

}  // namespace retrograd
