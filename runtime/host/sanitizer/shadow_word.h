// ShadowWord: who last wrote and read a word of memory during one launch, and whether a new access
// is ordered after them. Threads of a block are ordered by its barriers, whose count is the epoch,
// and those of a warp by their meetings, too; those of a cluster's blocks by the cluster's
// barriers, and blocks of a launch otherwise not at all.
#ifndef RETROGRAD_RUNTIME_HOST_SANITIZER_SHADOW_WORD_H_
#define RETROGRAD_RUNTIME_HOST_SANITIZER_SHADOW_WORD_H_

#include <cstdint>

namespace retrograd {

// A thread that accesses memory, how many barriers it has passed, and its warp meetings. Blocks
// that run together, as those of a cluster, count as one here, and their threads are numbered one
// block after the other.
struct Accessor {
  int block = 0, thread = 0, epoch = 0;
  int meeting = 0;
};

struct ThreadShape {
  int threads = 1;  // of what counts as a block
  int of_block = 1;
  int cluster() const { return threads / of_block; }
};

// Epochs of clusters: barriers of the cluster (the checker tells 256 of them apart), and those of
// the block, fewer than 2^20.
inline constexpr int kBlockEpochBits = 20;

class ShadowWord {
 public:
  // The access that conflicts with a new one; none: thread < 0.
  struct Conflict {
    int block = 0, thread = -1;
    bool wrote = false;
    explicit operator bool() const { return thread >= 0; }
  };

  bool WrittenIn(int block, const ThreadShape& shape) const {
    return writer_ != 0 && static_cast<int>((writer_ - 1) / shape.threads) == block;
  }

  Conflict Read(const Accessor& by, const ThreadShape& shape) {
    const int threads = shape.threads;
    const Conflict conflict = WriteBeside(by, shape);
    const uint32_t id = Id(by, threads);
    uint32_t flags = 0;
    if (reader_ != 0) {
      flags = read_epoch_ & kManyBlocks;
      const bool same_block = static_cast<int>((reader_ - 1) / threads) == by.block;
      if (!same_block) flags |= kManyBlocks;
      const int reader = static_cast<int>((reader_ - 1) % threads);
      if (same_block && !ClusterMet(by)) {
        flags |= read_epoch_ & kManyPeers;
        if (reader / shape.of_block != by.thread / shape.of_block) flags |= kManyPeers;
      }
      if (same_block && !Ordered(reader, ReadEpoch(), by, shape)) {
        flags |= read_epoch_ & kManyWarps;
        if (!SameWarp(reader, by.thread, shape)) {
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

  Conflict Write(const Accessor& by, const ThreadShape& shape) {
    Conflict conflict = WriteBeside(by, shape);
    if (!conflict) conflict = ReadBeside(by, shape);
    writer_ = Id(by, shape.threads);
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
  // Several blocks of a cluster, since it met.
  static constexpr uint32_t kManyPeers = 1u << 28;
  static constexpr uint32_t kEpochMask = kManyPeers - 1;

  static uint32_t Id(const Accessor& by, int threads) {
    return static_cast<uint32_t>(by.block) * threads + by.thread + 1;
  }
  static uint32_t Epoch(const Accessor& by) { return by.epoch & kEpochMask; }
  static bool SameWarp(int one, int other, const ThreadShape& shape) {
    return one / shape.of_block == other / shape.of_block &&
           one % shape.of_block / kWarp == other % shape.of_block / kWarp;
  }
  uint32_t ReadEpoch() const { return read_epoch_ & kEpochMask; }
  static Conflict Name(uint32_t id, int threads, bool wrote) {
    return {static_cast<int>((id - 1) / threads), static_cast<int>((id - 1) % threads), wrote};
  }

  // Whether the cluster has met since the last read.
  bool ClusterMet(const Accessor& by) const {
    return ReadEpoch() >> kBlockEpochBits != Epoch(by) >> kBlockEpochBits;
  }
  // Whether a barrier lies between an earlier access in a block, or a cluster, and this one.
  static bool Ordered(int thread, uint32_t epoch, const Accessor& by, const ThreadShape& shape) {
    const int bits = thread / shape.of_block == by.thread / shape.of_block ? 0 : kBlockEpochBits;
    return epoch >> bits != Epoch(by) >> bits;
  }

  Conflict WriteBeside(const Accessor& by, const ThreadShape& shape) const {
    if (writer_ == 0 || writer_ == Id(by, shape.threads)) return {};
    const Conflict other = Name(writer_, shape.threads, true);
    if (other.block != by.block) return other;
    if (Ordered(other.thread, write_epoch_, by, shape)) return {};
    const bool met = SameWarp(other.thread, by.thread, shape) && write_meeting_ != by.meeting;
    return met ? Conflict() : other;
  }
  Conflict ReadBeside(const Accessor& by, const ThreadShape& shape) const {
    if (reader_ == 0) return {};
    const Conflict other = Name(reader_, shape.threads, false);
    if (other.block != by.block || (read_epoch_ & kManyBlocks) != 0) return other;
    if ((read_epoch_ & kManyPeers) != 0 && !ClusterMet(by)) return other;
    if (Ordered(other.thread, ReadEpoch(), by, shape)) return {};
    if ((read_epoch_ & kManyWarps) != 0 || !SameWarp(other.thread, by.thread, shape)) return other;
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
