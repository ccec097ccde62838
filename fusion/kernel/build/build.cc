#include "fusion/kernel/build/build.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <optional>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/container/node_hash_map.h"
#include "absl/strings/str_cat.h"
#include "fusion/kernel/build/axis_order.h"
#include "fusion/kernel/build/iteration_space.h"
#include "fusion/kernel/build/order_instructions.h"
#include "fusion/kernel/build/unify_branches.h"
#include "graph/base/status.h"

// Values are pulled from the stores: Evaluate(value, where) yields the instruction for a value at
// given coordinates, under the guards within which it will be used. Equal requests share one
// instruction. Loads under guards never touch memory outside them.

namespace retrograd {
namespace {

// Axis number that stands for the looked-up index while a gather's source is traced; no real axis.
constexpr int kLookupAxis = kMaxAxes;

// Of one access. A single op stays below: stacked pads are cut before planning (legalize.cc).
constexpr size_t kMostGuards = 512;

// At which a kernel evaluates a value that it makes. Each stage of a transform reads its operand at
// two places, so places double with each stage that a kernel holds: an element of the last one
// would be made of all elements, where log n stages need two each. A kernel of so many equal
// instructions pays for no load that it saves.
constexpr size_t kMostPlaces = 64;

class Builder {
 public:
  Builder(const KernelRequest& request, IterationSpace space)
      : r_(request), g_(request.graph), space_(std::move(space)) {
    known_inside_.resize(r_.nodes.size());
    ir_.instrs.reserve(2 * r_.nodes.size());
    ir_.extents = space_.extents;
    extents_ = space_.extents;
    extents_.resize(kMaxAxes + 1, 1);
  }

  KernelOutcome Run() {
    for (ValueId v : r_.stores) {
      g_.pattern(v.node) == Pattern::kScatter ? EmitScatter(v) : EmitStore(v);
      if (refusal_) return {.ir = {}, .refusal = refusal_};
    }
    if (merged_) RemoveUnused(ir_);
    FillAlignment();
    OrderAndMergeAxes(ir_);
    return {.ir = std::move(ir_), .refusal = {}};
  }

 private:
  void Refuse(BuildLimit limit, std::string reason) {
    if (!refusal_) refusal_ = {limit, std::move(reason)};
  }

  void EmitStore(ValueId v) {
    const Walk& walk = space_.walks.At(v.node);
    const int instr = Evaluate(v, walk.result);
    if (refusal_) return;
    const int buffer = BufferOf(v);
    ir_.buffers[buffer].written = true;
    IndexExpr offset = Linearize(walk.result->coords, StridesOf(v));
    const int stored = Widened(instr, offset.axes());
    ir_.stores.push_back({.instr = stored, .buffer = buffer, .offset = std::move(offset)});
  }

  void EmitScatter(ValueId v) {
    const NodeId id = v.node;
    const Walk& walk = space_.walks.At(id);
    absl::Span<const ValueId> operands = g_.operands(id);
    const int axis = static_cast<int>(g_.node(id).attrs.Int("axis"));
    Scatter scatter;
    scatter.row_axes = walk.operand->coords[axis].axes();
    scatter.src_instr = Evaluate(operands[2], walk.operand);
    if (refusal_) return;
    scatter.src_instr = Widened(scatter.src_instr, ir_.all_axes());
    scatter.sorted = BufferOf(operands[1]);
    scatter.buffer = BufferOf(v);
    ir_.buffers[scatter.buffer].written = true;
    scatter.table_rows = g_.type(v).shape[axis];
    scatter.in_order = g_.node(id).attrs.Int("in_order") == 1;
    RG_CHECK(StridesOf(v) == DenseStrides(g_.type(v).shape));  // see fusion/lower/legalize.cc
    if (!IsZero(g_, operands[0])) scatter.base = BufferOfBase(operands[0], v);
    ir_.scatter = scatter;
    if (!scatter.in_order) MarkSortedIndices(operands[1]);
  }

