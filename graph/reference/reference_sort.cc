// sort_indices of the reference evaluator: a counting sort.
#include <numeric>

#include "graph/ir/sorted_indices.h"
#include "graph/reference/library_reference.h"

namespace retrograd {

absl::Status EvaluateSortIndices(const LibraryNode& node, absl::Span<double* const> out) {
  const DenseTensor& index = node.exact[0];
  const SortedIndices sorted{.rows = node.attrs.Int("rows"), .indices = index.type->elements()};
  std::vector<int64_t> keys(sorted.indices);
  std::vector<int64_t> next(sorted.rows + 3);  // by row, one further on
  for (int64_t i = 0; i < sorted.indices; ++i) {
    auto row = static_cast<int64_t>(index.data[i]);
    if (row < 0) row += sorted.rows;
    if (row < 0 || row >= sorted.rows) row = sorted.rows;
    keys[i] = row;
    ++next[row + 1];
  }
  std::partial_sum(next.begin(), next.end(), next.begin());
  for (int64_t r = 0; r < sorted.pairs(); ++r) {
    out[0][sorted.starts() + r] = static_cast<double>(next[r]);
  }
  for (int64_t i = 0; i < sorted.indices; ++i) {
    const int64_t to = next[keys[i]]++;
    out[0][sorted.key(to)] = static_cast<double>(keys[i]);
    out[0][sorted.order(to)] = static_cast<double>(i);
  }
  return absl::OkStatus();
}

}  // namespace retrograd
