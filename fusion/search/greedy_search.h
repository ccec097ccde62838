// A good partition of any number of atoms, quickly: neighbouring groups merged while it pays. The
// exact search uses its cost as a bound.
#ifndef RETROGRAD_FUSION_SEARCH_GREEDY_SEARCH_H_
#define RETROGRAD_FUSION_SEARCH_GREEDY_SEARCH_H_

#include <cstdint>
#include <limits>
#include <vector>

#include "fusion/search/partition.h"

namespace retrograd {

enum class CombineWhere : uint8_t {
  kItPays,
  kPossible,  // whatever it costs: the dearest merge is made last
};

struct GreedyOptions {
  int64_t max_priced_ops = 200'000;  // of all kernels that are built and priced
  CombineWhere where = CombineWhere::kItPays;
  int64_t max_ops = std::numeric_limits<int64_t>::max();  // of a kernel of several atoms
};

// `start`: kernels that are merged, of all atoms; without parts: each atom is one.
Partition MergeGreedily(const std::vector<Atom>& atoms, const GroupPricer& pricer,
                        const GreedyOptions& options, const Partition& start = {},
                        absl::Span<const Constraint> constraints = {});

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_SEARCH_GREEDY_SEARCH_H_
