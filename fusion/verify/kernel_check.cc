#include "fusion/verify/kernel_check.h"

#include <algorithm>
#include <bit>
#include <set>

#include "absl/strings/str_cat.h"
#include "fusion/verify/symbolic_value.h"
#include "graph/base/status.h"

namespace retrograd {
namespace {

// Kernels of up to so many points are compared at all of them; folds of up to so many elements are
// folded whole. Larger ones are sampled.
constexpr int64_t kAllPoints = 4096;
constexpr int64_t kSamples = 24;
constexpr int64_t kWholeFold = 4096;
constexpr int64_t kWholeFoldOfLarge = 128;

template <typename... Args>
absl::Status Broken(const Args&... args) {
  return absl::FailedPreconditionError(absl::StrCat(args...));
}

std::string Named(ValueId v) { return absl::StrCat("%", Index(v.node), ".", v.result); }

// The positions of a mask's axes, in axis order.
std::vector<int64_t> ExtentsOf(const KernelIr& ir, AxisMask mask) {
  std::vector<int64_t> extents;
  for (size_t a = 0; a < ir.extents.size(); ++a) {
    if (mask >> a & 1) extents.push_back(ir.extents[a]);
  }
  return extents;
}

void Place(AxisMask mask, absl::Span<const int64_t> point, Coords& at) {
  size_t next = 0;
  for (size_t a = 0; a < at.size(); ++a) {
    if (mask >> a & 1) at[a] = point[next++];
  }
}

// The kernel's side: what an instruction yields at a point of the axes.
class KernelMeaning {
 public:
  KernelMeaning(const BackwardGraph& g, const KernelIr& ir, int64_t most_folded, bool ends_move)
      : g_(g), ir_(ir), most_folded_(most_folded), ends_move_(ends_move) {}

  Meaning At(int i, const Coords& at) {
    const Instr& instr = ir_.instrs[i];
    int64_t position = 0;
    for (size_t a = 0; a < at.size(); ++a) {
      if (instr.axes >> a & 1) position = position * ir_.extents[a] + at[a];
    }
    const std::pair<int, int64_t> key{i, position};
    if (auto it = known_.find(key); it != known_.end()) return it->second;
    Meaning m = Compute(instr, at);
    if (instr.round) m = RoundedMeaning(m, instr.dtype);
    known_.emplace(key, m);
    return m;
  }

  Meaning Scattered(const Scatter& s, const Coords& at) {
    int64_t row = 0;
    for (size_t a = 0; a < at.size(); ++a) {
      if (s.row_axes >> a & 1) row = row * ir_.extents[a] + at[a];
    }
    return ScatteredMeaning(StoredMeaning(g_.value_index(ir_.buffers[s.sorted].value), row),
                            At(s.src_instr, at));
  }

  const std::string& trouble() const { return trouble_; }

 private:
  static bool Holds(const Instr& instr, const Coords& at) {
    return std::all_of(instr.guards.begin(), instr.guards.end(), [&](const Guard& g) {
      const int64_t v = g.expr.Evaluate(at);
      return g.begin <= v && v < g.end;
    });
  }

  Meaning Compute(const Instr& instr, const Coords& at) {
    switch (instr.kind) {
      case InstrKind::kLoad: return Load(instr, at);
      case InstrKind::kConstant: return ConstantMeaning(instr.constant, instr.dtype);
      case InstrKind::kIndex: {
        const auto number = static_cast<double>(instr.offset.Evaluate(at));
        return ConstantMeaning(instr.start + instr.step * number, instr.dtype);
      }
      case InstrKind::kSelect: return At(instr.operands[Holds(instr, at) ? 0 : 1], at);
      case InstrKind::kReduce: return Reduce(instr, at);
      case InstrKind::kScan: return Scan(instr, at);
      case InstrKind::kFold: return Fold(instr, at);
      case InstrKind::kPointwise: break;
    }
    std::vector<Meaning> operands;
    for (int o : instr.operands) operands.push_back(At(o, at));
    return PointwiseMeaning(instr.op, instr.dtype, operands);
  }