  // What sums are added onto lies as the table does, whatever views show it so: legalization copies
  // anything else.
  int BufferOfBase(ValueId base, ValueId table) {
    const Shape& shape = g_.type(table).shape;
    AccessMap map;
    for (size_t d = 0; d < shape.size(); ++d) {
      map.coords.push_back(IndexExpr::Axis(static_cast<int>(d)));
    }
    for (; g_.pattern(base.node) == Pattern::kView; base = g_.operands(base.node)[0]) {
      map = ThroughView(g_, base.node, map, shape);
    }
    if (IsInside(base.node)) {
      Refuse(BuildLimit::kOneScatter, "what sums are added onto is stored by another kernel");
      return -1;
    }
    RG_CHECK(map.guards.empty());
    const IndexExpr element = Linearize(map.coords, StridesOf(base));
    const std::vector<int64_t> dense = DenseStrides(shape);
    RG_CHECK(element.is_affine() && element.offset() == 0);
    for (size_t d = 0; d < shape.size(); ++d) {
      RG_CHECK(shape[d] == 1 || element.axis_coef(static_cast<int>(d)) == dense[d]);
    }
    return BufferOf(base);
  }

  // The indices that the list has sorted, where the kernel reads them, too.
  void MarkSortedIndices(ValueId list) {
    if (g_.op(list.node) != Op::sort_indices) return;
    ValueId index = g_.operands(list.node)[0];
    while (g_.op(index.node) == Op::reshape) index = g_.operands(index.node)[0];
    for (Buffer& buffer : ir_.buffers) buffer.sorted_by_list |= buffer.value == index;
  }

  bool IsInside(NodeId id) const { return space_.walks.Position(id) >= 0; }

  const std::vector<int64_t>& StridesOf(ValueId v) const {
    return r_.layouts[g_.value_index(v)].strides;
  }

  int BufferOf(ValueId v) {
    for (size_t i = 0; i < ir_.buffers.size(); ++i) {
      if (ir_.buffers[i].value == v) return static_cast<int>(i);
    }
    const TensorType& type = g_.type(v);
    const std::vector<int64_t>& strides = StridesOf(v);
    RG_CHECK(strides.size() == type.shape.size());
    const int64_t span = SpanElements(type.shape, strides);
    ir_.buffers.push_back({.value = v, .dtype = type.dtype, .elements = span});
    return static_cast<int>(ir_.buffers.size()) - 1;
  }

  void FillAlignment() {
    for (Buffer& b : ir_.buffers) {
      const Node& node = g_.node(b.value.node);
      const int64_t size = SizeBytes(b.dtype);
      if (node.op == Op::input) {
        b.alignment = std::max(node.input->alignment, size);
      } else {
        b.alignment = kStoredAlignment;
        b.fresh = !b.written;
      }
    }
  }

  int Add(Instr instr) {
    if (refusal_) return 0;  // refused: nothing that follows is looked at
    for (int operand : instr.operands) instr.axes |= ir_.instrs[operand].axes;
    for (const Guard& g : instr.guards) instr.axes |= g.expr.axes();
    instr.axes |= instr.offset.axes();
    if (instr.kind == InstrKind::kReduce) instr.axes &= ~instr.reduced;
    ir_.instrs.push_back(std::move(instr));
    return static_cast<int>(ir_.instrs.size()) - 1;
  }

  // The value as one that varies over (at least) these axes: a constant is stored or summed at
  // each of their points.
  int Widened(int instr, AxisMask axes) {
    if ((ir_.instrs[instr].axes & axes) == axes) return instr;
    return Add({.kind = InstrKind::kPointwise,
                .op = Op::copy,
                .dtype = ir_.instrs[instr].dtype,
                .axes = axes,
                .operands = {instr},
                .value = ir_.instrs[instr].value});
  }

  int Constant(double value, DType dtype, ValueId v) {
    return Add({.kind = InstrKind::kConstant, .dtype = dtype, .constant = value, .value = v});
  }

  // --- evaluation --------------------------------------------------------------------------------

