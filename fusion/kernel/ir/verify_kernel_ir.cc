// KernelIr::Verify, invariant by invariant. Bounds and one-to-one stores are decided from ranges
// where expressions are affine, and by trying every point where they are not and the points are
// few.
#include <algorithm>
#include <bit>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "fusion/kernel/ir/kernel_ir.h"
#include "graph/base/status.h"
#include "graph/ir/sorted_indices.h"

namespace retrograd {
namespace {

constexpr int64_t kBruteForcePoints = 1 << 16;

absl::Status Broken(absl::string_view rule, int instr, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(rule, ": v", instr, " ", what));
}

AxisMask GuardAxes(absl::Span<const Guard> guards) {
  AxisMask axes = 0;
  for (const Guard& g : guards) axes |= g.expr.axes();
  return axes;
}

// Calls fn(position) at every point of the axes in `mask`, the others at 0; stops at false.
template <typename Fn>
bool EveryPoint(const KernelIr& ir, AxisMask mask, Fn fn) {
  std::vector<int64_t> at(ir.extents.size(), 0);
  const int64_t points = ir.Points(mask);
  for (int64_t p = 0; p < points; ++p) {
    int64_t rest = p;
    for (int a = static_cast<int>(at.size()) - 1; a >= 0; --a) {
      if ((mask >> a & 1) == 0) continue;
      at[a] = rest % ir.extents[a];
      rest /= ir.extents[a];
    }
    if (!fn(absl::MakeConstSpan(at))) return false;
  }
  return true;
}

bool Holds(absl::Span<const Guard> guards, absl::Span<const int64_t> at) {
  return std::all_of(guards.begin(), guards.end(), [&](const Guard& g) {
    const int64_t v = g.expr.Evaluate(at);
    return g.begin <= v && v < g.end;
  });
}

// The offset's range where the guards over a single plain axis hold: each such guard narrows its
// axis.
IndexRange GuardedRange(const KernelIr& ir, const Instr& load, bool* empty) {
  std::vector<int64_t> low(ir.extents.size(), 0), high = ir.extents;
  for (const Guard& g : load.guards) {
    if (g.expr.terms().size() != 1) continue;
    const IndexTerm& t = g.expr.terms()[0];
    if (t.kind != IndexTerm::kAxis || t.coef != 1) continue;
    low[t.axis] = std::max(low[t.axis], g.begin - g.expr.offset());
    high[t.axis] = std::min(high[t.axis], g.end - g.expr.offset());
  }
  std::vector<IndexExpr> moved;
  std::vector<int64_t> extents;
  for (size_t a = 0; a < low.size(); ++a) {
    if (high[a] <= low[a]) *empty = true;
    moved.push_back(IndexExpr::Axis(static_cast<int>(a)) + IndexExpr::Constant(low[a]));
    extents.push_back(std::max<int64_t>(high[a] - low[a], 1));
  }
  return Range(Substitute(load.offset, moved, extents), extents);
}

absl::Status LoadInBounds(const KernelIr& ir, int i) {
  const Instr& load = ir.instrs[i];
  const int64_t elements = ir.buffers[load.buffer].elements;
  bool empty = ir.Points(ir.all_axes()) == 0;
  IndexRange r = GuardedRange(ir, load, &empty);
  int64_t looked_up = 0;  // the largest part that indices add
  for (const Indirect& ind : load.indirect) {
    looked_up += std::max<int64_t>(0, (ind.extent - 1) * ind.stride);
    if (ind.extent <= 0) empty = true;
  }
  r.max += looked_up;
  if (empty || (r.min >= 0 && r.max < elements)) return absl::OkStatus();
  const AxisMask axes = load.offset.axes() | GuardAxes(load.guards);
  if (!load.guards.empty() && ir.Points(axes) > kBruteForcePoints) return absl::OkStatus();
  if (!load.guards.empty()) {
    const bool inside = EveryPoint(ir, axes, [&](absl::Span<const int64_t> at) {
      const int64_t v = load.offset.Evaluate(at);
      return !Holds(load.guards, at) || (v >= 0 && v + looked_up < elements);
    });
    if (inside) return absl::OkStatus();
  }
  return Broken("K3", i,
                absl::StrCat("reads elements ", r.min, "..", r.max, " of buffer ", load.buffer,
                             ", which has ", elements));
}

using Steps = std::vector<std::pair<int64_t, int64_t>>;  // (coefficient, extent)

// One-to-one for certain: each coefficient exceeds all that the smaller ones can add up to.
bool AffineOneToOne(const KernelIr& ir, const IndexExpr& e, AxisMask axes, Steps steps = {}) {
  for (size_t a = 0; a < ir.extents.size(); ++a) {
    if ((axes >> a & 1) == 0 || ir.extents[a] <= 1) continue;
    steps.push_back({std::abs(e.axis_coef(static_cast<int>(a))), ir.extents[a]});
  }
  std::sort(steps.begin(), steps.end());
  int64_t reach = 0;
  for (auto [coef, extent] : steps) {
    if (coef <= reach) return false;
    reach += coef * (extent - 1);
  }
  return true;
}

// The ascending numbers as steps from the first one, or nullopt if they are no such grid.
std::optional<Steps> GridOf(std::vector<int64_t> numbers) {
  Steps steps;
  while (numbers.size() > 1) {
    const int64_t step = numbers[1] - numbers[0];
    size_t run = 1;
    while (run < numbers.size() && numbers[run] - numbers[run - 1] == step) ++run;
    std::vector<int64_t> firsts;
    for (size_t n = 0; n < numbers.size(); ++n) {
      if (n % run == 0) {
        firsts.push_back(numbers[n]);
      } else if (numbers[n] - numbers[n - 1] != step) {
        return std::nullopt;
      }
    }
    if (numbers.size() % run != 0) return std::nullopt;
    steps.push_back({step, static_cast<int64_t>(run)});
    numbers = std::move(firsts);
  }
  return steps;
}

// Whether stores of one buffer write different elements. Where offsets are not affine and points
// are many, that is not decided here.
bool WriteApart(const KernelIr& ir, const std::vector<const Store*>& stores) {
  int64_t points = 0;
  for (const Store* s : stores) points += ir.Points(ir.instrs[s->instr].axes);
  if (points <= kBruteForcePoints) {
    absl::flat_hash_set<int64_t> seen;
    return std::all_of(stores.begin(), stores.end(), [&](const Store* s) {
      return EveryPoint(ir, ir.instrs[s->instr].axes, [&](absl::Span<const int64_t> at) {
        return seen.insert(s->offset.Evaluate(at)).second;
      });
    });
  }
  const auto from_zero = [](const Store* s) {
    return s->offset + IndexExpr::Constant(-s->offset.offset());
  };
  const IndexExpr base = from_zero(stores[0]);
  const AxisMask axes = ir.instrs[stores[0]->instr].axes;
  std::vector<int64_t> firsts;
  for (const Store* s : stores) {
    if (ir.instrs[s->instr].axes != axes || !(from_zero(s) == base)) return false;
    firsts.push_back(s->offset.offset());
  }
  std::sort(firsts.begin(), firsts.end());
  if (std::adjacent_find(firsts.begin(), firsts.end()) != firsts.end()) return false;
  if (!base.is_affine()) return true;
  const std::optional<Steps> grid = GridOf(std::move(firsts));
  return grid && AffineOneToOne(ir, base, axes, *grid);
}

absl::Status CheckStore(const KernelIr& ir, const Store& store, int number) {
  const std::string name = absl::StrCat("store ", number);
  if (store.instr < 0 || store.instr >= static_cast<int>(ir.instrs.size())) {
    return absl::InvalidArgumentError(absl::StrCat("K1: ", name, " names no instruction"));
  }
  if (store.buffer < 0 || store.buffer >= static_cast<int>(ir.buffers.size()) ||
      !ir.buffers[store.buffer].written) {
    return absl::InvalidArgumentError(absl::StrCat("K3: ", name, " names no written buffer"));
  }
  const AxisMask axes = ir.instrs[store.instr].axes;
  if ((store.offset.axes() & ~axes) != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "K5: ", name, " is placed by an axis over which v", store.instr, " does not vary"));
  }
  if (ir.Points(axes) == 0) return absl::OkStatus();
  const IndexRange r = Range(store.offset, ir.extents);
  const int64_t elements = ir.buffers[store.buffer].elements;
  if (r.min < 0 || r.max >= elements) {
    return absl::InvalidArgumentError(absl::StrCat("K3: ", name, " writes elements ", r.min, "..",
                                                   r.max, " of buffer ", store.buffer,
                                                   ", which has ", elements));
  }
  bool one_to_one = AffineOneToOne(ir, store.offset, axes);
  if (!one_to_one && ir.Points(axes) <= kBruteForcePoints) {
    absl::flat_hash_set<int64_t> seen;
    one_to_one = EveryPoint(ir, axes, [&](absl::Span<const int64_t> at) {
      return seen.insert(store.offset.Evaluate(at)).second;
    });
  } else if (!store.offset.is_affine()) {
    one_to_one = true;  // not decided here
  }
  if (!one_to_one) {
    return absl::InvalidArgumentError(absl::StrCat("K4: ", name, " writes some element of buffer ",
                                                   store.buffer, " more than once"));
  }
  return absl::OkStatus();
}

