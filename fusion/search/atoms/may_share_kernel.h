// A quick test that refuses sets of atoms which surely fit no kernel, without building the kernel.
// It follows the rules of fusion/kernel/build/iteration_space.cc op by op, but keeps only one fact
// of an op's mapping into the iteration space: whether it covers the whole tensor or perhaps a part
// of it. A set that passes may still be refused when its kernel is built.
#ifndef RETROGRAD_FUSION_SEARCH_ATOMS_MAY_SHARE_KERNEL_H_
#define RETROGRAD_FUSION_SEARCH_ATOMS_MAY_SHARE_KERNEL_H_

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "fusion/search/atoms/atoms.h"
#include "fusion/search/atoms/region_masks.h"

namespace retrograd {

class RegionLinks {
 public:
  RegionLinks(const std::vector<Atom>& atoms, const GroupPricer& pricer);

  // False: no kernel computes these atoms (at least two).
  bool MayShareKernel(AtomMask set);

 private:
  // A walk is the mapping of a value into the iteration space. A set of these two kinds of walk:
  // one that covers the whole tensor, one that may cover only a part.
  using Walks = uint8_t;
  static constexpr Walks kNone = 0, kWhole = 1, kPart = 2, kEither = 3;

  // Which walks of one value follow from a whole walk of another, and which from a partial walk.
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
  // An op of the region, a stored value that its ops read, or where ops stand beside each other.
  struct Place {
    AtomMask holders = 0;  // atoms that compute it, as their own or again; 0: a value
    AtomMask owner = 0;    // the atom whose own op it is, if any
    // Its owner stores it unless the kernel holds all of `readers` and one of each of `any_reader`.
    AtomMask readers = 0;
    std::vector<AtomMask> any_reader;
    bool read_outside = false;   // by the host, a library call or another region
    std::vector<Link> reads;     // places that it reads, with how its walk maps to theirs
    std::vector<int> followers;  // readers, and gathers of the same, whose walk is the same
    int64_t points = 0;
    bool scatters = false, reduces = false, scans = false;
  };

  int PlaceOf(ValueId v);
  void Connect(const BackwardGraph& g, NodeId id);
  void AddReaders(Place& place, AtomMask holders);
  void RankRoots();
  // Gathers that pick the same elements stand where one of them does.
  void ConnectGathers(const BackwardGraph& g, const std::vector<NodeId>& ops);
  // Pointwise ops of one shape that read interleaved parts of one value stand beside each other.
  void ConnectParts(const BackwardGraph& g, const std::vector<NodeId>& ops);
  bool ScattersOnce(AtomMask set) const;
  static bool Stored(const Place& place, AtomMask set);
  static bool Walked(const Place& place, AtomMask set);
  // The place where the iteration space begins, as fusion/kernel/build/iteration_space.cc chooses
  // it: of all, or of those whose points a kernel has to visit.
  int Root(AtomMask set, bool walked) const;
  // Whether each of those is visited whole from this root.
  bool WalksAllFrom(int root, AtomMask set);
  void Visit(int place, Walks walks);

  std::vector<Place> places_;  // ops in ascending order, then all others
  int ops_ = 0;
  AtomMask scatters_ = 0;     // atoms that hold a scatter
  AtomMask other_rules_ = 0;  // atoms with empty tensors or library calls
  absl::flat_hash_map<NodeId, int> place_of_op_;
  absl::flat_hash_map<ValueId, int> place_of_value_;
  std::vector<int> by_extent_;  // ops, the preferred root first: scatters, then most points
  // State of one call of MayShareKernel:
  std::vector<Walks> walks_;  // by place
  std::vector<std::pair<int, Walks>> stack_;
};

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_SEARCH_ATOMS_MAY_SHARE_KERNEL_H_
