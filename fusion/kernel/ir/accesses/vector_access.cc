#include "fusion/kernel/ir/accesses/vector_access.h"

#include <algorithm>

namespace retrograd {
namespace {

constexpr int kShiftedWord = 4;  // bytes that a shift works on

// The lanes of one access at most: the largest power of two that fills the vector in whole parts.
Vectors WidestPart(Vectors v) {
  v.width &= -v.width;
  return v;
}

// One access of `width` elements: consecutive in the lanes, and its first address a multiple of its
// size wherever it happens.
bool OneAccess(const Buffer& buffer, const IndexExpr& offset, absl::Span<const Indirect> indirect,
               const Vectors& v) {
  const int64_t bytes = v.width * SizeBytes(buffer.dtype);
  if (bytes > kMaxAccessBytes || buffer.alignment % bytes != 0) return false;
  if (LaneStride(offset, v) != 1) return false;
  if (KnownMultiple(offset, v) % v.width != 0) return false;
  for (const Indirect& i : indirect) {
    if (i.stride % v.width != 0) return false;
  }
  return true;
}

bool GuardsAgree(const KernelIr& ir, const Instr& instr, const Vectors& v) {
  for (const Guard& g : instr.guards) {
    if (!LanesAgree(g, v, ir.extents)) return false;
  }
  return true;
}

// The guards have one truth in all lanes of `part`, and looked-up rows are the same in all of the
// vector, for which they are looked up once.
bool LanesLoadAlike(const KernelIr& ir, const Instr& load, const Vectors& part,
                    const Vectors& vectors) {
  if (!GuardsAgree(ir, load, part)) return false;
  if (load.indirect.empty()) return true;
  const std::vector<bool> varies = LaneVaries(ir, vectors);
  return std::none_of(load.indirect.begin(), load.indirect.end(),
                      [&](const Indirect& i) { return varies[i.instr]; });
}

// Elements that lie side by side wherever they begin, as many as two aligned accesses hold: 1 if
// they don't, or do not fill a word.
int ShiftedWidth(const KernelIr& ir, const Instr& load, const Vectors& vectors) {
  const int64_t size = SizeBytes(ir.buffers[load.buffer].dtype);
  Vectors v = WidestPart(vectors);
  while (v.width * size > kMaxAccessBytes) v.width /= 2;
  const bool fills_words = v.width > 1 && v.width * size >= kShiftedWord;
  if (!fills_words || LaneStride(load.offset, v) != 1) return 1;
  return LanesLoadAlike(ir, load, v, vectors) ? v.width : 1;
}

}  // namespace

int FastestAxis(const KernelIr& ir) {
  for (int a = static_cast<int>(ir.extents.size()) - 1; a >= 0; --a) {
    if (ir.extents[a] > 1) return a;
  }
  return -1;
}

std::vector<bool> LaneVaries(const KernelIr& ir, const Vectors& vectors) {
  std::vector<bool> varies(ir.instrs.size(), false);
  if (vectors.axis < 0 || vectors.width <= 1) return varies;
  for (size_t i = 0; i < ir.instrs.size(); ++i) {
    const Instr& instr = ir.instrs[i];
    if (instr.kind == InstrKind::kReduce) {
      varies[i] = (instr.axes >> vectors.axis & 1) != 0;
      continue;
    }
    bool v = false;
    for (int o : instr.operands) v = v || varies[o];
    for (const Indirect& ind : instr.indirect) v = v || varies[ind.instr];
    if (instr.kind == InstrKind::kLoad || instr.kind == InstrKind::kIndex) {
      v = v || LaneStride(instr.offset, vectors) != 0;
    }
    varies[i] = v || !GuardsAgree(ir, instr, vectors);
  }
  return varies;
}

int LoadWidth(const KernelIr& ir, int instr, const Vectors& vectors) {
  const Instr& load = ir.instrs[instr];
  for (Vectors v = WidestPart(vectors); v.width > 1; v.width /= 2) {
    if (!OneAccess(ir.buffers[load.buffer], load.offset, load.indirect, v)) continue;
    if (LanesLoadAlike(ir, load, v, vectors)) return v.width;
  }
  return 1;
}

LoadForm FormOfLoad(const KernelIr& ir, int instr, const Vectors& vectors) {
  const LoadForm single = {.width = LoadWidth(ir, instr, vectors)};
  if (!vectors.shifts) return single;
  const LoadForm pair = {.width = ShiftedWidth(ir, ir.instrs[instr], vectors), .shifted = true};
  return pair.width > single.width ? pair : single;
}

int StoreWidth(const KernelIr& ir, const Store& store, const Vectors& vectors) {
  for (Vectors v = WidestPart(vectors); v.width > 1; v.width /= 2) {
    if (OneAccess(ir.buffers[store.buffer], store.offset, {}, v)) return v.width;
  }
  return 1;
}

}  // namespace retrograd
