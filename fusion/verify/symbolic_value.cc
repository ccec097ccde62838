#include "fusion/verify/symbolic_value.h"

#include <algorithm>
#include <bit>

#include "graph/base/status.h"

namespace retrograd {
namespace {

// splitmix64's finaliser: fingerprints need to be distinct, not secret.
uint64_t Mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}
template <typename... Rest>
uint64_t Mix(uint64_t x, Rest... rest) {
  return Mix(x ^ Mix(static_cast<uint64_t>(rest)...));
}

enum Tag : uint64_t { kConstant = 1, kStored, kRound, kPointwise, kLookup, kFold, kScattered };

int64_t Flat(absl::Span<const int64_t> coords, absl::Span<const int64_t> shape) {
  int64_t flat = 0;
  for (size_t i = 0; i < shape.size(); ++i) flat = flat * shape[i] + coords[i];
  return flat;
}

Coords Unflat(int64_t flat, absl::Span<const int64_t> shape) {
  Coords coords(shape.size());
  for (size_t i = shape.size(); i-- > 0;) {
    coords[i] = flat % shape[i];
    flat /= shape[i];
  }
  return coords;
}

// The element of a numpy-broadcast operand under an element of the result.
Coords Broadcast(const Coords& coords, const Shape& operand) {
  Coords out(coords.end() - static_cast<int64_t>(operand.size()), coords.end());
  for (size_t i = 0; i < out.size(); ++i) {
    if (operand[i] == 1) out[i] = 0;
  }
  return out;
}

bool Inside(const Coords& coords, const Shape& shape) {
  for (size_t i = 0; i < shape.size(); ++i) {
    if (coords[i] < 0 || coords[i] >= shape[i]) return false;
  }
  return true;
}

// Whether this is surely 0, and not -0: kernels choose no pad's 0 in place of it.
bool MakesZero(Op op, absl::Span<const Meaning> of) {
  switch (op) {
    case Op::cast: return of[0].zero;
    case Op::sub: return of[0].zero && of[1].zero;
    case Op::div: return of[0].zero && of[1].positive;
    case Op::mul:
      return (of[0].zero && (of[1].zero || of[1].positive)) || (of[1].zero && of[0].positive);
    default: return false;
  }
}

}  // namespace

Meaning ConstantMeaning(double value, DType dtype) {
  return {Mix(kConstant, std::bit_cast<uint64_t>(value + 0.0), dtype), true, value == 0,
          IsFloat(dtype) && value >= 1e-4 && value <= 6e4};
}

Meaning StoredMeaning(size_t value_index, int64_t address) {
  return {Mix(kStored, value_index, address), true};
}

Meaning RoundedMeaning(const Meaning& x, DType dtype) {
  return x.exact ? x : Meaning{Mix(kRound, dtype, x.hash), true};
}

Meaning PointwiseMeaning(Op op, DType dtype, absl::Span<const Meaning> operands) {
  if (op == Op::copy) return operands[0];
  if (MakesZero(op, operands)) return ConstantMeaning(0, dtype);
  // Adding nothing is the same as not adding: accumulates leave out what a region does not cover.
  if (op == Op::add && operands[0].zero) return operands[1];
  if (op == Op::add && operands[1].zero) return operands[0];
  uint64_t hash = Mix(kPointwise, op, dtype);
  if (op == Op::add || op == Op::mul) {  // either way round
    return {Mix(hash, std::min(operands[0].hash, operands[1].hash),
                std::max(operands[0].hash, operands[1].hash))};
  }
  for (const Meaning& m : operands) hash = Mix(hash, m.hash);
  return {hash};
}

Meaning LookedUpMeaning(size_t value_index, int64_t base, const Meaning& index, int64_t stride,
                        int64_t extent) {
  return {Mix(kLookup, value_index, base, index.hash, extent > 1 ? stride : 0, extent), true};
}

Meaning ScatteredMeaning(const Meaning& index, const Meaning& src) {
  return {Mix(kScattered, index.hash, src.hash)};
}

void FoldSum::Add(const Meaning& x) { sum += Mix(x.hash); }

Meaning FoldMeaning(Op op, DType dtype, int64_t count, const FoldSum& elements) {
  return {Mix(kFold, op, dtype, count, elements.sum)};
}

void FoldPoints(absl::Span<const int64_t> extents, int64_t most, bool ends_move,
                const std::function<void(absl::Span<const int64_t>)>& fn) {
  const int64_t points = Elements(extents);
  if (points == 0) return;
  if (points <= most) {
    for (int64_t p = 0; p < points; ++p) fn(Unflat(p, extents));
  } else if (!ends_move) {
    fn(Unflat(0, extents));
    fn(Unflat(points - 1, extents));
  }
}

GraphMeaning::GraphMeaning(const BackwardGraph& graph, absl::Span<const Layout> layouts,
                           std::vector<bool> computed, int64_t most_folded)
    : g_(graph), layouts_(layouts), computed_(std::move(computed)), most_folded_(most_folded) {
  for (uint32_t i = 0; i < g_.num_nodes() && !has_flip_; ++i) {
    has_flip_ = g_.op(NodeId{i}) == Op::flip;
  }
}