  int Evaluate(ValueId v, const AccessMap* at) {
    if (refusal_) return 0;
    SeeThroughViews(v, at);
    const int position = space_.walks.Position(v.node);
    KnownPlaces& known = position < 0 ? known_outside_[v] : known_inside_[position];
    for (const Known& k : known) {
      if (k.at == at) return k.instr;
    }
    if (known.size() >= kMostPlaces && position >= 0) {
      Refuse(BuildLimit::kPlaces,
             absl::StrCat("%", Index(v.node), " (", Name(g_.op(v.node)), ") is read at more than ",
                          kMostPlaces, " places, at each of which it would be made"));
      return 0;
    }
    const int instr = EvaluateNew(v, at);
    known.push_back({at, instr});
    return instr;
  }

  // To the value behind all views that pad nothing, without recursion: a file may stack as many as
  // it likes. And to the map there.
  void SeeThroughViews(ValueId& v, const AccessMap*& at) const {
    while (g_.pattern(v.node) == Pattern::kView) {
      const AccessMap* inner = space_.maps->ThroughView(v.node, at);
      if (inner->guards.size() > at->guards.size()) return;
      v = g_.operands(v.node)[0];
      at = inner;
    }
  }

  int EvaluateNew(ValueId v, const AccessMap* map) {
    const NodeId id = v.node;
    switch (g_.pattern(id)) {
      case Pattern::kView: return EvaluateView(v, map);
      case Pattern::kInput: return Load(v, *map);
      default: break;
    }
    if (IsConstant(g_, id)) return EvaluateConstant(v, *map);
    if (!IsInside(id)) return Load(v, *map);
    switch (g_.pattern(id)) {
      case Pattern::kPointwise: return EvaluatePointwise(v, map);
      case Pattern::kReduction: return EvaluateReduction(v, *map);
      case Pattern::kJoin: return EvaluateJoin(v, map);
      case Pattern::kAccumulate: return EvaluateAccumulate(v, map);
      case Pattern::kGather: return EvaluateGather(v, *map);
      case Pattern::kScan: return EvaluateScan(v, map);
      default: break;
    }
    RG_CHECK(g_.pattern(id) == Pattern::kScatter);  // no kernel holds the others
    Refuse(BuildLimit::kOneScatter,
           absl::StrCat("%", Index(id), " (", Name(g_.op(id)),
                        ") is read by the kernel that goes through its positions"));
    return 0;
  }

  // One element for all points is loaded once, whatever the guards say, and chosen where they hold.
  int Load(ValueId v, const AccessMap& map) {
    Instr load{.kind = InstrKind::kLoad,
               .dtype = g_.type(v).dtype,
               .buffer = BufferOf(v),
               .offset = Linearize(map.coords, StridesOf(v)),
               .value = v};
    std::vector<Guard> guards = WithoutImplied(map.guards, extents_);
    const int64_t at = load.offset.offset();
    const bool one = load.offset.is_constant() && at >= 0 && at < ir_.buffers[load.buffer].elements;
    if (!one || guards.empty()) {
      load.guards = std::move(guards);
      return Add(std::move(load));
    }
    const int element = AddOnce(std::move(load));
    return Select(std::move(guards), element, Constant(0, g_.type(v).dtype, v), v);
  }

  int EvaluateConstant(ValueId v, const AccessMap& map) {
    const Node& node = g_.node(v.node);
    if (node.op == Op::full) {
      return Constant(node.attrs.Float("value"), node.results[0].dtype, v);
    }
    return Add({.kind = InstrKind::kIndex,
                .dtype = node.results[0].dtype,
                .offset = map.coords[node.attrs.Int("axis")],
                .start = node.attrs.Float("start"),
                .step = node.attrs.Float("step", 1),
                .value = v});
  }

  // A view behind which no view is seen: a pad.
  int EvaluateView(ValueId v, const AccessMap* map) {
    const AccessMap* inner = space_.maps->ThroughView(v.node, map);
    if (inner->guards.size() > kMostGuards) {
      Refuse(BuildLimit::kGuards, absl::StrCat("an access has more than ", kMostGuards,
                                               " guards: pads through which it reads"));
      return 0;
    }
    const int instr = Evaluate(g_.operands(v.node)[0], inner);
    if (refusal_) return 0;
    const double fill = g_.node(v.node).attrs.Float("value");
    std::vector<Guard> own = OwnGuards(*inner, *map);
    if (own.empty() || (IsPlusZero(fill) && IsZeroOutside(instr, own))) return instr;
    return Select(std::move(own), instr, Constant(fill, g_.type(v).dtype, v), v);
  }

