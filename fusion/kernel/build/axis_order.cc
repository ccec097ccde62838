#include "fusion/kernel/build/axis_order.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace retrograd {
namespace {

// Every index expression of the kernel, for reading or rewriting.
template <typename Fn>
void ForEachExpr(KernelIr& ir, Fn fn) {
  for (Instr& i : ir.instrs) {
    fn(i.offset);
    for (Guard& g : i.guards) fn(g.expr);
  }
  for (Store& s : ir.stores) fn(s.offset);
}

template <typename Fn>
void ForEachMask(KernelIr& ir, Fn fn) {
  for (Instr& i : ir.instrs) {
    fn(i.axes);
    fn(i.reduced);
  }
  if (ir.scatter) fn(ir.scatter->row_axes);
}

// Axis a becomes new_number[a], or vanishes (coordinate 0) where that is negative.
void Renumber(KernelIr& ir, const std::vector<int>& new_number, std::vector<int64_t> new_extents) {
  std::vector<IndexExpr> replacement;  // of axes in divisions and remainders
  const auto substituted = [&](const IndexExpr& e) {
    for (size_t a = replacement.size(); a < new_number.size(); ++a) {
      replacement.push_back(new_number[a] < 0 ? IndexExpr() : IndexExpr::Axis(new_number[a]));
    }
    return Substitute(e, replacement, new_extents);
  };
  AxisMask changed = 0;
  for (size_t a = 0; a < new_number.size(); ++a) {
    if (new_number[a] != static_cast<int>(a)) changed |= AxisMask{1} << a;
  }
  ForEachExpr(ir, [&](IndexExpr& e) {
    if (!e.is_affine()) {
      e = substituted(e);
    } else if ((e.axes() & changed) != 0) {
      e.RenumberAxes(new_number);
    }
  });
  ForEachMask(ir, [&](AxisMask& mask) {
    AxisMask renumbered = 0;
    for (size_t a = 0; a < new_number.size(); ++a) {
      if ((mask >> a & 1) && new_number[a] >= 0) renumbered |= AxisMask{1} << new_number[a];
    }
    mask = renumbered;
  });
  ir.extents = std::move(new_extents);
}

void DropUnitAxes(KernelIr& ir) {
  std::vector<int> number(ir.extents.size(), -1);
  std::vector<int64_t> extents;
  // A scatter keeps one axis that numbers its indices, so that outer and inner stay apart.
  bool keep_row = ir.scatter && ir.Points(ir.scatter->row_axes) == 1;
  for (size_t a = 0; a < ir.extents.size(); ++a) {
    const bool row = keep_row && (ir.scatter->row_axes >> a & 1);
    if (ir.extents[a] == 1 && !row) continue;
    if (row) keep_row = false;
    number[a] = static_cast<int>(extents.size());
    extents.push_back(ir.extents[a]);
  }
  if (extents.size() != ir.extents.size()) Renumber(ir, number, std::move(extents));
}

// The access that decides the order: most points, stores before loads.
const IndexExpr* Leader(const KernelIr& ir) {
  const IndexExpr* best = nullptr;
  int64_t best_points = -1;
  for (const Store& s : ir.stores) {
    const int64_t points = ir.Points(s.offset.axes());
    if (points > best_points) best = &s.offset, best_points = points;
  }
  for (const Instr& i : ir.instrs) {
    if (i.kind != InstrKind::kLoad || !i.indirect.empty()) continue;
    const int64_t points = ir.Points(i.offset.axes());
    if (points > best_points) best = &i.offset, best_points = points;
  }
  return best;
}

void OrderAxes(KernelIr& ir) {
  if (ir.scatter) return;  // outer, rows, inner: the order is the meaning
  const IndexExpr* leader = Leader(ir);
  if (leader == nullptr) return;
  std::vector<int> order(ir.extents.size());
  std::iota(order.begin(), order.end(), 0);
  // Axes that the leader does not step along come first.
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    const int64_t ca = std::abs(leader->axis_coef(a)), cb = std::abs(leader->axis_coef(b));
    if ((ca == 0) != (cb == 0)) return ca == 0;
    return ca > cb;
  });
  if (std::is_sorted(order.begin(), order.end())) return;
  std::vector<int> number(order.size());
  std::vector<int64_t> extents;
  for (size_t i = 0; i < order.size(); ++i) {
    number[order[i]] = static_cast<int>(i);
    extents.push_back(ir.extents[order[i]]);
  }
  Renumber(ir, number, std::move(extents));
}

// Whether the axes of the expression step like one axis of the product of their extents.
bool StepsAsOne(const IndexExpr& e, int outer, int inner, int64_t inner_extent) {
  if (e.axis_coef(outer) != e.axis_coef(inner) * inner_extent) return false;
  for (const IndexTerm& t : e.terms()) {
    if (t.kind == IndexTerm::kAxis) continue;
    const AxisMask axes = t.inner->axes();
    if ((axes >> outer & 1) != 0 || (axes >> inner & 1) != 0) return false;
  }
  return true;
}

bool Mergeable(KernelIr& ir, int outer, int inner, int64_t inner_extent) {
  bool ok = true;
  ForEachExpr(ir, [&](IndexExpr& e) { ok = ok && StepsAsOne(e, outer, inner, inner_extent); });
  ForEachMask(ir, [&](AxisMask& m) { ok = ok && ((m >> outer & 1) == (m >> inner & 1)); });
  return ok;
}

// The innermost axis of a run of neighbours that step as one takes over all of them: it steps as
// the run does, so that the terms of the others go and its own stays.
void MergeAxes(KernelIr& ir) {
  const int axes = static_cast<int>(ir.extents.size());
  std::vector<int64_t> extents = ir.extents;
  int inner = axes - 1;
  for (int a = axes - 2; a >= 0; --a) {
    if (Mergeable(ir, a, inner, extents[inner])) {
      extents[inner] *= extents[a];
      extents[a] = 1;
    } else {
      inner = a;
    }
  }
  if (extents == ir.extents) return;
  ir.extents = std::move(extents);
  DropUnitAxes(ir);
}

}  // namespace

void OrderAndMergeAxes(KernelIr& ir) {
  DropUnitAxes(ir);
  OrderAxes(ir);
  MergeAxes(ir);
}

}  // namespace retrograd