int64_t GraphMeaning::AddressOf(ValueId stored, absl::Span<const int64_t> coords) const {
  const std::vector<int64_t>& strides = layouts_[g_.value_index(stored)].strides;
  int64_t address = 0;
  for (size_t i = 0; i < coords.size() && i < strides.size(); ++i)
    address += coords[i] * strides[i];
  return address;
}

// Walks through the views over `v`; false with the fill if the element lies in a pad.
bool GraphMeaning::Behind(ValueId& v, Coords& c, double& fill) const {
  while (g_.pattern(v.node) == Pattern::kView) {
    const Node& node = g_.node(v.node);
    const ValueId operand = g_.operands(v.node)[0];
    const Shape& in = g_.type(operand).shape;
    const Attrs& attrs = node.attrs;
    switch (node.op) {
      case Op::reshape: c = Unflat(Flat(c, node.results[0].shape), in); break;
      case Op::permute: {
        Coords moved(c.size());
        for (size_t i = 0; i < c.size(); ++i) moved[attrs.Ints("perm")[i]] = c[i];
        c = std::move(moved);
        break;
      }
      case Op::expand: c = Broadcast(c, in); break;
      case Op::slice: {
        int64_t& x = c[attrs.Int("axis")];
        x = attrs.Int("start") + x * attrs.Int("step", 1);
        break;
      }
      case Op::flip:
        for (int64_t axis : attrs.Ints("axes")) c[axis] = in[axis] - 1 - c[axis];
        break;
      default:
        RG_CHECK(node.op == Op::pad);
        for (size_t i = 0; i < c.size(); ++i) c[i] -= attrs.Ints("low")[i];
        if (!Inside(c, in)) {
          fill = attrs.Float("value");
          return false;
        }
    }
    v = operand;
  }
  return true;
}

bool GraphMeaning::Address(ValueId v, Coords coords, ValueId& stored, int64_t& address) const {
  double fill = 0;
  if (!Behind(v, coords, fill)) return false;
  stored = v;
  address = AddressOf(v, coords);
  return true;
}

Meaning GraphMeaning::At(ValueId v, Coords coords) {
  ++evaluations_;
  const DType dtype = g_.type(v).dtype;
  double fill = 0;
  if (!Behind(v, coords, fill)) return ConstantMeaning(fill, dtype);
  const Node& node = g_.node(v.node);
  if (node.op == Op::full) return ConstantMeaning(node.attrs.Float("value"), dtype);
  if (node.op == Op::iota) {
    const double at = static_cast<double>(coords[node.attrs.Int("axis")]);
    return ConstantMeaning(node.attrs.Float("start") + node.attrs.Float("step", 1) * at, dtype);
  }
  const size_t index = g_.value_index(v);
  if (!computed_[Index(v.node)]) return StoredMeaning(index, AddressOf(v, coords));
  const std::pair<size_t, int64_t> key{index, Flat(coords, g_.type(v).shape)};
  if (auto it = known_.find(key); it != known_.end()) return it->second;
  const Meaning m = Compute(v, coords);
  known_.emplace(key, m);
  return m;
}

Meaning GraphMeaning::Compute(ValueId v, const Coords& coords) {
  switch (g_.pattern(v.node)) {
    case Pattern::kPointwise: return Pointwise(v.node, coords);
    case Pattern::kReduction: return Reduction(v.node, coords);
    case Pattern::kScan: return Scan(v.node, coords);
    case Pattern::kJoin: return Join(v.node, coords);
    case Pattern::kAccumulate: return Accumulate(v.node, coords);
    case Pattern::kGather: return Gather(v.node, coords);
    default: return {Mix(kScattered, g_.value_index(v))};  // nothing that a kernel evaluates
  }
}

Meaning GraphMeaning::Pointwise(NodeId id, const Coords& coords) {
  const Op op = g_.op(id);
  std::vector<Meaning> operands;
  for (ValueId v : g_.operands(id)) {
    Meaning m = At(v, Broadcast(coords, g_.type(v).shape));
    // Comparisons take their operands as they would have been stored.
    const DType dtype = g_.type(v).dtype;
    if (Info(op).type_rule == TypeRule::kCompare && IsNarrowFloat(dtype)) {
      m = RoundedMeaning(m, dtype);
    }
    operands.push_back(m);
  }
  const DType dtype = g_.type(id).dtype;
  const Meaning m = PointwiseMeaning(op, dtype, operands);
  return op == Op::cast ? RoundedMeaning(m, dtype) : m;
}

