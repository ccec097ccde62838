#include "tests/support/graphs/random_graph/random_inputs.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <utility>

#include "graph/base/rounding.h"

namespace retrograd {
namespace {

// What the op's groups share out among them.
int64_t GroupedPlaces(const BackwardGraph& graph, NodeId id) {
  const Shape& a = graph.type(graph.operands(id)[0]).shape;
  if (graph.op(id) == Op::segment_amax) return a[graph.node(id).attrs.Int("axis")];
  return graph.type(graph.operands(id)[1]).rank() == 3 ? a[0] : a[1];
}

// The smallest extent of an axis on which the integer input is an index.
int64_t IndexLimit(const BackwardGraph& graph, NodeId input) {
  int64_t limit = 1 << 20;
  for (const Use& use : graph.uses(input)) {
    const Pattern pattern = graph.pattern(use.user);
    if (graph.op(use.user) == Op::sort_indices) {
      limit = std::min(limit, graph.node(use.user).attrs.Int("rows"));
    }
    if (graph.op(use.user) == Op::scatter_lines) {
      limit = std::min(limit, graph.node(use.user).attrs.Int("extent"));
    }
    if (graph.op(use.user) == Op::grouped_matmul || graph.op(use.user) == Op::segment_amax) {
      limit = std::min(limit, GroupedPlaces(graph, use.user) + 1);
    }
    if (pattern != Pattern::kGather && pattern != Pattern::kScatter) continue;
    const TensorType& x = graph.type(graph.operands(use.user)[0]);
    limit = std::min(limit, x.shape[graph.node(use.user).attrs.Int("axis")]);
  }
  return limit;
}

}  // namespace

std::vector<Values> RandomInputs(const BackwardGraph& graph, uint32_t seed) {
  std::mt19937 rng(seed);
  std::vector<Values> inputs;
  for (NodeId id : InputNodes(graph)) {
    const TensorType& type = graph.type(id);
    const int64_t limit = IsFloat(type.dtype) ? 0 : IndexLimit(graph, id);
    // An expanded dim of the input repeats its elements; they are drawn once per address.
    const std::vector<int64_t>& given = graph.node(id).input->strides;
    const std::vector<int64_t> strides = given.empty() ? DenseStrides(type.shape) : given;
    const uint32_t salt = rng();
    Values values(type.elements());
    std::vector<int64_t> index(type.shape.size());
    for (double& value : values) {
      int64_t address = 0;
      for (size_t d = 0; d < index.size(); ++d) address += index[d] * strides[d];
      std::minstd_rand local(salt + static_cast<uint32_t>(address) * 7919u + 1);
      local.discard(3);
      const double unit = static_cast<double>(local()) / 2147483647.0;
      value = type.dtype == DType::kBool ? (unit < 0.5 ? 0 : 1)
              : IsFloat(type.dtype)      ? RoundTo(type.dtype, 4 * unit - 2)
                                         : std::floor(unit * static_cast<double>(limit));
      for (int d = type.rank() - 1; d >= 0; --d) {
        if (++index[d] < type.shape[d]) break;
        index[d] = 0;
      }
    }
    inputs.push_back(std::move(values));
  }
  return inputs;
}

}  // namespace retrograd
