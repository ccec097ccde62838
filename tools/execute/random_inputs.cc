#include "tools/execute/random_inputs.h"

#include <algorithm>
#include <optional>
#include <random>
#include <vector>

#include "runtime/host/host_numbers.h"

namespace retrograd {
namespace {

// Odd, so that equal columns do not meet equal values.
constexpr int64_t kElements = (int64_t{1} << 20) - 3;
constexpr int64_t kNoIndex = 2;  // an integer that indexes nothing is 0 or 1

// The smallest extent of an axis on which the input is an index, directly or through views.
int64_t IndexLimit(const BackwardGraph& graph, NodeId input) {
  int64_t limit = kNoIndex;
  bool indexes = false;
  std::vector<NodeId> open = {input};
  for (size_t i = 0; i < open.size(); ++i) {
    for (const Use& use : graph.uses(open[i])) {
      const Pattern pattern = graph.pattern(use.user);
      if (pattern == Pattern::kView || graph.node(use.user).op == Op::cast) {
        if (std::find(open.begin(), open.end(), use.user) == open.end()) open.push_back(use.user);
      }
      if (graph.op(use.user) == Op::sort_indices ||
          (graph.op(use.user) == Op::scatter_lines && use.operand == 0)) {
        const bool list = graph.op(use.user) == Op::sort_indices;
        const int64_t rows = graph.node(use.user).attrs.Int(list ? "rows" : "extent");
        limit = indexes ? std::min(limit, rows) : rows;
        indexes = true;
      }
      if (pattern != Pattern::kGather && pattern != Pattern::kScatter) continue;
      const TensorType& x = graph.type(graph.operands(use.user)[0]);
      const int64_t extent = x.shape[graph.node(use.user).attrs.Int("axis")];
      limit = indexes ? std::min(limit, extent) : extent;
      indexes = true;
    }
  }
  return std::max<int64_t>(limit, 1);
}

// What groups share out among them, if the input says where they end.
std::optional<int64_t> GroupedPlaces(const BackwardGraph& graph, NodeId input) {
  for (const Use& use : graph.uses(input)) {
    if (graph.op(use.user) == Op::segment_amax && use.operand == 1) {
      const Shape& x = graph.type(graph.operands(use.user)[0]).shape;
      return x[graph.node(use.user).attrs.Int("axis")];
    }
    if (graph.op(use.user) != Op::grouped_matmul || use.operand != 2) continue;
    const bool rows = graph.type(graph.operands(use.user)[1]).rank() == 3;
    return graph.type(graph.operands(use.user)[0]).shape[rows ? 0 : 1];
  }
  return std::nullopt;
}

// As even as groups can be, and the same whatever the seed.
int64_t EvenEnd(int64_t places, int64_t group, int64_t groups) {
  return static_cast<int64_t>(static_cast<double>(places) * static_cast<double>(group + 1) /
                              static_cast<double>(groups));
}

}  // namespace

int64_t IntegerLimit(const BackwardGraph& graph, NodeId input) {
  if (const auto places = GroupedPlaces(graph, input)) return *places + 1;
  return SizeBytes(graph.type(input).dtype) == 1 ? kNoIndex : IndexLimit(graph, input);
}

std::string RandomPattern(const BackwardGraph& graph, NodeId input, uint64_t seed) {
  const TensorType& type = graph.type(input);
  const int64_t count = std::clamp<int64_t>(type.elements(), 1, kElements);
  std::string bytes(static_cast<size_t>(count * SizeBytes(type.dtype)), '\0');
  std::mt19937_64 random(seed ^ (uint64_t{Index(input)} << 32));
  std::uniform_real_distribution<double> unit(-1, 1);
  const bool floating = WithFloatType(type.dtype, [&](auto* t) {
    auto* p = reinterpret_cast<decltype(t)>(bytes.data());
    for (int64_t i = 0; i < count; ++i) StoreAs(p, i, unit(random));
  });
  if (floating) return bytes;
  const int64_t size = SizeBytes(type.dtype);
  const int64_t most = IntegerLimit(graph, input);
  const std::optional<int64_t> places = GroupedPlaces(graph, input);
  for (int64_t i = 0; i < count; ++i) {
    // Little-endian, as every host is.
    const uint64_t value = places ? static_cast<uint64_t>(EvenEnd(*places, i, count))
                                  : random() % static_cast<uint64_t>(most);
    std::copy_n(reinterpret_cast<const char*>(&value), size, bytes.data() + i * size);
  }
  return bytes;
}

}  // namespace retrograd
