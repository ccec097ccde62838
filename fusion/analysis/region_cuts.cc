#include "fusion/analysis/region_cuts.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "fusion/analysis/barrier_depths.h"

namespace retrograd {
namespace {

// More than any device holds, and sums of as many as there are ops stay in range.
constexpr int64_t kMostBytes = int64_t{1} << 40;

// By place: the bytes of all values that ops before it make or read and ops from it on read.
std::vector<int64_t> CrossingBytes(const BackwardGraph& g, const std::vector<NodeId>& ops) {
  struct Span {
    size_t first, last;
  };
  absl::flat_hash_map<ValueId, Span> touched;
  for (size_t place = 0; place < ops.size(); ++place) {
    for (ValueId v : StoredOperands(g, ops[place])) {
      auto [at, added] = touched.try_emplace(v, Span{place, place});
      at->second.last = place;
    }
    touched.try_emplace(ValueId{ops[place], 0}, Span{place, place});
  }
  std::vector<int64_t> step(ops.size() + 1, 0);
  for (const auto& [v, span] : touched) {
    const int64_t bytes = std::min(g.type(v).size_bytes(), kMostBytes);
    step[span.first + 1] += bytes;
    step[span.last + 1] -= bytes;
  }
  for (size_t place = 1; place < step.size(); ++place) step[place] += step[place - 1];
  return step;
}

}  // namespace

std::vector<std::vector<NodeId>> CutIntoRuns(const BackwardGraph& graph,
                                             const std::vector<NodeId>& ops, size_t most) {
  if (ops.size() <= most) return {ops};
  const std::vector<int64_t> crossing = CrossingBytes(graph, ops);
  std::vector<std::vector<NodeId>> runs;
  size_t begin = 0;
  while (ops.size() - begin > most) {
    size_t end = begin + most;
    for (size_t place = end; place >= begin + (most + 1) / 2; --place) {
      if (crossing[place] < crossing[end]) end = place;
    }
    runs.emplace_back(ops.begin() + begin, ops.begin() + end);
    begin = end;
  }
  runs.emplace_back(ops.begin() + begin, ops.end());
  return runs;
}

}  // namespace retrograd
