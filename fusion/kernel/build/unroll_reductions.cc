#include "fusion/kernel/build/unroll_reductions.h"

#include <map>
#include <utility>
#include <vector>

#include "fusion/kernel/build/axis_order.h"
#include "graph/base/tensor_type.h"

namespace retrograd {
namespace {

class Unroller {
 public:
  Unroller(const KernelIr& ir, AxisMask folded) : ir_(ir), folded_(folded) {
    out_.extents = ir.extents;
    for (size_t a = 0; a < ir.extents.size(); ++a) {
      if ((folded >> a & 1) != 0) out_.extents[a] = 1;
    }
    out_.buffers = ir.buffers;
  }

  KernelIr Run() {
    const auto all = static_cast<int>(ir_.instrs.size());
    for (int i = 0; i < all; ++i) {
      ForPlaces(ir_.instrs[i].axes, Origin(), [&](const Place& at) { AddInstr(i, at); });
    }
    for (const Store& store : ir_.stores) {
      ForPlaces(ir_.instrs[store.instr].axes, Origin(), [&](const Place& at) {
        Store one = store;
        one.instr = At(store.instr, at);
        one.offset = Placed(store.offset, at);
        out_.stores.push_back(std::move(one));
      });
    }
    OrderAndMergeAxes(out_);
    return std::move(out_);
  }

 private:
  using Place = std::vector<int64_t>;  // by axis; 0 along those that stay

  Place Origin() const { return Place(ir_.extents.size(), 0); }

  // Each place of the folded axes among these, row-major, the others as in `at`.
  template <typename Fn>
  void ForPlaces(AxisMask axes, Place at, Fn fn, size_t axis = 0) const {
    while (axis < at.size() && ((axes & folded_) >> axis & 1) == 0) ++axis;
    if (axis == at.size()) {
      fn(at);
      return;
    }
    for (at[axis] = 0; at[axis] < ir_.extents[axis]; ++at[axis]) ForPlaces(axes, at, fn, axis + 1);
  }

  IndexExpr Placed(const IndexExpr& e, const Place& at) const {
    if ((e.axes() & folded_) == 0) return e;
    std::vector<IndexExpr> replacement;
    for (size_t a = 0; a < at.size(); ++a) {
      const bool gone = (folded_ >> a & 1) != 0;
      replacement.push_back(gone ? IndexExpr::Constant(at[a])
                                 : IndexExpr::Axis(static_cast<int>(a)));
    }
    return Substitute(e, replacement, out_.extents);
  }

  // The instruction that stands for this one there.
  int At(int instr, Place at) const {
    for (size_t a = 0; a < at.size(); ++a) {
      if ((ir_.instrs[instr].axes >> a & 1) == 0) at[a] = 0;
    }
    return copies_.at({instr, std::move(at)});
  }

  void AddInstr(int i, const Place& at) {
    Instr one = ir_.instrs[i];
    one.operands.clear();
    for (int operand : ir_.instrs[i].operands) {
      ForPlaces(one.reduced, at, [&](const Place& of) { one.operands.push_back(At(operand, of)); });
    }
    for (Indirect& ind : one.indirect) ind.instr = At(ind.instr, at);
    one.offset = Placed(one.offset, at);
    for (Guard& g : one.guards) g.expr = Placed(g.expr, at);
    one.axes &= ~folded_;
    if (one.kind == InstrKind::kReduce) {
      one.kind = InstrKind::kFold;
      one.reduced = 0;
    }
    copies_[{i, at}] = static_cast<int>(out_.instrs.size());
    out_.instrs.push_back(std::move(one));
  }

  const KernelIr& ir_;
  const AxisMask folded_;
  KernelIr out_;
  std::map<std::pair<int, Place>, int> copies_;
};

}  // namespace

std::optional<KernelIr> UnrollReductions(const KernelIr& ir) {
  AxisMask folded = 0;
  for (const Instr& instr : ir.instrs) {
    if (instr.kind == InstrKind::kScan) return std::nullopt;
    if (instr.kind == InstrKind::kReduce) folded |= instr.reduced;
  }
  const bool several = folded != 0 && ir.Points(folded) > 1;
  if (ir.scatter || !several || ir.Points(folded) > kMostUnrolled) return std::nullopt;
  return Unroller(ir, folded).Run();
}

}  // namespace retrograd
