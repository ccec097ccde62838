#include "fusion/lower/pad_operands.h"

#include <algorithm>
#include <array>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "fusion/kernel/build/build.h"
#include "fusion/kernel/ir/scale.h"
#include "fusion/ops/matmul/matmul_cost.h"
#include "graph/passes/rewriter.h"

namespace retrograd {
namespace {

bool IsMatrix(const BackwardGraph& g, ValueId v) { return g.type(v).rank() == 2; }

bool IsMatMul(const BackwardGraph& g, NodeId id) {
  return g.op(id) == Op::matmul && IsMatrix(g, {id, 0}) && IsMatrix(g, g.operands(id)[0]) &&
         IsMatrix(g, g.operands(id)[1]);
}

bool IsTranspose(const BackwardGraph& g, ValueId v) {
  return g.op(v.node) == Op::permute && IsMatrix(g, v) && g.node(v.node).attrs.Ints("perm")[0] == 1;
}

// Whether a matmul reads the value, as it is or transposed.
bool MatMulReads(const BackwardGraph& g, ValueId v) {
  const absl::Span<const Use> uses = g.uses(v.node);
  return std::any_of(uses.begin(), uses.end(), [&](const Use& use) {
    return IsMatMul(g, use.user) ||
           (IsTranspose(g, {use.user, 0}) && MatMulReads(g, {use.user, 0}));
  });
}

int64_t RoundedUp(int64_t n, int64_t unit) { return CeilDiv(n, unit) * unit; }

// Zeros behind the rows and columns of a value.
struct Pad {
  ValueId of;
  std::array<int64_t, 2> high = {0, 0};
  bool any() const { return high[0] > 0 || high[1] > 0; }
  friend bool operator==(const Pad&, const Pad&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const Pad& p) {
    return H::combine(std::move(h), p.of, p.high[0], p.high[1]);
  }
};

// The pad that the node is; nullopt of any other node.
std::optional<Pad> PadOf(const BackwardGraph& g, NodeId id) {
  if (g.op(id) != Op::pad || !IsMatrix(g, {id, 0})) return std::nullopt;
  const Attrs& attrs = g.node(id).attrs;
  const auto low = attrs.Ints("low"), high = attrs.Ints("high");
  if (attrs.Float("value") != 0 || low[0] != 0 || low[1] != 0) return std::nullopt;
  return Pad{g.operands(id)[0], {high[0], high[1]}};
}

// Lengths of a product.
struct Lengths {
  int64_t m = 0, n = 0, k = 0;
};

// An operand as it lies under its transpose.
struct Stored {
  ValueId value;
  bool transposed = false;
};

// One way to make a product.
struct Way {
  Lengths lengths;
  Pad a, b;
  int64_t ps = 0;
};

class Padding {
 public:
  Padding(const BackwardGraph& g, const DeviceSpec& device)
      : g_(g), device_(device), rewriter_(g), ways_(g.num_nodes()) {
    for (uint32_t i = 0; i < g.num_nodes(); ++i) {
      if (const auto pad = PadOf(g, NodeId{i})) pads_.insert(*pad);
    }
  }

  absl::StatusOr<BackwardGraph> Run() {
    // A pad that one matmul is given may decide for another: again, until none is.
    bool any = false;
    for (bool changed = true; changed; any = any || changed) {
      changed = false;
      for (uint32_t i = 0; i < g_.num_nodes(); ++i) {
        changed = Decide(NodeId{i}) || changed;
      }
    }
    if (!any) return g_;
    for (uint32_t i = 0; i < g_.num_nodes(); ++i) {
      if (ways_[i]) {
        MatMul(NodeId{i}, *ways_[i]);
      } else {
        rewriter_.Copy(NodeId{i});
      }
    }
    return rewriter_.Finish();
  }

 private:
  // Extents, dtypes and strides of a product.
  using Product =
      std::tuple<int64_t, int64_t, int64_t, DType, DType, int64_t, int64_t, int64_t, int64_t>;

  Stored Under(ValueId operand) const {
    if (!IsTranspose(g_, operand)) return {operand, false};
    return {g_.operands(operand.node)[0], true};
  }

  int64_t Unit(DType dtype) const {
    return std::max<int64_t>(device_.matmul_alignment_bytes / SizeBytes(dtype), 1);
  }

  // The operand as the library will see it. What is padded is stored anew; kernels store what they
  // make with aligned rows (fusion/lower/layouts/layouts.cc).
  MatrixOperand Matrix(const Stored& stored, const Pad& pad) const {
    const TensorType& type = g_.type(stored.value);
    const ValueId made = BehindViews(g_, stored.value);
    int64_t row_stride = type.shape[1] + pad.high[1], col_stride = 1;
    const InputInfo* input = g_.node(made.node).input.get();
    if (!pad.any() && input != nullptr && made == stored.value && !input->strides.empty()) {
      row_stride = input->strides[0];
      col_stride = input->strides[1];
    } else if (!pad.any() && input == nullptr && g_.pattern(made.node) != Pattern::kLibrary) {
      row_stride = RoundedUp(row_stride, Unit(type.dtype));
    }
    MatrixOperand matrix{.value = made, .row_stride = row_stride, .col_stride = col_stride};
    if (stored.transposed) std::swap(matrix.row_stride, matrix.col_stride);
    return matrix;
  }

  int64_t PadPs(const Pad& pad) const {
    if (!pad.any() || pads_.contains(pad)) return 0;
    return CopyPs(g_.type(pad.of).size_bytes(), device_);
  }