  // Those that a map has beside the ones of the map that it was made of.
  static std::vector<Guard> OwnGuards(const AccessMap& inner, const AccessMap& outer) {
    return {inner.guards.begin() + static_cast<std::ptrdiff_t>(outer.guards.size()),
            inner.guards.end()};
  }

  static bool IsPlusZero(double value) { return value == 0 && !std::signbit(value); }

  // Search bound: operands of operands are shared, and would be looked at again for each of them.
  static constexpr int kMostZeroDepth = 6;
  // Between these a number is neither 0 nor infinite in any type of 16 bits or more.
  static constexpr double kLeastPositive = 1e-4, kMostPositive = 6e4;

  // Whether the value is 0 wherever one of the guards does not hold, as a guarded load is, and what
  // makes 0 of such loads.
  bool IsZeroOutside(int instr, absl::Span<const Guard> guards, int depth = 0) const {
    if (depth > kMostZeroDepth) return false;
    const Instr& value = ir_.instrs[instr];
    if (value.kind == InstrKind::kLoad)
      return IsPlusZero(value.fill) && Imply(value.guards, guards);
    if (value.kind == InstrKind::kSelect) {
      const Instr& outside = ir_.instrs[value.operands[1]];
      const bool zero = outside.kind == InstrKind::kConstant && IsPlusZero(outside.constant);
      return zero &&
             (Imply(value.guards, guards) || IsZeroOutside(value.operands[0], guards, depth + 1));
    }
    if (value.kind != InstrKind::kPointwise) return false;
    const auto zero = [&](int operand) { return IsZeroOutside(operand, guards, depth + 1); };
    switch (value.op) {
      case Op::cast: return zero(value.operands[0]);
      case Op::div: return zero(value.operands[0]) && IsPositive(value.operands[1]);
      case Op::mul:
        return (zero(value.operands[0]) &&
                (IsPositive(value.operands[1]) || zero(value.operands[1]))) ||
               (zero(value.operands[1]) && IsPositive(value.operands[0]));
      case Op::add:
      case Op::sub: return zero(value.operands[0]) && zero(value.operands[1]);
      default: return false;
    }
  }

  // A floating constant with which products and quotients of 0 are 0, and not -0.
  bool IsPositive(int instr) const {
    const Instr& value = ir_.instrs[instr];
    return value.kind == InstrKind::kConstant && IsFloat(value.dtype) &&
           value.constant >= kLeastPositive && value.constant <= kMostPositive;
  }

  // Whether each of the guards holds wherever all of `known` do.
  bool Imply(absl::Span<const Guard> known, absl::Span<const Guard> guards) const {
    return std::all_of(guards.begin(), guards.end(), [&](const Guard& guard) {
      return std::any_of(known.begin(), known.end(),
                         [&](const Guard& k) { return Implies(k, guard, extents_); });
    });
  }

  int Select(std::vector<Guard> guards, int inside, int outside, ValueId v) {
    return Add({.kind = InstrKind::kSelect,
                .op = Op::where,
                .dtype = g_.type(v).dtype,
                .operands = {inside, outside},
                .guards = std::move(guards),
                .value = v});
  }

  int EvaluatePointwise(ValueId v, const AccessMap* map) {
    const NodeId id = v.node;
    const Node& node = g_.node(id);
    Instr instr{.kind = InstrKind::kPointwise,
                .op = node.op,
                .dtype = node.results[0].dtype,
                .round = node.op == Op::cast,
                .value = v};
    absl::Span<const ValueId> operands = g_.operands(id);
    for (size_t i = 0; i < operands.size(); ++i) {
      int operand = Evaluate(operands[i], space_.maps->OfOperand(id, static_cast<int>(i), map));
      if (TakesRounded(node.op)) operand = Rounded(operand);
      instr.operands.push_back(operand);
    }
    return Add(std::move(instr));
  }

  // Comparisons take their operands as they would have been stored.
  static bool TakesRounded(Op op) { return Info(op).type_rule == TypeRule::kCompare; }