  Meaning Load(const Instr& instr, const Coords& at) {
    if (!Holds(instr, at)) return ConstantMeaning(instr.fill, instr.dtype);
    const Buffer& buffer = ir_.buffers[instr.buffer];
    const int64_t offset = instr.offset.Evaluate(at);
    const size_t value = g_.value_index(buffer.value);
    if (buffer.dtype != instr.dtype) trouble_ = "loads another dtype than its buffer's";
    if (instr.indirect.size() > 1) trouble_ = "looks up by two indices";
    if (instr.indirect.empty()) {
      if (offset < 0 || offset >= buffer.elements) trouble_ = "loads outside its buffer";
      return StoredMeaning(value, offset);
    }
    const Indirect& look_up = instr.indirect[0];
    if (look_up.extent == 0) return ConstantMeaning(instr.fill, instr.dtype);
    const int64_t last = offset + (look_up.extent - 1) * look_up.stride;
    if (std::min(offset, last) < 0 || std::max(offset, last) >= buffer.elements) {
      trouble_ = "looks up outside its buffer";
    }
    if (instr.fill != 0) trouble_ = "fills what an index misses with other than 0";
    return LookedUpMeaning(value, offset, At(look_up.instr, at), look_up.stride, look_up.extent);
  }

  Meaning Reduce(const Instr& instr, const Coords& at) {
    const std::vector<int64_t> extents = ExtentsOf(ir_, instr.reduced);
    Coords inner = at;
    FoldSum sum;
    FoldPoints(extents, most_folded_, ends_move_, [&](absl::Span<const int64_t> point) {
      Place(instr.reduced, point, inner);
      sum.Add(At(instr.operands[0], inner));
    });
    return FoldMeaning(instr.op, instr.dtype, Elements(extents), sum);
  }

  Meaning Fold(const Instr& instr, const Coords& at) {
    FoldSum sum;
    for (int operand : instr.operands) sum.Add(At(operand, at));
    return FoldMeaning(instr.op, instr.dtype, static_cast<int64_t>(instr.operands.size()), sum);
  }

  Meaning Scan(const Instr& instr, const Coords& at) {
    const int axis = std::countr_zero(instr.reduced);
    const int64_t first = instr.reverse ? at[axis] : 0;
    const int64_t places[] = {instr.reverse ? ir_.extents[axis] - first : at[axis] + 1};
    Coords inner = at;
    FoldSum sum;
    FoldPoints(places, most_folded_, ends_move_, [&](absl::Span<const int64_t> point) {
      inner[axis] = first + point[0];
      sum.Add(At(instr.operands[0], inner));
    });
    return FoldMeaning(instr.op, instr.dtype, places[0], sum);
  }

  const BackwardGraph& g_;
  const KernelIr& ir_;
  int64_t most_folded_;
  bool ends_move_;
  std::string trouble_;
  absl::flat_hash_map<std::pair<int, int64_t>, Meaning> known_;
};

// Coordinates of the element at an address, by the strides from the largest down; false where the
// address is none of the tensor's.
bool ElementAt(int64_t address, const Shape& shape, const std::vector<int64_t>& strides,
               Coords& coords) {
  std::vector<size_t> order(shape.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return strides[a] > strides[b]; });
  coords.assign(shape.size(), 0);
  for (size_t i : order) {
    if (shape[i] <= 1 || strides[i] <= 0) continue;
    coords[i] = std::min(address / strides[i], shape[i] - 1);
    address -= coords[i] * strides[i];
  }
  return address == 0;
}

class KernelChecker {
 public:
  KernelChecker(const BackwardGraph& g, const FusionPlan& plan, const Group& group,
                const KernelIr& ir)
      : g_(g),
        plan_(plan),
        group_(group),
        ir_(ir),
        large_(ir.Points(ir.all_axes()) > 16 * kAllPoints),
        wanted_(g, plan.layouts, Computed(), large_ ? kWholeFoldOfLarge : kWholeFold),
        made_(g, ir, large_ ? kWholeFoldOfLarge : kWholeFold, wanted_.has_flip()) {}

