// The units of the search in one region: ops contracted where sharing a kernel never loses.
//
// An op joins its only reader when the reader's kernel would compute each of its elements at most
// once and its result is needed nowhere else: storing and re-reading it can only cost more.
#ifndef RETROGRAD_FUSION_SEARCH_ATOMS_ATOMS_H_
#define RETROGRAD_FUSION_SEARCH_ATOMS_ATOMS_H_

#include <cstdint>
#include <vector>

#include "fusion/analysis/regions.h"
#include "fusion/pricing/group_pricer.h"

namespace retrograd {

struct Atom {
  std::vector<NodeId> ops;     // ascending
  std::vector<NodeId> shared;  // ascending, none of ops: recomputed by each kernel that reads them
  // Of ops, those that an op with several places (its own atom, those that recompute it) reads,
  // with each of these atoms.
  std::vector<std::pair<NodeId, int>> read_again;
  std::vector<int> predecessors;  // atoms of the region that it reads, ascending
  std::vector<int> neighbours;    // atoms that share an edge or a large tensor with it, ascending
};

// In topological order. `contract` false: every op is an atom. An op of `split` (ascending) is not
// contracted into its reader.
std::vector<Atom> FindAtoms(const Region& region, const GroupPricer& pricer, bool contract,
                            absl::Span<const NodeId> split = {});

// Fills in what follows from the ops: predecessors, neighbours, read_again.
void ConnectAtoms(const GroupPricer& pricer, std::vector<Atom>& atoms);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_SEARCH_ATOMS_ATOMS_H_
