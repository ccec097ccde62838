// Which sets of atoms surely fit no kernel, told without building one: a rehearsal of how
// kernel/iteration_space.cc places ops, op by op, that knows only whether a walk visits a whole
// tensor or perhaps a part of it. A set that passes may still be refused.
#ifndef RETROGRAD_FUSION_SEARCH_MAY_SHARE_KERNEL_H_
#define RETROGRAD_FUSION_SEARCH_MAY_SHARE_KERNEL_H_

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "fusion/search/atoms.h"
#include "fusion/search/region_masks.h"

namespace retrograd {

class RegionLinks {
 public:
  RegionLinks(const std::vector<Atom>& atoms, const GroupPricer& pricer);

  // False: no kernel computes these atoms (at least two).
  bool MayShareKernel(AtomMask set);

 private:
  // Sets of walks: of a whole tensor, of what may be a part of it.
  using Walks = uint8_t;
  static constexpr Walks kNone = 0, kWhole = 1, kPart = 2, kEither = 3;

  // The walks of one value that follow from a whole and from a partial walk of another.
  struct Step {
    Walks whole = kWhole, part = kPart;
    Walks From(Walks walks) const {
      return (walks & kWhole ? whole : kNone) | (walks & kPart ? part : kNone);
    }
    Step Then(const Step& next) const { return {next.From(whole), next.From(part)}; }
  };
  static Step ThroughView(const BackwardGraph& g, NodeId view);
  static Step ToOperand(const BackwardGraph& g, NodeId user, size_t operand);

  struct Link {
    int to = 0;
    Step step;
  };
  // An op of the region, or a stored value that its ops read.
  struct Place {
    AtomMask holders = 0;  // atoms that compute it, as their own or again; 0: a value
    AtomMask owner = 0;    // the atom whose own op it is, if any
    // Its owner stores it unless the kernel holds all of `readers` and one of each of `any_reader`.
    AtomMask readers = 0;
    std::vector<AtomMask> any_reader;
    bool read_outside = false;   // by the host, a library call or another region
    std::vector<Link> reads;     // places that it reads, from where its walk leads
    std::vector<int> followers;  // readers that walk as it does
    int64_t points = 0;
    bool scatters = false, reduces = false;
  };

  int PlaceOf(ValueId v);
  void Connect(const BackwardGraph& g, NodeId id);
  void AddReaders(Place& place, AtomMask holders);
  void RankRoots();
  // A kernel that scatters does so once and stores nothing else.
  bool ScattersAlone(AtomMask set) const;
  static bool Stored(const Place& place, AtomMask set);
  // The place where the iteration space begins, as kernel/iteration_space.cc chooses it.
  int Root(AtomMask set) const;
  void Visit(int place, Walks walks);

  std::vector<Place> places_;  // ops in ascending order, then other values
  int ops_ = 0;
  AtomMask scatters_ = 0;     // atoms that hold a scatter
  AtomMask other_rules_ = 0;  // atoms with empty tensors or library calls
  absl::flat_hash_map<NodeId, int> place_of_op_;
  absl::flat_hash_map<ValueId, int> place_of_value_;
  std::vector<int> by_extent_;  // ops: what may be a root before another, but for what is stored
  // Of one question:
  std::vector<Walks> walks_;  // by place
  std::vector<std::pair<int, Walks>> stack_;
};

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_SEARCH_MAY_SHARE_KERNEL_H_