  absl::Status Run() {
    RG_RETURN_IF_ERROR(CheckBuffers());
    RG_RETURN_IF_ERROR(CheckReferences());
    if (absl::Status s = ir_.Verify(); !s.ok()) return Broken(s.message());
    for (const Store& s : ir_.stores) RG_RETURN_IF_ERROR(CheckStore(s));
    RG_RETURN_IF_ERROR(CheckStoredPoints());
    return ir_.scatter ? CheckScatter(*ir_.scatter) : absl::OkStatus();
  }

 private:
  std::vector<bool> Computed() const {
    std::vector<bool> computed(g_.num_nodes(), false);
    for (NodeId id : group_.nodes) computed[Index(id)] = true;
    for (NodeId id : group_.recomputed) computed[Index(id)] = true;
    return computed;
  }

  // P5: buffers are the group's inputs and outputs, as the graph and the layouts describe them.
  absl::Status CheckBuffers() const {
    std::vector<ValueId> read, written;
    for (const Buffer& b : ir_.buffers) {
      if (Index(b.value.node) >= g_.num_nodes() ||
          b.value.result >= g_.node(b.value.node).results.size()) {
        return Broken("P5: its kernel names ", Named(b.value), ", which does not exist");
      }
      (b.written ? written : read).push_back(b.value);
      RG_RETURN_IF_ERROR(CheckBuffer(b));
    }
    std::sort(read.begin(), read.end());
    std::sort(written.begin(), written.end());
    if (read != group_.inputs) return Broken("P5: its kernel reads other values than it lists");
    if (written != group_.outputs)
      return Broken("P5: its kernel writes other values than it lists");
    return absl::OkStatus();
  }

  absl::Status CheckBuffer(const Buffer& b) const {
    const TensorType& type = g_.type(b.value);
    const std::vector<int64_t>& strides = plan_.layouts[g_.value_index(b.value)].strides;
    if (strides.size() != type.shape.size()) {
      return Broken("P5: ", Named(b.value), " has no layout of its rank");
    }
    const int64_t span = SpanElements(type.shape, strides);
    if (b.dtype != type.dtype || b.elements != span) {
      return Broken("P5: its kernel takes ", Named(b.value), " for ", Name(b.dtype), "[",
                    b.elements, "], it is ", Name(type.dtype), "[", span, "]");
    }
    // Memory of our own is aligned to 16 bytes; a host promises what it promises.
    constexpr int64_t kOwn = 16;
    const Node& node = g_.node(b.value.node);
    const int64_t known =
        node.op == Op::input ? std::max(node.input->alignment, SizeBytes(type.dtype)) : kOwn;
    if (b.alignment < 1 || known % b.alignment != 0) {
      return Broken("P5: its kernel takes ", Named(b.value), " as aligned to ", b.alignment,
                    " bytes, known are ", known);
    }
    return absl::OkStatus();
  }

