// The values of an index that depends on nothing but constants.
#ifndef RETROGRAD_FUSION_LOWER_INDEXED_KNOWN_INDEX_H_
#define RETROGRAD_FUSION_LOWER_INDEXED_KNOWN_INDEX_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "graph/ir/backward_graph.h"

namespace retrograd {

// Elements of all values in front of an index that are evaluated, at most.
inline constexpr int64_t kMostEvaluated = int64_t{1} << 22;

// In row-major order; nullopt where the value depends on an input, where an op in front of it may
// be rounded in another way by another compiler, and where evaluating it takes too long.
//
// A compiler may compute a product and the sum that takes it without rounding in between. Whoever
// computed with such an index (the weights of an interpolation) may have done so. An index is known
// if both ways give the same.
std::optional<std::vector<int64_t>> KnownIndex(const BackwardGraph& graph, ValueId index);

// The same for one of several indices: what is evaluated is taken from the budget, in elements.
// nullopt, too, where that is more than the budget, which then stays as it is.
std::optional<std::vector<int64_t>> KnownIndex(const BackwardGraph& graph, ValueId index,
                                               int64_t& budget);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_LOWER_INDEXED_KNOWN_INDEX_H_
