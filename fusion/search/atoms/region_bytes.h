// The bytes that kernels of a region's atoms surely move, whichever atoms share a kernel.
#ifndef RETROGRAD_FUSION_SEARCH_ATOMS_REGION_BYTES_H_
#define RETROGRAD_FUSION_SEARCH_ATOMS_REGION_BYTES_H_

#include <cstdint>
#include <vector>

#include "fusion/pricing/group_pricer.h"
#include "fusion/search/atoms/atom_mask.h"
#include "fusion/search/atoms/atoms.h"

namespace retrograd {

class RegionBytes {
 public:
  // What atoms of `uncounted` read and write is left out. conflicts: by atom, those that no kernel
  // holds beside it.
  RegionBytes(const std::vector<Atom>& atoms, const GroupPricer& pricer, AtomMask uncounted,
              absl::Span<const AtomMask> conflicts);

  // Of kernels that make the set, each of which may hold atoms of `beside`, too; the set is a part
  // of `beside`.
  MovedBytes Least(AtomMask set, AtomMask beside) const;

 private:
  // An atom and its conflicts, all of which make or read one value.
  struct Split {
    AtomMask atom = 0, conflicts = 0;
  };
  // Bytes read if a reader is in the set and the producer is not, and once more if they are split.
  struct Read {
    AtomMask producer = 0, readers = 0;
    AtomMask again = 0;  // readers that read it for what they compute again, perhaps a part of it
    int64_t bytes = 0;
    bool fresh = false;    // written earlier in this backward
    int64_t uncached = 0;  // of bytes, whatever else the kernel that reads them does
    std::vector<Split> splits;
  };
  // Bytes written if the producer is in the set and, unless it escapes, a reader is not, or they
  // are split.
  struct Write {
    AtomMask producer = 0, readers = 0;
    int64_t bytes = 0;
    bool escapes = false;
    std::vector<Split> splits;
  };
  void Count(const std::vector<Atom>& atoms, const GroupPricer& pricer, AtomMask uncounted);
  void CountUncached(const DeviceSpec& device);
  void JoinEqual();  // bytes that count for the same sets, so that a bound adds up few numbers
  void TakeOwn();    // those that count for one atom, whatever else is in the set
  void FindSplits(absl::Span<const AtomMask> conflicts);
  // Whether these atoms make or read the value in two kernels.
  static bool IsSplit(const std::vector<Split>& splits, AtomMask set);

  std::vector<MovedBytes> own_;  // by atom
  std::vector<Read> reads_;      // but those of one atom from outside the region
  std::vector<Write> writes_;    // but those that escape
};

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_SEARCH_ATOMS_REGION_BYTES_H_