  int Rounded(int instr) {
    if (refusal_) return instr;
    const Instr& in = ir_.instrs[instr];
    if (!IsNarrowFloat(in.dtype)) return instr;
    if (in.kind == InstrKind::kLoad || in.kind == InstrKind::kConstant || in.round) return instr;
    for (size_t i = instr + 1; i < ir_.instrs.size(); ++i) {
      const Instr& other = ir_.instrs[i];
      if (other.op == Op::copy && other.round && other.operands == std::vector<int>{instr}) {
        return static_cast<int>(i);
      }
    }
    return Add({.kind = InstrKind::kPointwise,
                .op = Op::copy,
                .dtype = in.dtype,
                .round = true,
                .operands = {instr},
                .value = in.value});
  }

  int EvaluateReduction(ValueId v, const AccessMap& map) {
    const NodeId id = v.node;
    const Walk& walk = space_.walks.At(id);
    if (walk.result->coords != map.coords) {
      Refuse(BuildLimit::kReductionAxes,
             absl::StrCat("%", Index(id), " (", Name(g_.op(id)),
                          ") is read at other places than those where its axes are folded"));
      return 0;
    }
    int operand = Evaluate(g_.operands(id)[0], walk.operand);
    AxisMask reduced = 0;
    absl::Span<const int64_t> axes = g_.node(id).attrs.Ints("axes");
    for (int64_t a : axes) reduced |= walk.operand->coords[a].axes();
    if (refusal_) return 0;
    // The accumulators stand at every point that the reduction keeps, whatever varies there.
    AxisMask walked = reduced;
    for (const IndexExpr& e : walk.operand->coords) walked |= e.axes();
    operand = Widened(operand, walked);
    return Add({.kind = InstrKind::kReduce,
                .op = g_.op(id),
                .dtype = g_.type(v).dtype,
                .operands = {operand},
                .reduced = reduced,
                .value = v});
  }

  // Whether coordinate `dim` runs through all of its extent in order, along an axis of its own.
  bool IsWholeAxis(absl::Span<const IndexExpr> coords, int64_t dim, int64_t extent) const {
    const AxisMask along = coords[dim].axes();
    if (along == 0) return extent <= 1;
    const int axis = std::countr_zero(along);
    if (coords[dim] != IndexExpr::Axis(axis) || extents_[axis] != extent) return false;
    for (size_t d = 0; d < coords.size(); ++d) {
      if (static_cast<int64_t>(d) != dim && (coords[d].axes() & along) != 0) return false;
    }
    return true;
  }

  int EvaluateScan(ValueId v, const AccessMap* map) {
    const NodeId id = v.node;
    const AccessMap* places = space_.walks.At(id).result;
    const std::vector<IndexExpr>& coords = places->coords;
    const Node& node = g_.node(id);
    const int64_t axis = node.attrs.Int("axis");
    const AxisMask along = coords[axis].axes();
    if (coords != map->coords || !map->guards.empty() ||
        !IsWholeAxis(coords, axis, g_.type(v).shape[axis])) {
      Refuse(BuildLimit::kScanAxis,
             absl::StrCat("%", Index(id), " (", Name(node.op),
                          ") is read at other places than those that it runs along"));
      return 0;
    }
    int operand = Evaluate(g_.operands(id)[0], places);
    if (refusal_ || along == 0) return operand;  // a single place holds its own sum
    AxisMask walked = 0;
    for (const IndexExpr& e : coords) walked |= e.axes();
    operand = Widened(operand, walked);
    return Add({.kind = InstrKind::kScan,
                .op = node.op,
                .dtype = g_.type(v).dtype,
                .operands = {operand},
                .reduced = along,
                .reverse = node.attrs.Int("reverse") == 1,
                .value = v});
  }

  int EvaluateJoin(ValueId v, const AccessMap* map) {
    // Parts in the order in which they win: slice_scatter's source covers its base.
    const NodeId id = v.node;
    absl::Span<const ValueId> operands = g_.operands(id);
    std::vector<int> order;
    if (g_.op(id) == Op::slice_scatter) {
      order = {1, 0};
    } else {
      for (size_t i = 0; i < operands.size(); ++i) order.push_back(static_cast<int>(i));
    }
    int result = -1;
    for (size_t k = order.size(); k-- > 0;) {
      const AccessMap* part = space_.maps->OfOperand(id, order[k], map);
      std::vector<Guard> own = OwnGuards(*part, *map);
      const int instr = Evaluate(operands[order[k]], part);
      if (refusal_) return 0;
      result = result < 0 || own.empty() ? instr : Joined(std::move(own), instr, result, v);
    }
    return result;
  }