  // Numbers of instructions, buffers and axes that evaluation may follow.
  absl::Status CheckReferences() const {
    const auto bad_instr = [&](int i, int before) { return i < 0 || i >= before; };
    const auto bad_buffer = [&](int b) {
      return b < 0 || b >= static_cast<int>(ir_.buffers.size());
    };
    const int n = static_cast<int>(ir_.instrs.size());
    for (int i = 0; i < n; ++i) {
      const Instr& instr = ir_.instrs[i];
      bool bad = instr.kind == InstrKind::kLoad && bad_buffer(instr.buffer);
      for (int o : instr.operands) bad = bad || bad_instr(o, i);
      for (const Indirect& ind : instr.indirect) bad = bad || bad_instr(ind.instr, i);
      if (instr.kind == InstrKind::kPointwise) {
        const OpInfo& info = Info(instr.op);
        bad = bad || info.pattern != Pattern::kPointwise || instr.operands.empty() ||
              static_cast<int>(instr.operands.size()) != info.max_operands;
      }
      bad = bad || (instr.kind == InstrKind::kSelect && instr.operands.size() != 2);
      const bool folds = instr.kind == InstrKind::kReduce || instr.kind == InstrKind::kScan;
      bad = bad || (folds && instr.operands.size() != 1);
      bad = bad || (instr.kind == InstrKind::kFold && instr.operands.empty());
      if (bad) return Broken("P6: instruction v", i, " of its kernel is malformed");
      if (!KeepsDType(instr))
        return Broken("P6: v", i, " of its kernel changes the dtype of what it passes on");
    }
    for (const Store& s : ir_.stores) {
      if (bad_instr(s.instr, n) || bad_buffer(s.buffer)) {
        return Broken("P6: a store of its kernel names what does not exist");
      }
    }
    if (ir_.scatter && (bad_instr(ir_.scatter->src_instr, n) || bad_buffer(ir_.scatter->sorted) ||
                        bad_buffer(ir_.scatter->buffer) ||
                        (ir_.scatter->base != -1 && bad_buffer(ir_.scatter->base)))) {
      return Broken("P6: the scatter of its kernel names what does not exist");
    }
    return absl::OkStatus();
  }

  // What only passes a value on has its dtype.
  bool KeepsDType(const Instr& instr) const {
    if (instr.kind == InstrKind::kLoad) return instr.dtype == ir_.buffers[instr.buffer].dtype;
    const bool passes = instr.kind == InstrKind::kSelect || instr.kind == InstrKind::kReduce ||
                        instr.kind == InstrKind::kScan || instr.kind == InstrKind::kFold ||
                        (instr.kind == InstrKind::kPointwise && instr.op == Op::copy);
    return !passes || std::all_of(instr.operands.begin(), instr.operands.end(),
                                  [&](int o) { return ir_.instrs[o].dtype == instr.dtype; });
  }

  // The points of the axes in `mask` that are looked at: all, or the ends and a fixed sample.
  template <typename Fn>
  absl::Status ForPoints(AxisMask mask, Fn fn) {
    const std::vector<int64_t> extents = ExtentsOf(ir_, mask);
    const int64_t points = Elements(extents);
    Coords at(ir_.extents.size(), 0), point(extents.size());
    const bool all = points <= kAllPoints;
    uint64_t random = 88172645463325252u;
    for (int64_t p = 0; p < (all ? points : kSamples); ++p) {
      int64_t rest = p;
      for (size_t i = extents.size(); i-- > 0;) {
        random ^= random << 13, random ^= random >> 7, random ^= random << 17;
        const auto drawn = static_cast<int64_t>(random >> 8);
        const int64_t last = extents[i] - 1;
        if (all) {
          point[i] = rest % extents[i];
          rest /= extents[i];
        } else if (p < 2) {
          point[i] = p == 0 ? 0 : last;
        } else {
          point[i] = drawn % 4 == 0 ? (drawn % 8 < 4 ? 0 : last) : (drawn >> 3) % extents[i];
        }
      }
      Place(mask, point, at);
      RG_RETURN_IF_ERROR(fn(at));
      if (!made_.trouble().empty()) return Broken("P6: its kernel ", made_.trouble());
    }
    return absl::OkStatus();
  }

