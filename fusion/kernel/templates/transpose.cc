// No reduction, and loads or stores that run along another axis than another access: a tile of each
// goes through shared memory so that both sides coalesce. Schedule::vector_width: 1 with square
// tiles, else elements along the loads' axis in wide ones.
#include "fusion/kernel/ir/accesses/transposed.h"

#include <algorithm>

#include "fusion/kernel/ir/accesses/vector_access.h"
#include "fusion/kernel/ir/scale.h"
#include "fusion/kernel/templates/kernel_template.h"

namespace retrograd {
namespace {

std::optional<Classification> Recognise(const KernelIr& ir, const Folds& folds) {
  if (!folds.sets.empty() || !TransposedAxis(ir).has_value()) return std::nullopt;
  return Recognised(ir, Template::kTranspose, 0, ir.all_axes());
}

int64_t WideTilesBytes(const KernelIr& ir, const WideTiles& tiles) {
  int64_t bytes = 0;
  for (const Store& s : ir.stores) {
    bytes += SharedArrayBytes(tiles.slow() * tiles.pitch(), SizeBytes(ir.buffers[s.buffer].dtype));
  }
  return bytes;
}

// One element more a line than needed: a column of the tile then lies in different banks.
int64_t TilesBytes(const KernelIr& ir, const KernelProfile&, const Schedule& s, int64_t) {
  if (s.vector_width > 1) return WideTilesBytes(ir, *WideTilesOf(ir, s.blocks));
  const int axis = *TransposedAxis(ir);
  std::vector<int> values = TransposedLoads(ir, axis);
  for (int store : TransposedStores(ir, axis)) values.push_back(ir.stores[store].instr);
  int64_t bytes = 0;
  for (int i : values) {
    bytes += SharedArrayBytes(kTransposeTile * (kTransposeTile + 1),
                              SizeBytes(ComputeType(ir.instrs[i].dtype)));
  }
  return bytes;
}

void AddCandidates(CandidateList& list) {
  AddPasses(list);
  if (!list.limits().transpose_tiles) return;
  const KernelIr& ir = list.ir();
  const int axis = *TransposedAxis(ir);
  const int64_t slow = ir.extents[axis], fast = ir.extents[FastestAxis(ir)];
  const auto add = [&](int width, int64_t slow_tile, int64_t fast_tile) {
    const int64_t blocks = list.shape().columns / std::max<int64_t>(slow * fast, 1) *
                           CeilDiv(slow, slow_tile) * CeilDiv(fast, fast_tile);
    if (blocks <= 0 || blocks > kMaxBlocks) return;  // nothing to walk has no tile
    list.Add({.kind = Template::kTranspose,
              .threads = kThreads,
              .vector_width = width,
              .blocks = blocks});
  };
  add(1, kTransposeTile, kTransposeTile);
  if (!list.limits().vectorize) return;
  if (const std::optional<WideTiles> tiles = WideTilesOf(ir)) {
    add(tiles->width, tiles->slow(), tiles->fast());
  }
}

// The elements of a tile's thread are loaded before any is evaluated.
PointsOfThread Points(const KernelProfile&, const Schedule& s) {
  const int64_t rows = s.vector_width > 1 ? WideTiles::kRows : kSquareTurns;
  return {.at_once = s.vector_width, .under_way = s.vector_width * rows};
}

LaunchKind Main(const Schedule&) { return LaunchKind::kTranspose; }

}  // namespace

constinit const KernelTemplate kTransposeTemplate = {
    .id = Template::kTranspose,
    .name = "transpose",
    .recognise = Recognise,
    .candidates = AddCandidates,
    .transposes = true,
    .shares_launches = true,
    .launch_kind = [](const Schedule& s, int64_t, int64_t) { return Main(s); },
    .main_launch = Main,
    .points_of_thread = Points,
    .shared_bytes = TilesBytes,
};

}  // namespace retrograd