  // Of two parts that are made alike one is made, from the elements of either.
  int Joined(std::vector<Guard> guards, int inside, int outside, ValueId v) {
    if (guards.size() == 1 && r_.unify_branches) {
      const int merged = MergeBranches(guards[0], inside, outside, extents_, ir_);
      merged_ = merged_ || merged >= 0;
      if (merged >= 0) return merged;
    }
    return Select(std::move(guards), inside, outside, v);
  }

  int EvaluateAccumulate(ValueId v, const AccessMap* map) {
    const NodeId id = v.node;
    const DType dtype = g_.type(v).dtype;
    absl::Span<const ValueId> operands = g_.operands(id);
    int sum = -1;
    for (size_t i = 0; i < operands.size(); ++i) {
      const AccessMap* part = space_.maps->OfOperand(id, static_cast<int>(i), map);
      std::vector<Guard> own = OwnGuards(*part, *map);
      int term = Evaluate(operands[i], part);
      if (refusal_) return 0;
      if (!own.empty() && !IsZeroOutside(term, own)) {
        term = Select(std::move(own), term, Constant(0, dtype, v), v);
      }
      sum = sum < 0 ? term
                    : Add({.kind = InstrKind::kPointwise,
                           .op = Op::add,
                           .dtype = dtype,
                           .operands = {sum, term},
                           .value = v});
    }
    return sum;
  }

  int EvaluateGather(ValueId v, const AccessMap& map) {
    const NodeId id = v.node;
    absl::Span<const ValueId> operands = g_.operands(id);
    const int axis = static_cast<int>(g_.node(id).attrs.Int("axis"));
    const int64_t extent = g_.type(operands[0]).shape[axis];
    AccessMap index{.coords = {}, .guards = map.guards, .fill = 0};
    AccessMap source = index;
    if (g_.op(id) == Op::gather) {
      index.coords = map.coords;
      source.coords = map.coords;
      source.coords[axis] = IndexExpr::Axis(kLookupAxis);
    } else {
      const int rank = g_.type(operands[1]).rank();
      index.coords.assign(map.coords.begin() + axis, map.coords.begin() + axis + rank);
      source.coords.assign(map.coords.begin(), map.coords.begin() + axis);
      source.coords.push_back(IndexExpr::Axis(kLookupAxis));
      source.coords.insert(source.coords.end(), map.coords.begin() + axis + rank, map.coords.end());
    }
    const int index_instr = Evaluate(operands[1], space_.maps->Of(std::move(index)));
    if (refusal_) return 0;
    extents_[kLookupAxis] = extent;
    ValueId stored = operands[0];
    const size_t outer_guards = source.guards.size();
    while (g_.pattern(stored.node) == Pattern::kView) {
      source = ThroughView(g_, stored.node, source, extents_);
      stored = g_.operands(stored.node)[0];
    }
    if (IsInside(stored.node) || IsConstant(g_, stored.node)) {
      Refuse(BuildLimit::kGatherSource,
             absl::StrCat("%", Index(id), " (", Name(g_.op(id)), ") reads %", Index(stored.node),
                          " at indices that only the data knows: it must be "
                          "stored first"));
      return 0;
    }
    IndexExpr offset = Linearize(source.coords, StridesOf(stored));
    const int64_t stride = offset.axis_coef(kLookupAxis);
    IndexExpr rest = offset + IndexExpr::Axis(kLookupAxis) * -stride;
    if (rest.axes() >> kLookupAxis & 1 || source.guards.size() != outer_guards) {
      Refuse(BuildLimit::kGatherSource, absl::StrCat("%", Index(id), " (", Name(g_.op(id)),
                                                     ") looks up rows that a view has cut"));
      return 0;
    }
    return AddOnce({.kind = InstrKind::kLoad,
                    .dtype = g_.type(v).dtype,
                    .operands = {index_instr},
                    .buffer = BufferOf(stored),
                    .offset = rest,
                    .indirect = {{.instr = index_instr, .stride = stride, .extent = extent}},
                    .guards = source.guards,
                    .value = v});
  }