  // Elements are written once each by K4, so that as many points as elements are all of them.
  absl::Status CheckStoredPoints() const {
    std::vector<int64_t> points(ir_.buffers.size(), 0);
    std::vector<int> stores(ir_.buffers.size(), 0);
    for (const Store& s : ir_.stores) {
      ++stores[s.buffer];
      points[s.buffer] += ir_.Points(ir_.instrs[s.instr].axes);
    }
    for (size_t b = 0; b < stores.size(); ++b) {
      const Buffer& buffer = ir_.buffers[b];
      const bool scattered = ir_.scatter && ir_.scatter->buffer == static_cast<int>(b);
      const bool wanted = buffer.written && !scattered;
      if ((stores[b] > 0) != wanted) {
        return Broken("P6: its kernel stores ", Named(buffer.value), " ", stores[b],
                      wanted ? " times" : " times too often");
      }
      const int64_t elements = Elements(g_.type(buffer.value).shape);
      if (wanted && points[b] != elements) {
        return Broken("P6: its kernel stores ", points[b], " of the ", elements, " elements of ",
                      Named(buffer.value));
      }
    }
    return absl::OkStatus();
  }

  absl::Status CheckStore(const Store& store) {
    const ValueId v = ir_.buffers[store.buffer].value;
    const Shape& shape = g_.type(v).shape;
    const std::vector<int64_t>& strides = plan_.layouts[g_.value_index(v)].strides;
    const Instr& instr = ir_.instrs[store.instr];
    if (store.mode != StoreMode::kStore) {
      return Broken("P6: its kernel adds to ", Named(v), ", which nothing has stored");
    }
    if (instr.dtype != g_.type(v).dtype) {
      return Broken("P6: its kernel stores ", Name(instr.dtype), " as ", Named(v));
    }
    return ForPoints(instr.axes, [&](const Coords& at) -> absl::Status {
      Coords element;
      const int64_t address = store.offset.Evaluate(at);
      if (!ElementAt(address, shape, strides, element)) {
        return Broken("P6: its kernel stores at element ", address, " of ", Named(v),
                      ", which is none");
      }
      if (made_.At(store.instr, at) == wanted_.At(v, element)) return absl::OkStatus();
      return Broken("P6: its kernel stores another value than the graph's at element ", address,
                    " of ", Named(v));
    });
  }

  // Whether the list is that of the indices, in the order in which they stand.
  bool IsSorted(ValueId indices, ValueId list) const {
    if (g_.op(list.node) != Op::sort_indices) return false;
    ValueId v = g_.operands(list.node)[0];
    while (v != indices && g_.op(v.node) == Op::reshape) v = g_.operands(v.node)[0];
    return v == indices;
  }

