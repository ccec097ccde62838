// ShadowWord: who last wrote and read a word of memory during one launch, and whether a new access
// is ordered after them. Threads of a block are ordered by its barriers, whose count is the epoch,
// and those of a warp by their meetings, too; blocks of a launch are not ordered at all.
#ifndef RETROGRAD_RUNTIME_HOST_SANITIZER_SHADOW_WORD_H_
#define RETROGRAD_RUNTIME_HOST_SANITIZER_SHADOW_WORD_H_

#include <cstdint>

namespace retrograd {

// A thread that accesses memory, how many barriers its block has passed, and its warp meetings.
struct Accessor {
  int block = 0, thread = 0, epoch = 0;
  int meeting = 0;
};

class ShadowWord {
 public:
  // The access that conflicts with a new one; none: thread < 0.
  struct Conflict {
    int block = 0, thread = -1;
    bool wrote = false;
    explicit operator bool() const { return thread >= 0; }
  };

  bool WrittenIn(int block, int threads) const {
    return writer_ != 0 && static_cast<int>((writer_ - 1) / threads) == block;
  }

  Conflict Read(const Accessor& by, int threads) {
    const Conflict conflict = WriteBeside(by, threads);
    const uint32_t id = Id(by, threads);
    uint32_t flags = 0;
    if (reader_ != 0) {
      flags = read_epoch_ & kManyBlocks;
      const bool same_block = static_cast<int>((reader_ - 1) / threads) == by.block;
      if (!same_block) flags |= kManyBlocks;
      if (same_block && ReadEpoch() == Epoch(by)) {
        flags |= read_epoch_ & kManyWarps;
        if (WarpOf(reader_, threads) != by.thread / kWarp) {
          flags |= kManyWarps;
        } else if (read_meeting_ == by.meeting) {
          flags |= read_epoch_ & kManyThreads;
          if (reader_ != id) flags |= kManyThreads;
        }
      }
    }
    reader_ = id;
    read_epoch_ = Epoch(by) | flags;
    read_meeting_ = by.meeting;
    return conflict;
  }

  Conflict Write(const Accessor& by, int threads) {
    Conflict conflict = WriteBeside(by, threads);
    if (!conflict) conflict = ReadBeside(by, threads);
    writer_ = Id(by, threads);
    write_epoch_ = Epoch(by);
    write_meeting_ = by.meeting;
    return conflict;
  }

 private:
  static constexpr int kWarp = 32;  // threads that meet, in a warp of any size
  // In the epoch of the last read: several threads of a warp, since it met; several warps.
  static constexpr uint32_t kManyThreads = 1u << 31;
  static constexpr uint32_t kManyWarps = 1u << 30;
  static constexpr uint32_t kManyBlocks = 1u << 29;  // have read
  static constexpr uint32_t kEpochMask = kManyBlocks - 1;

  static uint32_t Id(const Accessor& by, int threads) {
    return static_cast<uint32_t>(by.block) * threads + by.thread + 1;
  }
  static uint32_t Epoch(const Accessor& by) { return by.epoch & kEpochMask; }
  static int WarpOf(uint32_t id, int threads) {
    return static_cast<int>((id - 1) % threads) / kWarp;
  }
  uint32_t ReadEpoch() const { return read_epoch_ & kEpochMask; }
  static Conflict Name(uint32_t id, int threads, bool wrote) {
    return {static_cast<int>((id - 1) / threads), static_cast<int>((id - 1) % threads), wrote};
  }

  Conflict WriteBeside(const Accessor& by, int threads) const {
    if (writer_ == 0 || writer_ == Id(by, threads)) return {};
    const Conflict other = Name(writer_, threads, true);
    if (other.block != by.block) return other;
    if (write_epoch_ != Epoch(by)) return {};
    const bool met = other.thread / kWarp == by.thread / kWarp && write_meeting_ != by.meeting;
    return met ? Conflict() : other;
  }
  Conflict ReadBeside(const Accessor& by, int threads) const {
    if (reader_ == 0) return {};
    const Conflict other = Name(reader_, threads, false);
    if (other.block != by.block || (read_epoch_ & kManyBlocks) != 0) return other;
    if (ReadEpoch() != Epoch(by)) return {};
    if ((read_epoch_ & kManyWarps) != 0 || other.thread / kWarp != by.thread / kWarp) return other;
    if (read_meeting_ != by.meeting) return {};
    return other.thread != by.thread || (read_epoch_ & kManyThreads) != 0 ? other : Conflict();
  }

  // Threads are numbered through the launch from 1; 0 is nobody.
  uint32_t writer_ = 0, reader_ = 0;
  uint32_t write_epoch_ = 0, read_epoch_ = 0;
  int write_meeting_ = 0, read_meeting_ = 0;
};

}  // namespace retrograd

#endif  // RETROGRAD_RUNTIME_HOST_SANITIZER_SHADOW_WORD_H_
