#include "fusion/kernel/ir/accesses/vector_access.h"

#include <algorithm>
#include <numeric>

namespace retrograd {
namespace {

constexpr int kShiftedWord = 4;  // bytes that a shift works on

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

// The guards have one truth in all lanes, and looked-up rows are the same.
bool LanesLoadAlike(const KernelIr& ir, const Instr& load, const Vectors& v) {
  if (!GuardsAgree(ir, load, v)) return false;
  if (load.indirect.empty()) return true;
  const std::vector<bool> varies = LaneVaries(ir, v);
  return std::none_of(load.indirect.begin(), load.indirect.end(),
                      [&](const Indirect& i) { return varies[i.instr]; });
}

// Elements that lie side by side wherever they begin, as many as two aligned accesses hold: 1 if
// they don't, or do not fill a word.
int ShiftedWidth(const KernelIr& ir, const Instr& load, const Vectors& vectors) {
  const int64_t size = SizeBytes(ir.buffers[load.buffer].dtype);
  Vectors v = vectors;
  while (v.width * size > kMaxAccessBytes) v.width /= 2;
  const bool fills_words = v.width > 1 && v.width * size >= kShiftedWord;
  if (!fills_words || LaneStride(load.offset, v) != 1) return 1;
  return LanesLoadAlike(ir, load, v) ? v.width : 1;
}

}  // namespace

int FastestAxis(const KernelIr& ir) {
  for (int a = static_cast<int>(ir.extents.size()) - 1; a >= 0; --a) {
    if (ir.extents[a] > 1) return a;
  }
  return -1;
}

int64_t KnownMultiple(const IndexExpr& e, const Vectors& v) {
  const int64_t along = v.phase == IndexExpr() ? 0 : e.axis_coef(v.axis);
  if (along != 0) {  // the position is a multiple of the width less the phase
    IndexExpr others = e;
    others.AddScaled(IndexExpr::Axis(v.axis), -along);
    others.AddScaled(v.phase, -along);
    return std::gcd(along * v.width, KnownMultiple(others, v));
  }
  int64_t g = e.offset();
  for (const IndexTerm& t : e.terms()) {
    int64_t m = 1;
    if (t.kind == IndexTerm::kAxis) {
      m = t.axis == v.axis ? v.width : 1;
    } else if (t.kind == IndexTerm::kMod) {
      m = std::gcd(KnownMultiple(*t.inner, v), t.divisor);
    }
    g = std::gcd(g, t.coef * m);
  }
  return g;
}

// A division or remainder by d keeps its quotient over a vector when the inner value climbs by s a
// lane from a multiple of width·s, and d is a multiple of width·s too.
std::optional<int64_t> LaneStride(const IndexExpr& e, const Vectors& v) {
  int64_t stride = 0;
  for (const IndexTerm& t : e.terms()) {
    if (t.kind == IndexTerm::kAxis) {
      if (t.axis == v.axis) stride += t.coef;
      continue;
    }
    const std::optional<int64_t> inner = LaneStride(*t.inner, v);
    if (!inner.has_value()) return std::nullopt;
    if (*inner == 0) continue;
    const int64_t span = v.width * *inner;
    if (span < 0 || t.divisor % span != 0 || KnownMultiple(*t.inner, v) % span != 0) {
      return std::nullopt;
    }
    if (t.kind == IndexTerm::kMod) stride += t.coef * *inner;
  }
  return stride;
}

bool LanesAgree(const Guard& guard, const Vectors& v, absl::Span<const int64_t> extents) {
  const std::optional<int64_t> stride = LaneStride(guard.expr, v);
  if (!stride.has_value()) return false;
  if (*stride == 0) return true;
  const int64_t span = v.width * *stride;
  if (span < 0 || KnownMultiple(guard.expr, v) % span != 0) return false;
  const IndexRange range = Range(guard.expr, extents);
  const bool begin_ok = guard.begin <= range.min || guard.begin % span == 0;
  const bool end_ok = guard.end > range.max || guard.end % span == 0;
  return begin_ok && end_ok;
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
  for (Vectors v = vectors; v.width > 1; v.width /= 2) {
    if (!OneAccess(ir.buffers[load.buffer], load.offset, load.indirect, v)) continue;
    if (LanesLoadAlike(ir, load, v)) return v.width;
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
  for (Vectors v = vectors; v.width > 1; v.width /= 2) {
    if (OneAccess(ir.buffers[store.buffer], store.offset, {}, v)) return v.width;
  }
  return 1;
}

}  // namespace retrograd