  absl::Status CheckScatter(const Scatter& s) {
    const ValueId v = ir_.buffers[s.buffer].value;
    const NodeId id = v.node;
    if (g_.pattern(id) != Pattern::kScatter) {
      return Broken("P6: its kernel scatters into ", Named(v));
    }
    const Shape& table = g_.type(v).shape;
    const int64_t axis = g_.node(id).attrs.Int("axis");
    const Shape& source = g_.type(g_.operands(id)[2]).shape;
    if (ir_.buffers[s.sorted].value != g_.operands(id)[1]) {
      return Broken("P6: its kernel scatters into ", Named(v), " by other sorted indices");
    }
    if (s.in_order != (g_.node(id).attrs.Int("in_order") == 1)) {
      return Broken("P6: its kernel scatters into ", Named(v), " in another order of its source");
    }
    for (const Buffer& buffer : ir_.buffers) {
      if (buffer.sorted_by_list && (s.in_order || !IsSorted(buffer.value, g_.operands(id)[1]))) {
        return Broken("P6: its kernel takes ", Named(buffer.value),
                      " for the indices of its scatter's list");
      }
    }
    RG_RETURN_IF_ERROR(CheckBase(s, id));
    AxisMask outer = 0, inner = 0;
    for (size_t a = 0; a < ir_.extents.size(); ++a) {
      const AxisMask bit = AxisMask{1} << a;
      if ((s.row_axes & bit) == 0) ((s.row_axes & (bit - 1)) == 0 ? outer : inner) |= bit;
    }
    const absl::Span<const int64_t> src(source);
    const auto outer_dims = src.subspan(0, axis);
    const auto inner_dims = src.subspan(axis + 1);
    if (s.table_rows != table[axis] || ir_.Points(outer) != Elements(outer_dims) ||
        ir_.Points(inner) != Elements(inner_dims) || ir_.Points(s.row_axes) != source[axis] ||
        plan_.layouts[g_.value_index(v)].strides != DenseStrides(table)) {
      return Broken("P6: its kernel scatters another shape than that of ", Named(v));
    }
    const int64_t most = large_ ? kWholeFoldOfLarge : kWholeFold;
    return ForPoints(outer | inner, [&](const Coords& point) -> absl::Status {
      Coords at = point, element(source.size());
      Spread(Position(outer, at), outer_dims, 0, element);
      Spread(Position(inner, at), inner_dims, axis + 1, element);
      FoldSum made, wanted;
      FoldPoints(ExtentsOf(ir_, s.row_axes), most, wanted_.has_flip(),
                 [&](absl::Span<const int64_t> row) {
                   Place(s.row_axes, row, at);
                   made.Add(made_.Scattered(s, at));
                 });
      FoldPoints({source[axis]}, most, wanted_.has_flip(), [&](absl::Span<const int64_t> row) {
        element[axis] = row[0];
        wanted.Add(wanted_.ScatteredAt(id, element));
      });
      if (made.sum == wanted.sum) return absl::OkStatus();
      return Broken("P6: its kernel adds other rows into ", Named(v), " than the graph does");
    });
  }

  // What the sums are added onto: zeros, or a stored value that lies as the table does.
  absl::Status CheckBase(const Scatter& s, NodeId id) const {
    const ValueId base = g_.operands(id)[0];
    ValueId behind = base;
    while (g_.pattern(behind.node) == Pattern::kView && g_.op(behind.node) != Op::pad) {
      behind = g_.operands(behind.node)[0];
    }
    const bool zero =
        g_.op(behind.node) == Op::full && g_.node(behind.node).attrs.Float("value") == 0;
    if (zero != (s.base < 0)) {
      return Broken("P6: its kernel scatters onto ", zero ? "what is no zeros" : "zeros");
    }
    const Shape& shape = g_.type(base).shape;
    const int64_t last = Elements(shape) - 1;
    if (zero || last < 0) return absl::OkStatus();
    for (const int64_t element : {int64_t{0}, last / 3, last / 2, last - last / 5, last}) {
      Coords at(shape.size());
      Spread(element, shape, 0, at);
      ValueId stored;
      int64_t address = 0;
      if (!wanted_.Address(base, at, stored, address) || stored != ir_.buffers[s.base].value ||
          address != element) {
        return Broken("P6: its kernel scatters onto another value than ", Named(base));
      }
    }
    return absl::OkStatus();
  }

  int64_t Position(AxisMask mask, const Coords& at) const {
    int64_t position = 0;
    for (size_t a = 0; a < at.size(); ++a) {
      if (mask >> a & 1) position = position * ir_.extents[a] + at[a];
    }
    return position;
  }

  static void Spread(int64_t position, absl::Span<const int64_t> dims, int64_t from,
                     Coords& element) {
    for (size_t i = dims.size(); i-- > 0;) {
      element[from + static_cast<int64_t>(i)] = position % dims[i];
      position /= dims[i];
    }
  }

  const BackwardGraph& g_;
  const FusionPlan& plan_;
  const Group& group_;
  const KernelIr& ir_;
  const bool large_;
  GraphMeaning wanted_;
  KernelMeaning made_;
};

}  // namespace

absl::Status CheckKernel(const BackwardGraph& graph, const FusionPlan& plan, const Group& group,
                         const KernelBody& body) {
  return KernelChecker(graph, plan, group, body.ir).Run();
}

}  // namespace retrograd
