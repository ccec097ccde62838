// Sets of the atoms of a region, of which there are at most 64.
#ifndef RETROGRAD_FUSION_SEARCH_ATOMS_ATOM_MASK_H_
#define RETROGRAD_FUSION_SEARCH_ATOMS_ATOM_MASK_H_

#include <bit>
#include <cstdint>

namespace retrograd {

using AtomMask = uint64_t;  // bit i: atom i
inline constexpr int kMaxMaskedAtoms = 64;

constexpr AtomMask Bit(int i) { return AtomMask{1} << i; }
constexpr AtomMask LowBits(int n) { return n == 64 ? ~AtomMask{0} : Bit(n) - 1; }

template <typename Fn>
void ForEachBit(AtomMask mask, Fn fn) {
  for (; mask != 0; mask &= mask - 1) fn(std::countr_zero(mask));
}

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_SEARCH_ATOMS_ATOM_MASK_H_