  // Gathers of sums are their own (fusion/lower/private/private_gathers.h): another op may load the
  // same elements.
  int AddOnce(Instr instr) {
    for (size_t i = 0; i < ir_.instrs.size(); ++i) {
      const Instr& known = ir_.instrs[i];
      if (known.kind == instr.kind && known.buffer == instr.buffer &&
          known.indirect == instr.indirect && known.offset == instr.offset &&
          known.guards == instr.guards) {
        return static_cast<int>(i);
      }
    }
    return Add(std::move(instr));
  }

  struct Known {
    const AccessMap* at;
    int instr;
  };

  const KernelRequest& r_;
  const BackwardGraph& g_;
  IterationSpace space_;
  std::vector<int64_t> extents_;  // the axes' and the lookup axis'
  using KnownPlaces = absl::InlinedVector<Known, 1>;
  std::vector<KnownPlaces> known_inside_;  // by op
  absl::node_hash_map<ValueId, KnownPlaces> known_outside_;
  KernelIr ir_;
  std::optional<BuildRefusal> refusal_;
  bool merged_ = false;  // some instructions may be left unused
};

// Whether the ops hold no scatter, or one.
bool ScattersOnce(const KernelRequest& request) {
  const auto scatters = [&](NodeId id) { return request.graph.pattern(id) == Pattern::kScatter; };
  return std::count_if(request.nodes.begin(), request.nodes.end(), scatters) <= 1;
}

// Whether the ops hold no scan, or one and nothing that folds.
bool ScansAlone(const KernelRequest& request) {
  int scans = 0, folds = 0;
  for (NodeId id : request.nodes) {
    const Pattern p = request.graph.pattern(id);
    scans += p == Pattern::kScan;
    folds += p == Pattern::kReduction || p == Pattern::kScatter;
  }
  return scans == 0 || (scans == 1 && folds == 0);
}

KernelOutcome Refused(BuildLimit limit, std::string reason) {
  return {.ir = {}, .refusal = BuildRefusal{limit, std::move(reason)}};
}

}  // namespace

ValueId BehindViews(const BackwardGraph& graph, ValueId value) {
  while (graph.pattern(value.node) == Pattern::kView) value = graph.operands(value.node)[0];
  return value;
}

bool IsConstant(const BackwardGraph& graph, NodeId id) {
  return graph.pattern(id) == Pattern::kPointwise && graph.operands(id).empty();
}

bool IsZero(const BackwardGraph& graph, ValueId value) {
  while (graph.pattern(value.node) == Pattern::kView && graph.op(value.node) != Op::pad) {
    value = graph.operands(value.node)[0];
  }
  return graph.op(value.node) == Op::full && graph.node(value.node).attrs.Float("value") == 0;
}

bool IsElementwise(const BackwardGraph& graph, NodeId id) {
  const Pattern p = graph.pattern(id);
  return p == Pattern::kPointwise || p == Pattern::kAccumulate;
}

bool Computes(const BackwardGraph& graph, NodeId id) {
  const Pattern p = graph.pattern(id);
  return p != Pattern::kInput && p != Pattern::kView && !IsConstant(graph, id);
}

KernelOutcome BuildKernel(const KernelRequest& request) {
  if (!ScattersOnce(request)) {
    return Refused(BuildLimit::kOneScatter, "a kernel goes through the positions of one scatter");
  }
  if (!ScansAlone(request)) {
    return Refused(BuildLimit::kOneScan,
                   "a kernel that scans does so once, beside no reduction and no scatter");
  }
  KernelMaps own(request.graph);
  IterationSpace space = FindIterationSpace(request, request.maps == nullptr ? own : *request.maps);
  if (space.refusal) return {.ir = {}, .refusal = std::move(space.refusal)};
  KernelOutcome outcome = Builder(request, std::move(space)).Run();
  if (outcome.ir) OrderInstructions(*outcome.ir);
  return outcome;
}

}  // namespace retrograd
