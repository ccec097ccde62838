#include "fusion/kernel/ir/accesses/needed_lanes.h"

#include <bit>
#include <cstdint>

namespace retrograd {
namespace {

using Lanes = uint32_t;  // bit j: lane j

// Where the guards may hold, and where they may fail.
struct Sides {
  Lanes inside = 0, outside = 0;
};

Sides SidesOf(const KernelIr& ir, const Instr& instr, const Vectors& v, Lanes all) {
  Sides sides{.inside = all, .outside = 0};
  for (const Guard& g : instr.guards) {
    const std::vector<LaneTruth> truths = LaneTruths(g, v, ir.extents);
    for (int j = 0; j < v.width; ++j) {
      if (truths[j] == LaneTruth::kNever) sides.inside &= ~(Lanes{1} << j);
      if (truths[j] != LaneTruth::kAlways) sides.outside |= Lanes{1} << j;
    }
  }
  return sides;
}

}  // namespace

std::vector<int> NeededLanes(const KernelIr& ir, const Vectors& vectors) {
  const Lanes all = (Lanes{1} << vectors.width) - 1;
  std::vector<Lanes> needed(ir.instrs.size(), 0);
  for (const Store& store : ir.stores) needed[store.instr] = all;
  if (ir.scatter) needed[ir.scatter->src_instr] = all;
  for (size_t i = ir.instrs.size(); i-- > 0;) {
    const Instr& instr = ir.instrs[i];
    if (instr.kind == InstrKind::kReduce || instr.kind == InstrKind::kScan) {
      for (int operand : instr.operands) needed[operand] = all;
      continue;
    }
    if (instr.guards.empty() || vectors.axis < 0) {
      for (int operand : instr.operands) needed[operand] |= needed[i];
      for (const Indirect& ind : instr.indirect) needed[ind.instr] |= needed[i];
      continue;
    }
    const Sides sides = SidesOf(ir, instr, vectors, all);
    if (instr.kind == InstrKind::kSelect) {
      needed[instr.operands[0]] |= needed[i] & sides.inside;
      needed[instr.operands[1]] |= needed[i] & sides.outside;
    } else {
      needed[i] &= sides.inside;
      for (int operand : instr.operands) needed[operand] |= needed[i];
      for (const Indirect& ind : instr.indirect) needed[ind.instr] |= needed[i];
    }
  }
  std::vector<int> lanes;
  for (Lanes n : needed) lanes.push_back(std::popcount(n));
  return lanes;
}

}  // namespace retrograd
