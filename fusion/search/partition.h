// A region's atoms divided into kernels: what the searches return.
#ifndef RETROGRAD_FUSION_SEARCH_PARTITION_H_
#define RETROGRAD_FUSION_SEARCH_PARTITION_H_

#include <vector>

#include "absl/types/span.h"
#include "fusion/pricing/group_pricer.h"
#include "fusion/search/atoms/atoms.h"

namespace retrograd {

struct Partition {
  struct Part {
    std::vector<int> atoms;  // ascending
    Schedule schedule;
    int64_t ps = 0;       // T(S), without margin
    int64_t cost_ps = 0;  // what the search minimises: with margin and price of memory
  };
  std::vector<Part> parts;  // in a valid order; empty if there is none
  int64_t cost_ps = 0;      // of all parts
  bool exact = false;       // proven to have the least cost
};

// Two atoms that must, or must not, share a kernel.
struct Constraint {
  int a = -1, b = -1;
  bool together = false;
};

// The ops of a kernel of these atoms (ascending).
GroupOps OpsOfAtoms(const std::vector<Atom>& atoms, absl::Span<const int> set);

// Every atom a kernel of its own.
Partition SinglesOf(const std::vector<Atom>& atoms, const GroupPricer& pricer);

// Appends a part with its cost.
void AddPart(std::vector<int> atoms, const GroupPrice& price, const GroupPricer& pricer,
             Partition& partition);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_SEARCH_PARTITION_H_
