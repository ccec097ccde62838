#include "models/attention.h"

#include <cmath>
#include <utility>

namespace retrograd {
namespace {

ValueId SavedHeads(LayerBackward& net, const Heads& h, std::string name, int64_t count) {
  const int64_t row = count * h.head_dim;
  return net.Saved(std::move(name), net.precision().activation,
                   {h.batch, count, h.length, h.head_dim}, {h.length * row, h.head_dim, row, 1});
}

}  // namespace

ValueId SplitHeads(LayerBackward& net, const Heads& h, ValueId rows, int64_t count) {
  GraphBuilder& graph = net.graph();
  return graph.Permute(graph.Reshape(rows, {h.batch, h.length, count, h.head_dim}), {0, 2, 1, 3});
}

ValueId MergeHeads(LayerBackward& net, const Heads& h, ValueId heads, int64_t count) {
  GraphBuilder& graph = net.graph();
  return graph.Reshape(graph.Permute(heads, {0, 2, 1, 3}), {h.rows(), count * h.head_dim});
}

SavedAttention SaveAttention(LayerBackward& net, const Heads& h, const std::string& name) {
  SavedAttention saved;
  saved.q = SavedHeads(net, h, name + ".q_heads", h.heads);
  saved.k = SavedHeads(net, h, name + ".k_heads", h.kv_heads);
  saved.v = SavedHeads(net, h, name + ".v_heads", h.kv_heads);
  saved.o = SavedHeads(net, h, name + ".o_heads", h.heads);
  saved.logsumexp =
      net.Saved(name + ".logsumexp", net.precision().compute, {h.batch, h.heads, h.length});
  return saved;
}

AttentionGradients AttentionBackward(LayerBackward& net, const Heads& h, const std::string& name,
                                     const SavedAttention& saved, ValueId do_rows, bool causal) {
  net.From("attention_backward", name);
  const double scale = 1 / std::sqrt(static_cast<double>(h.head_dim));
  const ValueId d = net.graph().Add(
      Op::attention_backward,
      {SplitHeads(net, h, do_rows, h.heads), saved.q, saved.k, saved.v, saved.o, saved.logsumexp},
      {{"causal", int64_t{causal}}, {"scale", scale}});
  return {{d.node, 0}, {d.node, 1}, {d.node, 2}};
}

}  // namespace retrograd