absl::Status CheckInstr(const KernelIr& ir, int i) {
  const Instr& instr = ir.instrs[i];
  AxisMask used = GuardAxes(instr.guards) | instr.offset.axes();
  for (int o : instr.operands) {
    if (o < 0 || o >= i)
      return Broken("K1", i, absl::StrCat("reads v", o, ", which is not earlier"));
    used |= ir.instrs[o].axes;
  }
  for (const Indirect& ind : instr.indirect) {
    if (ind.instr < 0 || ind.instr >= i) {
      return Broken("K1", i, absl::StrCat("is indexed by v", ind.instr, ", which is not earlier"));
    }
    if (IsFloat(ir.instrs[ind.instr].dtype)) {
      return Broken("K1", i, absl::StrCat("is indexed by v", ind.instr, ", which is no integer"));
    }
    used |= ir.instrs[ind.instr].axes;
  }
  if ((instr.axes & ~ir.all_axes()) != 0) return Broken("K2", i, "varies over an axis that is not");
  if (instr.kind == InstrKind::kReduce) {
    if ((instr.reduced & ~ir.all_axes()) != 0) return Broken("K2", i, "folds an axis that is not");
    if (instr.operands.size() != 1 || PatternOf(instr.op) != Pattern::kReduction) {
      return Broken("K2", i, "is no reduction of one operand");
    }
    if ((instr.axes & instr.reduced) != 0) return Broken("K2", i, "varies over an axis it folds");
    used &= ~instr.reduced;
  }
  if (instr.kind == InstrKind::kFold &&
      (instr.operands.empty() || PatternOf(instr.op) != Pattern::kReduction)) {
    return Broken("K2", i, "is no reduction of its operands");
  }
  if (instr.kind == InstrKind::kScan) {
    if (instr.operands.size() != 1 || PatternOf(instr.op) != Pattern::kScan) {
      return Broken("K2", i, "is no scan of one operand");
    }
    const AxisMask axes = instr.axes & ir.instrs[instr.operands[0]].axes;
    if (std::popcount(instr.reduced) != 1 || (instr.reduced & ~axes) != 0) {
      return Broken("K2", i, "runs along no axis over which it and its operand vary");
    }
  }
  if ((used & ~instr.axes) != 0) {
    return Broken(instr.operands.empty() ? "K5" : "K2", i,
                  "does not vary over an axis that its operands, offset or guards use");
  }
  if (instr.kind == InstrKind::kLoad) {
    if (instr.buffer < 0 || instr.buffer >= static_cast<int>(ir.buffers.size())) {
      return Broken("K3", i, "loads from no buffer");
    }
    return LoadInBounds(ir, i);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status KernelIr::Verify() const {
  if (extents.size() > kMaxAxes) {
    return absl::InvalidArgumentError(
        absl::StrCat("K2: ", extents.size(), " axes are more than ", kMaxAxes));
  }
  for (size_t i = 0; i < instrs.size(); ++i)
    RG_RETURN_IF_ERROR(CheckInstr(*this, static_cast<int>(i)));
  for (size_t s = 0; s < stores.size(); ++s) {
    RG_RETURN_IF_ERROR(CheckStore(*this, stores[s], static_cast<int>(s)));
  }
  for (size_t b = 0; b < buffers.size(); ++b) {
    std::vector<const Store*> of_buffer;
    for (const Store& s : stores) {
      if (s.buffer == static_cast<int>(b)) of_buffer.push_back(&s);
    }
    if (of_buffer.size() > 1 && !WriteApart(*this, of_buffer)) {
      return absl::InvalidArgumentError(
          absl::StrCat("K4: two stores write some element of buffer ", b));
    }
  }
  if (scatter.has_value()) {
    const int n = static_cast<int>(instrs.size());
    for (size_t s = 0; s < stores.size(); ++s) {
      if (Points(scatter->row_axes & ~instrs[stores[s].instr].axes) == 1) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("K4: store ", s, " beside a scatter has no value of each position"));
    }
    if (scatter->src_instr < 0 || scatter->src_instr >= n) {
      return absl::InvalidArgumentError("K1: the scatter names no instruction");
    }
    const SortedIndices sorted{.rows = scatter->table_rows, .indices = Points(scatter->row_axes)};
    if (scatter->sorted < 0 || scatter->sorted >= static_cast<int>(buffers.size()) ||
        buffers[scatter->sorted].dtype != DType::kInt32 ||
        buffers[scatter->sorted].elements < sorted.elements()) {
      return absl::InvalidArgumentError("K3: the scatter reads past the sorted indices");
    }
    const int all = static_cast<int>(buffers.size());
    if (scatter->base >= all ||
        (scatter->base >= 0 && scatter->buffer >= 0 && scatter->buffer < all &&
         buffers[scatter->base].elements < buffers[scatter->buffer].elements)) {
      return absl::InvalidArgumentError("K3: the scatter reads past what it adds onto");
    }
  }
  return absl::OkStatus();
}

}  // namespace retrograd
