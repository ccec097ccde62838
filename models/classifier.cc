#include "models/classifier.h"

#include <vector>

namespace retrograd {

// dlogp = -dloss/rows where the column is the target, else 0.
ValueId CrossEntropyBackward(LayerBackward& net, int64_t rows, int64_t classes) {
  GraphBuilder& graph = net.graph();
  const DType compute = net.precision().compute;
  const ValueId dloss = net.Tangent("dloss", compute, {});
  const ValueId target = net.Saved("target", DType::kInt64, {rows});
  const ValueId logp = net.Saved("logp", compute, {rows, classes});

  net.From("nll_loss_backward", "loss");
  const ValueId column = graph.Add(Op::iota, {},
                                   {{"axis", int64_t{0}},
                                    {"dtype", std::string(Name(DType::kInt64))},
                                    {"shape", std::vector<int64_t>{classes}},
                                    {"start", int64_t{0}},
                                    {"step", int64_t{1}}});
  const ValueId hit = graph.Add(Op::eq, {graph.Reshape(target, {rows, 1}), column});
  const ValueId each = net.Mul(dloss, graph.Full(-1.0 / static_cast<double>(rows), compute));
  const ValueId dlogp = graph.Add(Op::where, {hit, each, graph.Full(0, compute)});
  net.From("log_softmax_backward", "loss");
  return graph.Cast(graph.Add(Op::log_softmax_backward, {dlogp, logp}), net.precision().activation);
}

ValueId EmbeddingGradient(LayerBackward& net, const std::string& module, const std::string& index,
                          int64_t count, ValueId dx) {
  GraphBuilder& graph = net.graph();
  const DType compute = net.precision().compute;
  const int64_t rows = graph.type(dx).shape[0], width = graph.type(dx).shape[1];
  const ValueId indices = net.Saved(index, DType::kInt64, {rows});
  net.From("embedding_backward", module);
  const ValueId zero = graph.Full(0, compute, {count, width});
  return graph.Add(Op::index_add, {zero, indices, graph.Cast(dx, compute)}, {{"axis", int64_t{0}}});
}

}  // namespace retrograd
