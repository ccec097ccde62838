#include "fusion/kernel/build/axis_order.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <utility>

#include "fusion/kernel/ir/accesses/interleaved.h"
#include "fusion/kernel/ir/accesses/vector_grid.h"

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

// Where the accesses that reach the most points lie in memory, stores before loads. What is looked
// up lies where an index says, and its rows lie as the access says.
std::vector<const IndexExpr*> Leaders(const KernelIr& ir) {
  std::vector<const IndexExpr*> leaders;
  int64_t most = -1;
  const auto see = [&](const IndexExpr& offset, AxisMask axes) {
    const int64_t points = ir.Points(axes);
    if (points > most) leaders.clear();
    if (points >= most) leaders.push_back(&offset);
    most = std::max(most, points);
  };
  for (const Store& s : ir.stores) see(s.offset, s.offset.axes());
  for (const Instr& i : ir.instrs) {
    if (i.kind != InstrKind::kLoad) continue;
    see(i.offset, i.indirect.empty() ? i.offset.axes() : i.axes);
  }
  return leaders;
}

void OrderAxes(KernelIr& ir, const IndexExpr& leader) {
  std::vector<int> order(ir.extents.size());
  std::iota(order.begin(), order.end(), 0);
  // Axes that the leader does not step along come first.
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    const int64_t ca = std::abs(leader.axis_coef(a)), cb = std::abs(leader.axis_coef(b));
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

// The kernel with its axes as an access of it lies in memory.
KernelIr InOrderOf(const KernelIr& ir, const IndexExpr& leader) {
  KernelIr other = ir;
  OrderAxes(other, leader);
  MergeAxes(other);
  return other;
}

constexpr int kLanes = 8;  // of a vector of 16 bits

// Whether the values that reductions fold over and stores write vary over both axes or over
// neither.
bool ActAsOne(const KernelIr& ir, int outer, int inner) {
  const auto agrees = [&](AxisMask m) { return (m >> outer & 1) == (m >> inner & 1); };
  return std::all_of(ir.instrs.begin(), ir.instrs.end(),
                     [&](const Instr& i) { return agrees(i.reduced); }) &&
         std::all_of(ir.stores.begin(), ir.stores.end(),
                     [&](const Store& s) { return agrees(ir.instrs[s.instr].axes); });
}

// The last axis becomes part of the one before it.
void FoldLastAxis(KernelIr& ir) {
  const int last = static_cast<int>(ir.extents.size()) - 1;
  const int64_t inner = ir.extents[last];
  std::vector<int64_t> extents(ir.extents.begin(), ir.extents.end() - 1);
  extents[last - 1] *= inner;
  std::vector<IndexExpr> replacement;
  for (int a = 0; a < last - 1; ++a) replacement.push_back(IndexExpr::Axis(a));
  const IndexExpr folded = IndexExpr::Axis(last - 1);
  replacement.push_back(FloorDiv(folded, inner, extents));
  replacement.push_back(Mod(folded, inner, extents));
  ForEachExpr(ir, [&](IndexExpr& e) { e = Substitute(e, replacement, extents); });
  ForEachMask(ir, [&](AxisMask& m) {
    if ((m >> last & 1) != 0) m = (m & ~(AxisMask{1} << last)) | AxisMask{1} << (last - 1);
  });
  ir.extents = std::move(extents);
}

// The two last axes become one if the last one is shorter than a vector, an access to all points
// goes along both, and either a vector has several whole rows of the last one, or vectors or halves
// of them fill both.
void FoldShortRows(KernelIr& ir) {
  const int last = static_cast<int>(ir.extents.size()) - 1;
  if (ir.scatter || last < 1) return;
  const int64_t inner = ir.extents[last];
  if (inner < 2 || inner >= kLanes) return;
  if (kLanes % inner != 0 && ir.extents[last - 1] * inner % (kLanes / 2) != 0) return;
  const std::vector<const IndexExpr*> leaders = Leaders(ir);
  const bool along = std::any_of(leaders.begin(), leaders.end(), [&](const IndexExpr* e) {
    return e->axis_coef(last) == 1 && e->axis_coef(last - 1) == inner;
  });
  if (along && ActAsOne(ir, last - 1, last)) FoldLastAxis(ir);
}

// Whether vectors of some width reach all elements of all large accesses by several at once.
bool GoesByVectors(const KernelIr& ir) {
  if (GoesByVectors(ir, VectorsOf(ir, kLanes))) return true;
  return std::any_of(std::begin(kLanesOfThirds), std::end(kLanesOfThirds), [&](int width) {
    return !HasEnds(ir, width) && GoesByVectors(ir, VectorsOf(ir, width));
  });
}

// Whether all large accesses go along the last axis, and its rows are no shorter than a vector.
bool GoesAlongRows(const KernelIr& ir) {
  const int last = static_cast<int>(ir.extents.size()) - 1;
  if (last < 0) return true;
  if (ir.extents[last] < kLanes) return false;
  const int64_t all = ir.Points(ir.all_axes());
  const auto goes_along = [&](const IndexExpr& e) {
    return e.axis_coef(last) == 1 || ir.Points(e.axes()) < all;
  };
  return std::all_of(ir.stores.begin(), ir.stores.end(),
                     [&](const Store& s) { return goes_along(s.offset); }) &&
         std::all_of(ir.instrs.begin(), ir.instrs.end(), [&](const Instr& i) {
           return i.kind != InstrKind::kLoad || goes_along(i.offset);
         });
}

// Enough to see each way in which tensors lie that are joined, split or turned.
constexpr size_t kMostOrders = 4;

// The order of another access than the one whose order it is, if all go by vectors in that one
// alone.
void PreferVectors(KernelIr& ir) {
  KernelIr first = ir;
  FoldShortRows(first);
  std::vector<const IndexExpr*> tried;
  for (const IndexExpr* leader : Leaders(ir)) {
    if (tried.size() == kMostOrders || GoesByVectors(first)) break;
    const bool known = std::any_of(tried.begin(), tried.end(),
                                   [&](const IndexExpr* other) { return *other == *leader; });
    if (known) continue;
    tried.push_back(leader);
    KernelIr other = InOrderOf(ir, *leader);
    FoldShortRows(other);
    if (GoesByVectors(other)) first = std::move(other);
  }
  ir = std::move(first);
}

// Whether an access goes along the last axis by steps of several elements.
bool Strides(const KernelIr& ir) {
  const int last = static_cast<int>(ir.extents.size()) - 1;
  const auto strides = [&](const IndexExpr& e) { return std::abs(e.axis_coef(last)) > 1; };
  return std::any_of(ir.stores.begin(), ir.stores.end(),
                     [&](const Store& s) { return strides(s.offset); }) ||
         std::any_of(ir.instrs.begin(), ir.instrs.end(), [&](const Instr& i) {
           return i.kind == InstrKind::kLoad && i.indirect.empty() && strides(i.offset);
         });
}

// The order of another access, if each access then has neighbours of a row side by side or is the
// same for them. Where none reaches all points, as in sums of products, the largest one says
// little: the others are loaded at each point as well.
void PreferNeighbours(KernelIr& ir) {
  if (ir.extents.empty() || !Strides(ir)) return;
  const int64_t all = ir.Points(ir.all_axes());
  std::vector<const IndexExpr*> offsets;
  for (const Store& s : ir.stores) offsets.push_back(&s.offset);
  for (const Instr& i : ir.instrs) {
    if (i.kind == InstrKind::kLoad && i.indirect.empty()) offsets.push_back(&i.offset);
  }
  const auto reaches_all = [&](const IndexExpr* e) { return ir.Points(e->axes()) == all; };
  if (std::any_of(offsets.begin(), offsets.end(), reaches_all)) return;
  std::stable_sort(offsets.begin(), offsets.end(), [&](const IndexExpr* a, const IndexExpr* b) {
    return ir.Points(a->axes()) > ir.Points(b->axes());
  });
  const auto alike = [](const IndexExpr* a, const IndexExpr* b) { return *a == *b; };
  offsets.erase(std::unique(offsets.begin(), offsets.end(), alike), offsets.end());
  offsets.resize(std::min(offsets.size(), kMostOrders));
  for (const IndexExpr* offset : offsets) {
    KernelIr other = InOrderOf(ir, *offset);
    if (other.extents.back() < kLanes || Strides(other)) continue;
    ir = std::move(other);
    return;
  }
}

}  // namespace

void OrderAndMergeAxes(KernelIr& ir) {
  DropUnitAxes(ir);
  const std::vector<const IndexExpr*> leaders = Leaders(ir);
  // Outer, rows, inner: a scatter's order is its meaning.
  if (!ir.scatter && !leaders.empty()) OrderAxes(ir, *leaders[0]);
  MergeAxes(ir);
  if (ir.scatter) return;
  PreferNeighbours(ir);
  if (!GoesAlongRows(ir)) PreferVectors(ir);
}

}  // namespace retrograd