  // Layers have equal products. Of operands the strides alone decide.
  int64_t ProductPs(const MatMulCall& c) {
    const Product key = {c.m,
                         c.n,
                         c.k,
                         c.in_dtype,
                         c.out_dtype,
                         c.a.row_stride,
                         c.a.col_stride,
                         c.b.row_stride,
                         c.b.col_stride};
    const auto [at, added] = product_ps_.try_emplace(key, 0);
    if (added) at->second = PriceMatMul(c, device_).ps;
    return at->second;
  }

  Way Priced(NodeId id, const Lengths& is, const Lengths& lengths) {
    const Stored a = Under(g_.operands(id)[0]), b = Under(g_.operands(id)[1]);
    const auto pad = [](const Stored& stored, int64_t rows, int64_t columns) {
      return stored.transposed ? Pad{stored.value, {columns, rows}}
                               : Pad{stored.value, {rows, columns}};
    };
    Way way{.lengths = lengths,
            .a = pad(a, lengths.m - is.m, lengths.k - is.k),
            .b = pad(b, lengths.k - is.k, lengths.n - is.n)};
    const MatMulCall call{.m = lengths.m,
                          .n = lengths.n,
                          .k = lengths.k,
                          .in_dtype = g_.type(a.value).dtype,
                          .out_dtype = g_.type(id).dtype,
                          .a = Matrix(a, way.a),
                          .b = Matrix(b, way.b),
                          .d = {.row_stride = lengths.n, .col_stride = 1}};
    way.ps = ProductPs(call) + PadPs(way.a) + PadPs(way.b);
    if (lengths.m > is.m || lengths.n > is.n) way.ps += CopyPs(g_.type(id).size_bytes(), device_);
    return way;
  }

  // Whether the matmul gets a way that it did not have.
  bool Decide(NodeId id) {
    if (ways_[Index(id)] || !IsMatMul(g_, id)) return false;
    const TensorType& left = g_.type(g_.operands(id)[0]);
    if (SizeBytes(left.dtype) != 2 || g_.type(id).elements() == 0) return false;
    const int64_t unit = Unit(left.dtype);
    const Lengths is = {g_.type(id).shape[0], g_.type(id).shape[1], left.shape[1]};
    const std::array<int64_t, 3> lengths = {is.m, is.n, is.k};
    int odd = 0;  // bit i: lengths[i] is none of the unit's multiples
    for (int bit = 0; bit < 3; ++bit) odd |= (lengths[bit] % unit != 0 ? 1 : 0) << bit;
    if (odd == 0) return false;
    const Way plain = Priced(id, is, is);
    std::optional<Way> best;
    for (int which = 1; which < 8; ++which) {
      if ((which & ~odd) != 0) continue;  // another one is the same
      const auto length = [&](int bit, int64_t n) {
        return (which >> bit & 1) != 0 ? RoundedUp(n, unit) : n;
      };
      const Lengths padded = {length(0, is.m), length(1, is.n), length(2, is.k)};
      const Way way = Priced(id, is, padded);
      if (!way.a.any() && !way.b.any()) continue;
      if (!best || way.ps < best->ps) best = way;
    }
    if (!best || best->ps + Margin(plain.ps) > plain.ps) return false;
    for (const Pad& pad : {best->a, best->b}) {
      if (pad.any()) pads_.insert(pad);
    }
    ways_[Index(id)] = best;
    return true;
  }

  int64_t Margin(int64_t ps) const {
    return std::max(device_.margin_ps, Share(ps, device_.margin_ppm));
  }

  ValueId Padded(ValueId operand, const Pad& pad) {
    if (!pad.any()) return rewriter_.New(operand);
    GraphBuilder& b = rewriter_.builder();
    // Equal pads are one after the next simplification.
    const ValueId padded = b.Add(Op::pad, {rewriter_.New(pad.of)},
                                 {{"high", std::vector<int64_t>{pad.high[0], pad.high[1]}},
                                  {"low", std::vector<int64_t>{0, 0}},
                                  {"value", 0.0}});
    return pad.of == operand ? padded : b.Permute(padded, {1, 0});
  }

  void MatMul(NodeId id, const Way& way) {
    rewriter_.UseOrigin(id);
    const ValueId left = Padded(g_.operands(id)[0], way.a);
    const ValueId right = Padded(g_.operands(id)[1], way.b);
    GraphBuilder& b = rewriter_.builder();
    ValueId product = b.Add(Op::matmul, {left, right}, g_.node(id).attrs);
    for (const int64_t axis : {0, 1}) {
      const int64_t length = g_.type(id).shape[axis];
      if ((axis == 0 ? way.lengths.m : way.lengths.n) == length) continue;
      product = b.Slice(product, axis, 0, length);
    }
    rewriter_.Set({id, 0}, product);
  }

  const BackwardGraph& g_;
  const DeviceSpec& device_;
  Rewriter rewriter_;
  absl::flat_hash_set<Pad> pads_;  // that the graph has or will have
  absl::flat_hash_map<Product, int64_t> product_ps_;
  std::vector<std::optional<Way>> ways_;  // by node; of matmuls that are padded
};

}  // namespace

int64_t AxisPaddedForMatMul(const BackwardGraph& g, NodeId id, int64_t alignment_bytes) {
  const std::optional<Pad> pad = PadOf(g, id);
  if (!pad || (pad->high[0] > 0) == (pad->high[1] > 0)) return -1;
  const int64_t axis = pad->high[0] > 0 ? 0 : 1;
  const auto aligned = [&](const TensorType& type) {
    return type.shape[axis] * SizeBytes(type.dtype) % alignment_bytes == 0;
  };
  const bool aligns = !aligned(g.type(pad->of)) && aligned(g.type(id));
  return aligns && MatMulReads(g, {id, 0}) ? axis : -1;
}

absl::StatusOr<BackwardGraph> PadOperands(const BackwardGraph& graph, const DeviceSpec& device) {
  return Padding(graph, device).Run();
}

}  // namespace retrograd
