#include "fusion/lower/shared_pads.h"

#include <algorithm>
#include <optional>

#include "absl/container/flat_hash_map.h"
#include "graph/passes/rewriter.h"

namespace retrograd {
namespace {

constexpr int64_t kAlignment = 16;  // bytes: what matmul libraries want of rows and columns

bool IsMatrix(const BackwardGraph& g, ValueId v) { return g.type(v).rank() == 2; }

bool IsMatMul(const BackwardGraph& g, NodeId id) {
  return g.op(id) == Op::matmul && IsMatrix(g, {id, 0}) && IsMatrix(g, g.operands(id)[0]) &&
         IsMatrix(g, g.operands(id)[1]);
}

bool Aligned(const TensorType& type, int64_t axis) {
  return type.shape[axis] * SizeBytes(type.dtype) % kAlignment == 0;
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

class Sharing {
 public:
  explicit Sharing(const BackwardGraph& g) : g_(g), rewriter_(g) {
    for (uint32_t i = 0; i < g.num_nodes(); ++i) {
      const NodeId id{i};
      const int64_t axis = AxisPaddedForMatMul(g, id);
      if (axis >= 0) pads_.try_emplace({g.operands(id)[0], axis}, id);
    }
  }

  absl::StatusOr<BackwardGraph> Run() {
    if (pads_.empty()) return g_;
    for (uint32_t i = 0; i < g_.num_nodes(); ++i) {
      if (IsMatMul(g_, NodeId{i})) {
        MatMul(NodeId{i});
      } else {
        rewriter_.Copy(NodeId{i});
      }
    }
    return rewriter_.Finish();
  }

 private:
  // The operand, one of whose axes is `free` of the sum, with that axis padded as elsewhere.
  std::optional<ValueId> Padded(ValueId operand, int64_t free) {
    const bool transposed = IsTranspose(g_, operand);
    const ValueId under = transposed ? g_.operands(operand.node)[0] : operand;
    const auto at = pads_.find({under, transposed ? 1 - free : free});
    if (at == pads_.end()) return std::nullopt;
    GraphBuilder& b = rewriter_.builder();
    // Equal pads are one after the next simplification.
    const ValueId padded = b.Add(Op::pad, {rewriter_.New(under)}, g_.node(at->second).attrs);
    return transposed ? b.Permute(padded, {1, 0}) : padded;
  }

  void MatMul(NodeId id) {
    rewriter_.UseOrigin(id);
    const std::optional<ValueId> left = Padded(g_.operands(id)[0], 0);
    const std::optional<ValueId> right = Padded(g_.operands(id)[1], 1);
    if (!left && !right) {
      rewriter_.Copy(id);
      return;
    }
    GraphBuilder& b = rewriter_.builder();
    ValueId product = b.Add(Op::matmul,
                            {left ? *left : rewriter_.New(g_.operands(id)[0]),
                             right ? *right : rewriter_.New(g_.operands(id)[1])},
                            g_.node(id).attrs);
    for (int64_t axis : {0, 1}) {
      if (!(axis == 0 ? left : right)) continue;
      product = b.Add(Op::slice, {product},
                      {{"axis", axis},
                       {"start", int64_t{0}},
                       {"step", int64_t{1}},
                       {"stop", g_.type(id).shape[axis]}});
    }
    rewriter_.Set({id, 0}, product);
  }

  const BackwardGraph& g_;
  Rewriter rewriter_;
  absl::flat_hash_map<std::pair<ValueId, int64_t>, NodeId> pads_;  // of a value, along an axis
};

}  // namespace

int64_t AxisPaddedForMatMul(const BackwardGraph& g, NodeId id) {
  if (g.op(id) != Op::pad || !IsMatrix(g, {id, 0})) return -1;
  const Attrs& attrs = g.node(id).attrs;
  const auto low = attrs.Ints("low"), high = attrs.Ints("high");
  if (attrs.Float("value") != 0 || low[0] != 0 || low[1] != 0) return -1;
  if ((high[0] > 0) == (high[1] > 0)) return -1;
  const int64_t axis = high[0] > 0 ? 0 : 1;
  const bool aligns = !Aligned(g.type(g.operands(id)[0]), axis) && Aligned(g.type(id), axis);
  return aligns && MatMulReads(g, {id, 0}) ? axis : -1;
}

absl::StatusOr<BackwardGraph> SharePads(const BackwardGraph& graph) { return Sharing(graph).Run(); }

}  // namespace retrograd
