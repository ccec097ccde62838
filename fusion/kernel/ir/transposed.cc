#include "fusion/kernel/ir/transposed.h"

#include "fusion/kernel/ir/vector_access.h"

namespace retrograd {
namespace {

// Shorter axes fill too little of a tile to be worth one.
constexpr int64_t kMinExtent = kTransposeTile / 2;

bool RunsAlong(const Instr& load, int axis, int fastest) {
  return load.kind == InstrKind::kLoad && load.indirect.empty() &&
         LaneStride(load.offset, {axis, 2}) == 1 && LaneStride(load.offset, {fastest, 2}) != 0 &&
         LaneStride(load.offset, {fastest, 2}) != 1;
}

}  // namespace

std::vector<int> TransposedLoads(const KernelIr& ir, int axis) {
  std::vector<int> loads;
  const int fastest = FastestAxis(ir);
  for (size_t i = 0; i < ir.instrs.size(); ++i) {
    if (RunsAlong(ir.instrs[i], axis, fastest)) loads.push_back(static_cast<int>(i));
  }
  return loads;
}

std::optional<int> TransposedAxis(const KernelIr& ir) {
  const int fastest = FastestAxis(ir);
  if (fastest < 0 || ir.extents[fastest] < kMinExtent) return std::nullopt;
  bool stored_along = false;
  for (const Store& s : ir.stores) {
    stored_along = stored_along || LaneStride(s.offset, {fastest, 2}) == 1;
  }
  if (!stored_along) return std::nullopt;
  for (int a = fastest - 1; a >= 0; --a) {
    if (ir.extents[a] >= kMinExtent && !TransposedLoads(ir, a).empty()) return a;
  }
  return std::nullopt;
}

}  // namespace retrograd
