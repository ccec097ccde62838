#include "fusion/kernel/build/unify_branches.h"

#include <algorithm>
#include <optional>
#include <vector>

namespace retrograd {
namespace {

// Selects in the merged value: one for the sign in which the halves of rotary positions differ.
// With more, branches that are not alike would both be evaluated everywhere.
constexpr int kMostSelects = 1;
constexpr int kNever = 1000;

// Search bound: operands below the branches' results that are compared. Rotary positions have four,
// with a scale six.
constexpr int kMostDepth = 10;

// axis < at: the guard's side of a cut in two.
struct Cut {
  int axis = 0;
  int64_t at = 0;
};

std::optional<Cut> CutOf(const Guard& guard, absl::Span<const int64_t> extents) {
  if (guard.expr.terms().size() != 1 || !guard.expr.is_affine()) return std::nullopt;
  const int axis = guard.expr.terms()[0].axis;
  if (guard.expr.axis_coef(axis) != 1) return std::nullopt;
  const Cut cut{axis, guard.end - guard.expr.offset()};
  const bool low = guard.begin - guard.expr.offset() <= 0;
  if (!low || cut.at <= 0 || cut.at >= extents[axis]) return std::nullopt;
  return cut;
}

// Whether the guard says no more than on which side of the cut the point is.
bool SaysSide(const Guard& guard, const Cut& cut, bool low, absl::Span<const int64_t> extents) {
  if (guard.expr.terms().size() != 1 || guard.expr.axis_coef(cut.axis) != 1) return false;
  const int64_t begin = guard.begin - guard.expr.offset(), end = guard.end - guard.expr.offset();
  return low ? begin <= 0 && end >= cut.at : begin <= cut.at && end >= extents[cut.axis];
}

class Merger {
 public:
  Merger(const Cut& cut, const Guard& guard, absl::Span<const int64_t> extents, KernelIr& ir)
      : cut_(cut), guard_(guard), extents_(extents), ir_(ir) {}

  int Selects(int i, int j, int depth) const {
    if (i == j) return 0;
    if (depth > kMostDepth) return kNever;
    const Instr& a = ir_.instrs[i];
    const Instr& b = ir_.instrs[j];
    if (ComputeType(a.dtype) != ComputeType(b.dtype)) return kNever;
    if (a.kind == InstrKind::kConstant && b.kind == InstrKind::kConstant) {
      return a.constant == b.constant && a.dtype == b.dtype ? 0 : kNever;
    }
    if (a.kind == InstrKind::kLoad && b.kind == InstrKind::kLoad) {
      return Offset(a, b).has_value() ? 0 : kNever;
    }
    if (Alike(a, b)) return std::min(Straight(a, b, depth), Crossed(a, b, depth));
    if (AreChosenAlike(a, b)) return Straight(a, b, depth);
    return std::min({kNever, Around(i, j, true, depth), Around(i, j, false, depth)});
  }

  int Build(int i, int j) {
    if (i == j) return i;
    const Instr a = ir_.instrs[i], b = ir_.instrs[j];  // copies: the list grows
    if (a.kind == InstrKind::kConstant && b.kind == InstrKind::kConstant) return i;
    if (a.kind == InstrKind::kLoad && b.kind == InstrKind::kLoad) return Load(a, b);
    if (AreChosenAlike(a, b)) return Chosen(a, b);
    if (!Alike(a, b)) {
      const bool first = Around(i, j, true, 0) <= Around(i, j, false, 0);
      const Instr& outer = first ? a : b;
      const int plain = first ? Build(outer.operands[0], j) : Build(i, outer.operands[0]);
      Instr done = outer;
      done.operands[0] = plain;
      const int changed = Add(std::move(done));
      return Add({.kind = InstrKind::kSelect,
                  .op = Op::where,
                  .dtype = a.dtype,
                  .operands = {first ? changed : plain, first ? plain : changed},
                  .guards = {guard_},
                  .value = a.value});
    }
    Instr merged = a;
    const bool crossed = Crossed(a, b, 0) < Straight(a, b, 0);
    for (size_t o = 0; o < a.operands.size(); ++o) {
      merged.operands[o] = Build(a.operands[o], b.operands[crossed ? 1 - o : o]);
    }
    return Add(std::move(merged));
  }

