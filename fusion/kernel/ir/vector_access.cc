#include "fusion/kernel/ir/vector_access.h"

#include <numeric>

namespace retrograd {
namespace {

// One access of `width` elements: consecutive in the lanes, and its first address a multiple of its
// size wherever it happens.
bool OneAccess(const Buffer& buffer, const IndexExpr& offset, absl::Span<const Indirect> indirect,
               int axis, int width) {
  const int64_t bytes = width * SizeBytes(buffer.dtype);
  if (bytes > kMaxAccessBytes || buffer.alignment % bytes != 0) return false;
  if (LaneStride(offset, axis, width) != 1) return false;
  if (KnownMultiple(offset, axis, width) % width != 0) return false;
  for (const Indirect& i : indirect) {
    if (i.stride % width != 0) return false;
  }
  return true;
}

bool GuardsAgree(const KernelIr& ir, const Instr& instr, int axis, int width) {
  for (const Guard& g : instr.guards) {
    if (!LanesAgree(g, axis, width, ir.extents)) return false;
  }
  return true;
}

}  // namespace

int FastestAxis(const KernelIr& ir) {
  for (int a = static_cast<int>(ir.extents.size()) - 1; a >= 0; --a) {
    if (ir.extents[a] > 1) return a;
  }
  return -1;
}

int64_t KnownMultiple(const IndexExpr& e, int axis, int width) {
  int64_t g = e.offset();
  for (const IndexTerm& t : e.terms()) {
    int64_t m = 1;
    if (t.kind == IndexTerm::kAxis) {
      m = t.axis == axis ? width : 1;
    } else if (t.kind == IndexTerm::kMod) {
      m = std::gcd(KnownMultiple(*t.inner, axis, width), t.divisor);
    }
    g = std::gcd(g, t.coef * m);
  }
  return g;
}

// A division or remainder by d keeps its quotient over a vector when the inner value climbs by s a
// lane from a multiple of width·s, and d is a multiple of width·s too.
std::optional<int64_t> LaneStride(const IndexExpr& e, int axis, int width) {
  int64_t stride = 0;
  for (const IndexTerm& t : e.terms()) {
    if (t.kind == IndexTerm::kAxis) {
      if (t.axis == axis) stride += t.coef;
      continue;
    }
    const std::optional<int64_t> inner = LaneStride(*t.inner, axis, width);
    if (!inner.has_value()) return std::nullopt;
    if (*inner == 0) continue;
    const int64_t span = width * *inner;
    if (span < 0 || t.divisor % span != 0 || KnownMultiple(*t.inner, axis, width) % span != 0) {
      return std::nullopt;
    }
    if (t.kind == IndexTerm::kMod) stride += t.coef * *inner;
  }
  return stride;
}

bool LanesAgree(const Guard& guard, int axis, int width, absl::Span<const int64_t> extents) {
  const std::optional<int64_t> stride = LaneStride(guard.expr, axis, width);
  if (!stride.has_value()) return false;
  if (*stride == 0) return true;
  const int64_t span = width * *stride;
  if (span < 0 || KnownMultiple(guard.expr, axis, width) % span != 0) return false;
  const IndexRange range = Range(guard.expr, extents);
  const bool begin_ok = guard.begin <= range.min || guard.begin % span == 0;
  const bool end_ok = guard.end > range.max || guard.end % span == 0;
  return begin_ok && end_ok;
}

std::vector<bool> LaneVaries(const KernelIr& ir, int axis, int width) {
  std::vector<bool> varies(ir.instrs.size(), false);
  if (axis < 0 || width <= 1) return varies;
  for (size_t i = 0; i < ir.instrs.size(); ++i) {
    const Instr& instr = ir.instrs[i];
    if (instr.kind == InstrKind::kReduce) {
      varies[i] = (instr.axes >> axis & 1) != 0;
      continue;
    }
    bool v = false;
    for (int o : instr.operands) v = v || varies[o];
    for (const Indirect& ind : instr.indirect) v = v || varies[ind.instr];
    if (instr.kind == InstrKind::kLoad || instr.kind == InstrKind::kIndex) {
      v = v || LaneStride(instr.offset, axis, width) != 0;
    }
    varies[i] = v || !GuardsAgree(ir, instr, axis, width);
  }
  return varies;
}

int LoadWidth(const KernelIr& ir, int instr, int axis, int width) {
  const Instr& load = ir.instrs[instr];
  for (int w = width; w > 1; w /= 2) {
    if (!OneAccess(ir.buffers[load.buffer], load.offset, load.indirect, axis, w)) continue;
    if (!GuardsAgree(ir, load, axis, w)) continue;
    const std::vector<bool> varies =
        load.indirect.empty() ? std::vector<bool>() : LaneVaries(ir, axis, w);
    bool same_rows = true;
    for (const Indirect& i : load.indirect) same_rows = same_rows && !varies[i.instr];
    if (same_rows) return w;
  }
  return 1;
}

int StoreWidth(const KernelIr& ir, const Store& store, int axis, int width) {
  for (int w = width; w > 1; w /= 2) {
    if (OneAccess(ir.buffers[store.buffer], store.offset, {}, axis, w)) return w;
  }
  return 1;
}

}  // namespace retrograd
