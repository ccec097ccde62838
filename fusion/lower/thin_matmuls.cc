#include "fusion/lower/thin_matmuls.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "fusion/kernel/ir/scale.h"
#include "fusion/ops/matmul/matmul_cost.h"
#include "graph/passes/rewriter.h"

namespace retrograd {
namespace {

// The shorter side of the smallest product that tensor cores make (16 x 8 of 16-bit types).
constexpr int64_t kFew = 8;
constexpr int64_t kInstructionsOfTerm = 4;  // two widenings, a product and a sum

struct Product3 {
  int64_t batch = 1, m = 0, n = 0, k = 0;
  int64_t terms() const { return Product({batch, m, n, k}); }
  int64_t results() const { return Product({batch, m, n}); }
};

Product3 ProductOf(const BackwardGraph& g, NodeId id) {
  const Shape& a = g.type(g.operands(id)[0]).shape;
  const Shape& d = g.type(id).shape;
  Product3 p{.m = d[d.size() - 2], .n = d.back(), .k = a.back()};
  for (size_t axis = 0; axis + 2 < d.size(); ++axis) p.batch *= d[axis];
  return p;
}

// Thousandths of products of that type per clock and SM; 0: free.
int64_t RateOf(DType in, const DeviceSpec& d) {
  const int64_t rate = d.rate_milli[static_cast<int>(CostClass::kSimple)];
  return in == DType::kFp64 ? MulDiv(rate, d.fp64_ppm, kPpm) : rate;
}

// What a kernel takes that multiplies the terms one by one: bytes once from memory, and each
// factor again from the caches of those SMs that a sector of results is left for.
int64_t SumOfProductsPs(const Product3& p, DType in, DType out, const DeviceSpec& d) {
  const int64_t in_bytes = SizeBytes(in), out_bytes = SizeBytes(out), rate = RateOf(in, d);
  const int64_t sms =
      std::clamp<int64_t>(CeilDiv(p.results() * in_bytes, d.sector_bytes), 1, d.sms);
  const int64_t moved =
      Product({p.batch, p.m * p.k + p.k * p.n, in_bytes}) + Product({p.results(), out_bytes});
  const int64_t memory = TransferPs(moved, d.hbm_bytes_per_s);
  const int64_t caches =
      TransferPs(Product({p.terms(), in_bytes}), Product({d.sm_bytes_per_s, sms}));
  const int64_t compute = rate == 0 ? 0
                                    : MulDiv(Product({p.terms(), kInstructionsOfTerm}),
                                             1000 * kPsPerSecond / sms / rate, d.clock_hz);
  // Long sums wait for memory again.
  const int64_t waits = p.k > d.warp ? d.row_batch_ps : 0;
  return d.launch_graph_ps + d.block_ps + std::max({memory, caches, compute}) + waits;
}

bool IsThin(const BackwardGraph& g, NodeId id, const DeviceSpec& d) {
  if (g.op(id) != Op::matmul) return false;
  const DType in = g.type(g.operands(id)[0]).dtype, out = g.type(id).dtype;
  const Product3 p = ProductOf(g, id);
  if (IsFp8(in) || p.terms() == 0 || std::min({p.m, p.n, p.k}) > kFew) return false;
  const int64_t library = PriceMatMul({.m = p.m,
                                       .n = p.n,
                                       .k = p.k,
                                       .batch = {p.batch},
                                       .in_dtype = in,
                                       .out_dtype = out,
                                       .tf32 = g.numerics().allow_tf32},
                                      d)
                              .ps;
  const int64_t ours = SumOfProductsPs(p, in, out, d);
  return ours < library;
}

// [batch.., m, k] or [batch.., k, n] with an axis of extent 1 at `place`, then at all places of the
// product [batch.., m, k, n].
ValueId Spread(GraphBuilder& b, ValueId v, size_t place, const Shape& product) {
  Shape lifted = product;
  lifted[place] = 1;
  return b.Expand(b.Reshape(v, lifted), product);
}

void Expand(NodeId id, Rewriter& rewriter) {
  rewriter.UseOrigin(id);
  const BackwardGraph& g = rewriter.graph();
  GraphBuilder& b = rewriter.builder();
  const TensorType& result = g.type(id);
  const Shape& left = g.type(g.operands(id)[0]).shape;
  Shape product = left;
  product.push_back(result.shape.back());
  const size_t rank = product.size();
  const DType wide = ComputeType(g.type(g.operands(id)[0]).dtype);
  const std::vector<ValueId> operands = rewriter.NewOperands(id);
  const ValueId a = Spread(b, b.Cast(operands[0], wide), rank - 1, product);
  const ValueId c = Spread(b, b.Cast(operands[1], wide), rank - 3, product);
  const ValueId sum = b.Sum(b.Add(Op::mul, {a, c}), {static_cast<int64_t>(rank) - 2});
  rewriter.Set({id, 0}, b.Cast(sum, result.dtype));
}

}  // namespace

absl::StatusOr<BackwardGraph> ExpandThinMatMuls(const BackwardGraph& graph,
                                                const DeviceSpec& device) {
  std::vector<bool> thin(graph.num_nodes());
  for (uint32_t i = 0; i < graph.num_nodes(); ++i) thin[i] = IsThin(graph, NodeId{i}, device);
  if (std::find(thin.begin(), thin.end(), true) == thin.end()) return graph;
  Rewriter rewriter(graph);
  for (uint32_t i = 0; i < graph.num_nodes(); ++i) {
    thin[i] ? Expand(NodeId{i}, rewriter) : rewriter.Copy(NodeId{i});
  }
  return rewriter.Finish();
}

}  // namespace retrograd