 private:
  static bool Alike(const Instr& a, const Instr& b) {
    return a.kind == InstrKind::kPointwise && b.kind == InstrKind::kPointwise && a.op == b.op &&
           a.dtype == b.dtype && a.round == b.round && a.operands.size() == b.operands.size();
  }

  // Of two values each, by guards that say the same beside the side.
  bool AreChosenAlike(const Instr& a, const Instr& b) const {
    return a.kind == InstrKind::kSelect && b.kind == InstrKind::kSelect && a.dtype == b.dtype &&
           Others(a, true) == Others(b, false);
  }

  int Chosen(const Instr& a, const Instr& b) {
    Instr merged = a;
    merged.guards = Others(a, true);
    merged.operands[0] = Build(a.operands[0], b.operands[0]);
    if (merged.guards.empty()) return merged.operands[0];
    merged.operands[1] = Build(a.operands[1], b.operands[1]);
    return Add(std::move(merged));
  }

  int Straight(const Instr& a, const Instr& b, int depth) const {
    int selects = 0;
    for (size_t o = 0; o < a.operands.size() && selects < kNever; ++o) {
      selects += Selects(a.operands[o], b.operands[o], depth + 1);
    }
    return std::min(selects, kNever);
  }

  int Crossed(const Instr& a, const Instr& b, int depth) const {
    if (a.op != Op::add && a.op != Op::mul) return kNever;
    const int first = Selects(a.operands[0], b.operands[1], depth + 1);
    if (first >= kNever) return kNever;
    return std::min(first + Selects(a.operands[1], b.operands[0], depth + 1), kNever);
  }

  // The first (i, on the low side) or the second does one thing more to what the other is.
  int Around(int i, int j, bool first, int depth) const {
    const Instr& outer = ir_.instrs[first ? i : j];
    const Instr& plain = ir_.instrs[first ? j : i];
    if (outer.kind != InstrKind::kPointwise || outer.operands.size() != 1) return kNever;
    if (outer.dtype != plain.dtype || depth > kMostDepth) return kNever;
    // Of one thing more on both sides at once there are no two.
    if (plain.kind == InstrKind::kPointwise && plain.operands.size() == 1 && plain.op == outer.op)
      return kNever;
    const int inner = outer.operands[0];
    const int others = first ? Selects(inner, j, depth + 1) : Selects(i, inner, depth + 1);
    return std::min(1 + others, kNever);
  }

  // Where a (on the low side) and b (on the other) load. The step back at the cut is that of a
  // remainder, whose range is known exactly.
  std::optional<IndexExpr> Offset(const Instr& a, const Instr& b) const {
    if (a.buffer != b.buffer || a.dtype != b.dtype || a.fill != b.fill) return std::nullopt;
    if (!a.indirect.empty() || !b.indirect.empty()) return std::nullopt;
    if (Others(a, true) != Others(b, false)) return std::nullopt;
    const IndexExpr back = a.offset + b.offset * -1;
    if (!back.is_constant()) return std::nullopt;
    if (back.offset() == 0) return a.offset;
    const int64_t stride = a.offset.axis_coef(cut_.axis);
    if (stride <= 0 || back.offset() % stride != 0) return Rolled(a.offset, b.offset);
    const int64_t period = back.offset() / stride;
    // Neither side is longer than a period.
    if (period < std::max(cut_.at, extents_[cut_.axis] - cut_.at))
      return Rolled(a.offset, b.offset);
    const IndexExpr at = IndexExpr::Axis(cut_.axis) + IndexExpr::Constant(period - cut_.at);
    return a.offset + at * -stride + Mod(at, period, extents_) * stride;
  }

