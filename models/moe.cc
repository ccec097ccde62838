// One block of a mixture of experts, as Mixtral and Qwen3-MoE have it: a router that takes the best
// experts of each token, and their gated units.
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "models/builders.h"
#include "models/layers.h"

namespace retrograd {
namespace {

struct Sizes {
  int64_t tokens, experts, chosen, width, inner;

  int64_t rows() const { return tokens * chosen; }  // that experts multiply, expert by expert
};

// Where the rows of the experts come from.
struct Routing {
  ValueId order;  // i64[rows]: which choice, of all tokens' in turn
  ValueId token;  // i64[rows]: whose choice
  ValueId ends;   // i32[experts]: where each expert's rows end
};

ValueId Rows(LayerBackward& net, ValueId x, ValueId index) {
  return net.graph().Add(Op::index_select, {x, index}, {{"axis", int64_t{0}}});
}

// The sums of the rows of src at each place of the index, [places, ..], in the compute type.
ValueId AddedUp(LayerBackward& net, int64_t places, ValueId index, ValueId src) {
  GraphBuilder& graph = net.graph();
  const DType compute = net.precision().compute;
  Shape shape = graph.type(src).shape;
  shape[0] = places;
  const ValueId zero = graph.Full(0, compute, std::move(shape));
  return graph.Add(Op::index_add, {zero, index, graph.Cast(src, compute)}, {{"axis", int64_t{0}}});
}

// y = x_e W_eᵀ for the rows x_e of each expert e, W: [experts, out, in]
//   ⇒  dx_e = dy_e W_e,  dW_e = dy_eᵀ x_e
ValueId GroupedLinear(LayerBackward& net, const std::string& name, const Routing& routing,
                      ValueId dy, ValueId x) {
  GraphBuilder& graph = net.graph();
  const int64_t out = graph.type(dy).shape[1], in = graph.type(x).shape[1];
  const int64_t experts = graph.type(routing.ends).shape[0];
  const ValueId w = net.Parameter(name, net.precision().activation, {experts, out, in});
  net.From("grouped_mm_backward", name);
  const ValueId dx = graph.Add(Op::grouped_matmul, {dy, w, routing.ends});
  const ValueId dw = graph.Add(Op::grouped_matmul, {graph.Permute(dy, {1, 0}), x, routing.ends});
  graph.Output(graph.Cast(dw, net.precision().compute), name);
  return dx;
}

// (a, u) = x Wᵀ,  g = silu(a) u,  y = g Vᵀ, each row by its expert
//   ⇒  dg = dy V,  du = dg silu(a),  da = silu'(a) (dg u),  dx = (da, du) W
ValueId ExpertsBackward(LayerBackward& net, const Sizes& s, const Routing& routing, ValueId dy,
                        ValueId x) {
  GraphBuilder& graph = net.graph();
  const ValueId both =
      net.Saved("experts.a_u", net.precision().activation, {s.rows(), 2 * s.inner});
  const auto half = [&](int64_t at) {
    return graph.Slice(both, 1, at * s.inner, (at + 1) * s.inner);
  };
  net.From("silu", "experts.act");
  const ValueId a = half(0), u = half(1);
  const ValueId silu = net.Mul(a, graph.Add(Op::sigmoid, {a}));
  const ValueId g = net.Mul(silu, u);  // cheaper to compute again than to keep
  const ValueId dg = GroupedLinear(net, "experts.down", routing, dy, g);
  net.From("mul_backward", "experts.act");
  const ValueId du = net.Mul(dg, silu);
  const ValueId da = net.Activation("experts.act", "silu", net.Mul(dg, u), a);
  const ValueId d_both = graph.Cat({da, du}, 1);
  return GroupedLinear(net, "experts.gate_up", routing, d_both, x);
}

// v, e = the `chosen` largest of p and their places  ⇒  dp is dv at e, and 0 elsewhere
ValueId TopBackward(LayerBackward& net, const Sizes& s, ValueId dv, ValueId e) {
  GraphBuilder& graph = net.graph();
  const ValueId expert = graph.Add(Op::iota, {},
                                   {{"axis", int64_t{0}},
                                    {"dtype", std::string(Name(DType::kInt64))},
                                    {"shape", Shape{s.experts}},
                                    {"start", int64_t{0}},
                                    {"step", int64_t{1}}});
  ValueId dp = graph.Full(0, net.precision().compute);
  for (int64_t i = 0; i < s.chosen; ++i) {
    const auto choice = [&](ValueId v) {  // [tokens, 1]
      return graph.Slice(v, 1, i, i + 1);
    };
    const ValueId hit = graph.Add(Op::eq, {choice(e), expert});
    dp = graph.Add(Op::where, {hit, choice(dv), dp});
  }
  return dp;
}

// p = softmax(x Wᵀ),  v, e = top(p),  w = v / Σ v
//   ⇒  dv = (dw - Σ dw w) / Σ v,  dp by e,  d(x Wᵀ) = softmax_backward(dp, p)
ValueId RouterBackward(LayerBackward& net, const Sizes& s, ValueId dw, ValueId w, ValueId sum,
                       ValueId x) {
  GraphBuilder& graph = net.graph();
  const DType compute = net.precision().compute;
  const ValueId p = net.Saved("router.p", compute, {s.tokens, s.experts});
  const ValueId e = net.Saved("router.chosen", DType::kInt64, {s.tokens, s.chosen});
  net.From("div_backward", "router");
  const ValueId mean = graph.Sum(net.Mul(dw, w), {1}, /*keep=*/true);
  const ValueId dv = graph.Add(Op::div, {graph.Add(Op::sub, {dw, mean}), sum});
  net.From("topk_backward", "router");
  const ValueId dp = TopBackward(net, s, dv, e);
  net.From("softmax_backward", "router");
  const ValueId dlogits =
      graph.Cast(graph.Add(Op::softmax_backward, {dp, p}), net.precision().activation);
  return net.Linear("router", dlogits, x, s.experts, false);
}

// y[t] = Σ over the rows r of token t of w[r] experts(x[t])[r]
//   ⇒  what comes in at row r is dy[token[r]], and dx[t] sums the gradients of its rows
absl::StatusOr<BackwardGraph> BuildMoe(const Parameters& p) {
  const Sizes s = {p["tokens"], p["experts"], p["chosen"], p["width"], p["inner"]};
  if (s.chosen > s.experts) {
    return absl::InvalidArgumentError(
        absl::StrCat("model moe: chosen=", s.chosen, " experts of ", s.experts));
  }
  LayerBackward net(absl::StrCat("moe:", p.Print()), PrecisionByName(p.Choice("dtype")));
  GraphBuilder& graph = net.graph();
  const DType dtype = net.precision().activation, compute = net.precision().compute;
  const ValueId dy = net.Tangent("dy", dtype, {s.tokens, s.width});
  const ValueId x = net.Saved("x", dtype, {s.tokens, s.width});
  const ValueId v = net.Saved("router.v", compute, {s.tokens, s.chosen});
  const ValueId y = net.Saved("experts.y", dtype, {s.rows(), s.width});
  const Routing routing = {net.Saved("order", DType::kInt64, {s.rows()}),
                           net.Saved("token", DType::kInt64, {s.rows()}),
                           net.Saved("ends", DType::kInt32, {s.experts})};

  net.From("combine_backward", "experts");
  const ValueId sum = graph.Sum(v, {1}, /*keep=*/true);
  const ValueId w = graph.Add(Op::div, {v, sum});
  const ValueId of_rows = Rows(net, graph.Reshape(w, {s.rows(), 1}), routing.order);
  const ValueId dout = Rows(net, dy, routing.token);
  const ValueId dw_rows =
      graph.Sum(net.Mul(graph.Cast(dout, compute), graph.Cast(y, compute)), {1});
  const ValueId dw =
      graph.Reshape(AddedUp(net, s.rows(), routing.order, dw_rows), {s.tokens, s.chosen});
  const ValueId d_experts = net.Mul(dout, graph.Cast(of_rows, dtype));

  const ValueId dx_rows = ExpertsBackward(net, s, routing, d_experts, Rows(net, x, routing.token));
  net.From("dispatch_backward", "experts");
  const ValueId from_experts = graph.Cast(AddedUp(net, s.tokens, routing.token, dx_rows), dtype);
  const ValueId from_router = RouterBackward(net, s, dw, w, sum, x);
  graph.Output(net.Accumulate("moe", from_experts, from_router), "x");
  return graph.Build();
}

}  // namespace

// Default sizes: a layer of Qwen3-30B-A3B.
const Builder& MoeBuilder() {
  static const auto* builder = new Builder{
      "moe",
      "one mixture of experts: a softmax router of the best, SwiGLU experts, rows to and fro",
      {{"tokens", 8192, 1, 1 << 24, "rows of the batch"},
       {"experts", 128, 1, 1 << 16, "experts"},
       {"chosen", 8, 1, 256, "experts of a token"},
       {"width", 2048, 1, 1 << 17, "features of a token"},
       {"inner", 768, 1, 1 << 20, "width inside an expert"},
       {"dtype", 0, 0, 0, "of activations", PrecisionChoices()}},
      BuildMoe};
  return *builder;
}

}  // namespace retrograd
