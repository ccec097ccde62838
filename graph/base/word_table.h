// A hash table for keys of one word, which is emptied without a look at what it holds.
#ifndef RETROGRAD_GRAPH_BASE_WORD_TABLE_H_
#define RETROGRAD_GRAPH_BASE_WORD_TABLE_H_

#include <cstdint>
#include <utility>
#include <vector>

namespace retrograd {

template <typename Value>
class WordTable {
 public:
  // Of a key that is not in the table: nullptr. Stays valid until the next Add().
  Value* Find(uint64_t key) {
    Slot& slot = SlotOf(key);
    return slot.round == round_ ? &slot.value : nullptr;
  }

  // The value of a key, and whether the key is new: then the value is Value().
  std::pair<Value&, bool> Add(uint64_t key) {
    if (2 * size_ >= slots_.size()) Grow();
    Slot& slot = SlotOf(key);
    if (slot.round == round_) return {slot.value, false};
    slot = {.key = key, .round = round_};
    ++size_;
    return {slot.value, true};
  }

  void Clear() {
    ++round_;
    size_ = 0;
  }

 private:
  struct Slot {
    uint64_t key = 0;
    uint64_t round = 0;  // in which it was filled; of another one than round_: it is empty
    Value value = {};
  };

  // Where the key is, or the first empty slot behind its own.
  Slot& SlotOf(uint64_t key) {
    const size_t mask = slots_.size() - 1;
    size_t at = (key * 0x9e3779b97f4a7c15u) >> shift_;
    while (slots_[at].round == round_ && slots_[at].key != key) at = (at + 1) & mask;
    return slots_[at];
  }

  void Grow() {
    std::vector<Slot> old(2 * slots_.size());
    old.swap(slots_);
    --shift_;
    for (Slot& slot : old) {
      if (slot.round == round_) SlotOf(slot.key) = std::move(slot);
    }
  }

  static constexpr int kFirstBits = 6;
  std::vector<Slot> slots_ = std::vector<Slot>(size_t{1} << kFirstBits);
  int shift_ = 64 - kFirstBits;  // a hash's upper bits are a slot's number
  uint64_t round_ = 1;
  size_t size_ = 0;
};

}  // namespace retrograd

#endif  // RETROGRAD_GRAPH_BASE_WORD_TABLE_H_