  // The same where the places of both sides are one expression of the position in a rolled axis:
  // the low side has its last positions, the other side its first ones.
  std::optional<IndexExpr> Rolled(const IndexExpr& low, const IndexExpr& high) const {
    const int64_t extent = extents_[cut_.axis];
    const IndexExpr axis = IndexExpr::Axis(cut_.axis);
    if (extent == 2) {  // any two places are one step apart
      const IndexExpr first = With(low, IndexExpr()), second = With(high, IndexExpr::Constant(1));
      const IndexExpr step = second + first * -1;
      if (!step.is_constant()) return std::nullopt;
      return first + axis * step.offset();
    }
    const IndexExpr ahead = axis + IndexExpr::Constant(extent - cut_.at);
    const IndexExpr unrolled = With(high, axis + IndexExpr::Constant(cut_.at));
    if (With(unrolled, ahead) != low) return std::nullopt;
    return With(unrolled, Mod(ahead, extent, extents_));
  }

  // The expression at another place of the cut axis.
  IndexExpr With(const IndexExpr& e, const IndexExpr& place) const {
    std::vector<IndexExpr> places;
    for (size_t a = 0; a < extents_.size(); ++a) {
      places.push_back(static_cast<int>(a) == cut_.axis ? place
                                                        : IndexExpr::Axis(static_cast<int>(a)));
    }
    return Substitute(e, places, extents_);
  }

  std::vector<Guard> Others(const Instr& instr, bool low) const {
    std::vector<Guard> others;
    for (const Guard& g : instr.guards) {
      if (!SaysSide(g, cut_, low, extents_)) others.push_back(g);
    }
    return others;
  }

  int Load(const Instr& a, const Instr& b) {
    Instr merged = a;
    merged.offset = *Offset(a, b);
    merged.guards = Others(a, true);
    return Add(std::move(merged));
  }

  // One instruction for equal ones.
  int Add(Instr instr) {
    instr.axes = 0;
    for (int operand : instr.operands) instr.axes |= ir_.instrs[operand].axes;
    for (const Guard& g : instr.guards) instr.axes |= g.expr.axes();
    instr.axes |= instr.offset.axes();
    const auto equal = std::find(ir_.instrs.begin(), ir_.instrs.end(), instr);
    if (equal != ir_.instrs.end()) return static_cast<int>(equal - ir_.instrs.begin());
    ir_.instrs.push_back(std::move(instr));
    return static_cast<int>(ir_.instrs.size()) - 1;
  }

  const Cut cut_;
  const Guard& guard_;
  const absl::Span<const int64_t> extents_;
  KernelIr& ir_;
};

}  // namespace

int MergeBranches(const Guard& guard, int inside, int outside, absl::Span<const int64_t> extents,
                  KernelIr& ir) {
  const std::optional<Cut> cut = CutOf(guard, extents);
  if (!cut.has_value()) return -1;
  Merger merger(*cut, guard, extents, ir);
  return merger.Selects(inside, outside, 0) <= kMostSelects ? merger.Build(inside, outside) : -1;
}

void RemoveUnused(KernelIr& ir) {
  std::vector<bool> used(ir.instrs.size(), false);
  for (const Store& s : ir.stores) used[s.instr] = true;
  if (ir.scatter) used[ir.scatter->src_instr] = true;
  for (size_t i = ir.instrs.size(); i-- > 0;) {
    if (!used[i]) continue;
    for (int o : ir.instrs[i].operands) used[o] = true;
    for (const Indirect& ind : ir.instrs[i].indirect) used[ind.instr] = true;
  }
  std::vector<int> number(ir.instrs.size(), -1);
  std::vector<Instr> kept;
  for (size_t i = 0; i < ir.instrs.size(); ++i) {
    if (!used[i]) continue;
    number[i] = static_cast<int>(kept.size());
    kept.push_back(std::move(ir.instrs[i]));
    for (int& o : kept.back().operands) o = number[o];
    for (Indirect& ind : kept.back().indirect) ind.instr = number[ind.instr];
  }
  ir.instrs = std::move(kept);
  for (Store& s : ir.stores) s.instr = number[s.instr];
  if (ir.scatter) {
    ir.scatter->src_instr = number[ir.scatter->src_instr];
  }
}

}  // namespace retrograd