Meaning GraphMeaning::Reduction(NodeId id, const Coords& coords) {
  const ValueId operand = g_.operands(id)[0];
  const Shape& shape = g_.type(operand).shape;
  const Attrs& attrs = g_.node(id).attrs;
  const bool keep = attrs.Int("keep") == 1;
  std::vector<int64_t> axes(attrs.Ints("axes").begin(), attrs.Ints("axes").end()), extents;
  for (int64_t a : axes) extents.push_back(shape[a]);
  Coords at(shape.size(), 0);
  size_t next = 0;
  for (size_t i = 0; i < shape.size(); ++i) {
    const bool folded = std::find(axes.begin(), axes.end(), static_cast<int64_t>(i)) != axes.end();
    if (!folded) at[i] = coords[next];
    if (!folded || keep) ++next;
  }
  FoldSum sum;
  FoldPoints(extents, most_folded_, has_flip_, [&](absl::Span<const int64_t> point) {
    for (size_t k = 0; k < axes.size(); ++k) at[axes[k]] = point[k];
    sum.Add(At(operand, at));
  });
  return FoldMeaning(g_.op(id), g_.type(id).dtype, Elements(extents), sum);
}

// The elements up to this one folded; along an axis of one place, the element.
Meaning GraphMeaning::Scan(NodeId id, const Coords& coords) {
  const ValueId operand = g_.operands(id)[0];
  const Attrs& attrs = g_.node(id).attrs;
  const int64_t axis = attrs.Int("axis"), extent = g_.type(operand).shape[axis];
  if (extent == 1) return At(operand, coords);
  const bool reverse = attrs.Int("reverse") == 1;
  const int64_t from = reverse ? coords[axis] : 0, to = reverse ? extent : coords[axis] + 1;
  const int64_t places[] = {to - from};
  FoldSum sum;
  FoldPoints(places, most_folded_, has_flip_, [&](absl::Span<const int64_t> point) {
    Coords at = coords;
    at[axis] = from + point[0];
    sum.Add(At(operand, std::move(at)));
  });
  return FoldMeaning(g_.op(id), g_.type(id).dtype, to - from, sum);
}

Meaning GraphMeaning::Join(NodeId id, const Coords& coords) {
  const Attrs& attrs = g_.node(id).attrs;
  const int64_t axis = attrs.Int("axis");
  const auto operands = g_.operands(id);
  Coords at = coords;
  if (g_.op(id) == Op::slice_scatter) {
    const int64_t past = coords[axis] - attrs.Int("start"), step = attrs.Int("step", 1);
    const int64_t row = past / step;
    if (past < 0 || past % step != 0 || row >= g_.type(operands[1]).shape[axis]) {
      return At(operands[0], coords);
    }
    at[axis] = row;
    return At(operands[1], at);
  }
  size_t part = 0;
  for (; at[axis] >= g_.type(operands[part]).shape[axis]; ++part) {
    at[axis] -= g_.type(operands[part]).shape[axis];
    RG_CHECK(part + 1 < operands.size());
  }
  return At(operands[part], at);
}

Meaning GraphMeaning::Accumulate(NodeId id, const Coords& coords) {
  const DType dtype = g_.type(id).dtype;
  const auto starts = g_.node(id).attrs.Ints("starts");
  Meaning sum = ConstantMeaning(0, dtype);
  size_t first = 0;
  for (ValueId v : g_.operands(id)) {
    Coords at = coords;
    for (size_t i = 0; i < at.size(); ++i) at[i] -= starts[first + i];
    first += at.size();
    if (!Inside(at, g_.type(v).shape)) continue;
    const Meaning terms[] = {sum, At(v, std::move(at))};
    sum = PointwiseMeaning(Op::add, dtype, terms);
  }
  return sum;
}

Meaning GraphMeaning::Gather(NodeId id, const Coords& coords) {
  const ValueId source = g_.operands(id)[0], index = g_.operands(id)[1];
  const int64_t axis = g_.node(id).attrs.Int("axis");
  const int64_t extent = g_.type(source).shape[axis];
  Coords at = coords, index_at = coords;
  if (g_.op(id) == Op::index_select) {
    const int64_t rank = g_.type(index).rank();
    index_at.assign(coords.begin() + axis, coords.begin() + axis + rank);
    at.assign(coords.begin(), coords.begin() + axis);
    at.push_back(0);
    at.insert(at.end(), coords.begin() + axis + rank, coords.end());
  }
  const Meaning looked_up = At(index, std::move(index_at));
  if (extent == 0) return ConstantMeaning(0, g_.type(id).dtype);
  ValueId stored;
  int64_t base = 0, next = 0, last = 0;
  at[axis] = 0;
  bool known = Address(source, at, stored, base);
  at[axis] = extent > 1 ? 1 : 0;
  known = known && Address(source, at, stored, next);
  at[axis] = extent - 1;
  known = known && Address(source, at, stored, last);
  // Rows that lie at no even distance cannot be looked up by one stride.
  if (!known || computed_[Index(stored.node)] || last - base != (next - base) * (extent - 1)) {
    return {Mix(kLookup, 0)};
  }
  return LookedUpMeaning(g_.value_index(stored), base, looked_up, next - base, extent);
}

Meaning GraphMeaning::ScatteredAt(NodeId scatter, const Coords& src) {
  const auto operands = g_.operands(scatter);
  const int64_t axis = g_.node(scatter).attrs.Int("axis");
  return ScatteredMeaning(At(operands[1], {src[axis]}), At(operands[2], src));
}

}  // namespace retrograd
