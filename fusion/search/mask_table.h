// Values by sets of atoms: a hash table for keys of one word, which the search looks up millions of
// times.
#ifndef RETROGRAD_FUSION_SEARCH_MASK_TABLE_H_
#define RETROGRAD_FUSION_SEARCH_MASK_TABLE_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "fusion/search/region_masks.h"

namespace retrograd {

template <typename Value>
class MaskTable {
 public:
  // Of a set that is not in the table: nullptr. Stays valid until the next Add().
  Value* Find(AtomMask set) {
    Slot& slot = SlotOf(set);
    return slot.round == round_ ? &slot.value : nullptr;
  }

  // The value of a set, and whether the set is new: then the value is Value().
  std::pair<Value&, bool> Add(AtomMask set) {
    if (2 * size_ >= slots_.size()) Grow();
    Slot& slot = SlotOf(set);
    if (slot.round == round_) return {slot.value, false};
    slot = {.set = set, .round = round_};
    ++size_;
    return {slot.value, true};
  }

  void Clear() {
    ++round_;
    size_ = 0;
  }

 private:
  struct Slot {
    AtomMask set = 0;
    uint64_t round = 0;  // in which it was filled; of another one than round_: it is empty
    Value value = {};
  };

  // Where the set is, or the first empty slot behind its own.
  Slot& SlotOf(AtomMask set) {
    const size_t mask = slots_.size() - 1;
    size_t at = (set * 0x9e3779b97f4a7c15u) >> shift_;
    while (slots_[at].round == round_ && slots_[at].set != set) at = (at + 1) & mask;
    return slots_[at];
  }

  void Grow() {
    std::vector<Slot> old(2 * slots_.size());
    old.swap(slots_);
    --shift_;
    for (Slot& slot : old) {
      if (slot.round == round_) SlotOf(slot.set) = std::move(slot);
    }
  }

  static constexpr int kFirstBits = 6;
  std::vector<Slot> slots_ = std::vector<Slot>(size_t{1} << kFirstBits);
  int shift_ = 64 - kFirstBits;  // a hash's upper bits are a slot's number
  uint64_t round_ = 1;
  size_t size_ = 0;
};

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_SEARCH_MASK_TABLE_H_
