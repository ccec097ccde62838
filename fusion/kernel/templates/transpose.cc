// No reduction, and loads that run along another axis than the stores: a tile goes through shared
// memory so that both sides coalesce.
#include "fusion/kernel/ir/transposed.h"

#include <algorithm>

#include "fusion/kernel/ir/scale.h"
#include "fusion/kernel/ir/vector_access.h"
#include "fusion/kernel/templates/kernel_template.h"

namespace retrograd {
namespace {

std::optional<Classification> Recognise(const KernelIr& ir, const Folds& folds) {
  if (!folds.sets.empty() || !TransposedAxis(ir).has_value()) return std::nullopt;
  return Recognised(ir, Template::kTranspose, 0, ir.all_axes());
}

// One element more a line than needed: a column of the tile then lies in different banks.
int64_t TilesBytes(const KernelIr& ir, const KernelProfile&, const Schedule&, int64_t) {
  int64_t bytes = 0;
  for (int i : TransposedLoads(ir, *TransposedAxis(ir))) {
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
  const int64_t blocks = list.shape().columns / std::max<int64_t>(slow * fast, 1) *
                         CeilDiv(slow, kTransposeTile) * CeilDiv(fast, kTransposeTile);
  if (blocks > 0 && blocks <= kMaxBlocks) {  // nothing to walk has no tile
    list.Add({.kind = Template::kTranspose, .threads = kThreads, .blocks = blocks});
  }
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
    .points_of_thread = OneVector,
    .shared_bytes = TilesBytes,
};

}  // namespace retrograd
