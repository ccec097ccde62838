// Switches are Boost.Context's jump_fcontext, a few nanoseconds each. A fiber that must wait jumps
// straight to the next ready one; the last to arrive makes all that waited with it ready again. If
// nobody is ready and not all are done, threads diverged: the fibers are abandoned where they are
// (kernels own nothing) and made anew before the next block.
#include "runtime/host/fiber_block.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <boost/context/detail/fcontext.hpp>
#include <cerrno>
#include <cstring>
#include <map>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "graph/base/status.h"
#include "runtime/host/sanitizer/shadow_word.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

namespace retrograd {

namespace context = boost::context::detail;

namespace {

// ThreadSanitizer must be told of stacks and of jumps between them.
#if defined(__SANITIZE_THREAD__)
void* ThisStack() { return __tsan_get_current_fiber(); }
void* NewStack() { return __tsan_create_fiber(0); }
void ForgetStack(void* stack) { __tsan_destroy_fiber(stack); }
[[gnu::always_inline]] inline void FollowTo(void* stack) { __tsan_switch_to_fiber(stack, 0); }
#else
void* ThisStack() { return nullptr; }
void* NewStack() { return nullptr; }
void ForgetStack(void*) {}
[[gnu::always_inline]] inline void FollowTo(void*) {}
#endif

}  // namespace

struct FiberBlock::Fiber : rg_host_thread {
  enum State : uint8_t { kReady, kAtBarrier, kAtClusterBarrier, kAtShuffle, kExited };
  FiberBlock* owner = nullptr;
  context::fcontext_t context = nullptr;  // where it goes on; null before its first run
  void* followed = nullptr;               // ThreadSanitizer's name of its stack
  State state = kReady;
  int line = 0;                      // of the barrier or shuffle where it waits
  int warp = 0, lane = 0, rank = 0;  // rank: of its block
};

struct FiberBlock::Warp {
  int arrived = 0, line = 0;
  int meetings = 0;  // that it has passed in this block
  int side = 0;      // which of the two sets of slots the coming shuffle uses
  uint64_t slots[2][kMostLanes];
};

// One mapping for all stacks, with a guard page below each.
struct FiberBlock::Stacks {
  static constexpr size_t kStackBytes = size_t{256} << 10;
  // Tops are staggered, or the hot frames of all fibers would fall into the same cache sets.
  static constexpr size_t kStaggerBytes = 832, kStaggerRange = size_t{24} << 10;
  char* base = nullptr;
  int count = 0;

  ~Stacks() {
    if (base != nullptr) munmap(base, count * kStackBytes);
  }
  absl::Status Grow(int wanted) {
    if (base != nullptr) munmap(base, count * kStackBytes);
    base = nullptr;
    count = 0;
    void* mapped = mmap(nullptr, wanted * kStackBytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapped == MAP_FAILED) {
      return absl::ResourceExhaustedError(absl::StrCat("no memory for the stacks of ", wanted,
                                                       " host threads: ", std::strerror(errno)));
    }
    base = static_cast<char*>(mapped);
    count = wanted;
    const size_t page = sysconf(_SC_PAGESIZE);
    for (int i = 0; i < count; ++i) mprotect(base + i * kStackBytes, page, PROT_NONE);
    return absl::OkStatus();
  }
  context::fcontext_t Make(int i, void (*entry)(context::transfer_t)) const {
    const size_t stagger = i * kStaggerBytes % kStaggerRange & ~size_t{63};
    char* low = base + i * kStackBytes;
#if defined(__SANITIZE_ADDRESS__)
    const size_t page = sysconf(_SC_PAGESIZE);
    ASAN_UNPOISON_MEMORY_REGION(low + page, kStackBytes - page);
#endif
    return context::make_fcontext(low + kStackBytes - stagger, kStackBytes - stagger, entry);
  }
};

FiberBlock::FiberBlock() : stacks_(std::make_unique<Stacks>()) {}
FiberBlock::~FiberBlock() { ForgetContexts(); }

void FiberBlock::ForgetContexts() {
  for (Fiber& fiber : fibers_) {
    if (fiber.followed != nullptr) ForgetStack(fiber.followed);
    fiber.followed = fiber.context = nullptr;
  }
}

absl::Status FiberBlock::Reserve(int threads, int blocks) {
  if (threads < 1 || threads > kMostThreads) {
    return absl::InvalidArgumentError(
        absl::StrCat("a block of ", threads, " threads: the host runs 1 to ", kMostThreads));
  }
  if (blocks < 1 || blocks > kMostBlocks) {
    return absl::InvalidArgumentError(
        absl::StrCat("a cluster of ", blocks, " blocks: the host runs 1 to ", kMostBlocks));
  }
  const int all = threads * blocks;
  if (all > stacks_->count) {
    ForgetContexts();
    fibers_.assign(all, Fiber());
    RG_RETURN_IF_ERROR(stacks_->Grow(all));
    warps_.resize(all);
    queue_.resize(all);
  }
  if (strides_of_ != threads) {
    strides_.clear();
    strides_.reserve(16);
    for (int stride = 1; stride <= threads && strides_.size() < 16; stride += 1 + stride / 3) {
      if (std::gcd(stride, threads) == 1) strides_.push_back(stride);
    }
    strides_.back() = std::max(1, threads - 1);  // coprime: the order reversed
    strides_of_ = threads;
  }
  return absl::OkStatus();
}

uint64_t FiberBlock::Draw() {  // splitmix64
  uint64_t z = random_ += 0x9e3779b97f4a7c15;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

void FiberBlock::PutReady(int position, int fiber) {
  int at = queue_first_ + position;
  if (at >= threads_) at -= threads_;
  queue_[at] = fiber;
  fibers_[fiber].state = Fiber::kReady;
}

void FiberBlock::PushBlock(int rank) {
  const uint64_t random = Draw();
  const int stride = strides_[(random >> 32) % strides_.size()];
  int thread = static_cast<int>((random & 0xffffffff) % block_threads_);
  int position = queue_count_;
  if (block_goes_on_) {
    position = 0;
    queue_first_ -= block_threads_;
    if (queue_first_ < 0) queue_first_ += threads_;
  }
  for (int i = 0; i < block_threads_; ++i) {
    PutReady(position + i, rank * block_threads_ + thread);
    thread += stride;
    if (thread >= block_threads_) thread -= block_threads_;
  }
  queue_count_ += block_threads_;
}

void FiberBlock::PushBlocks() {
  const int blocks = threads_ / block_threads_;
  const int first = blocks > 1 ? static_cast<int>(Draw() % blocks) : 0;
  for (int n = 0; n < blocks; ++n) PushBlock((first + n) % blocks);
}

void FiberBlock::PushWarp(int warp) {
  const int first = warp * lanes_, count = std::min(lanes_, threads_ - first);
  const uint64_t random = Draw();
  int lane = static_cast<int>((random >> 1) % count);
  const int step = random & 1 ? 1 : count - 1;
  int position = queue_count_;
  if (warp_goes_on_) {
    position = 0;
    queue_first_ -= count;
    if (queue_first_ < 0) queue_first_ += threads_;
  }
  queue_count_ += count;
  for (int i = 0; i < count; ++i) {
    PutReady(position + i, first + lane);
    lane += step;
    if (lane >= count) lane -= count;
  }
}

// Inlined, as every return after a switch goes where the processor did not expect.
[[gnu::always_inline]] inline void FiberBlock::Jump(Fiber* from, Fiber* to) {
  leaving_ = from;
  entering_ = to;
  FollowTo(to != nullptr ? to->followed : main_followed_);
  const context::transfer_t back =
      context::jump_fcontext(to != nullptr ? to->context : main_context_, this);
  // Whoever jumped here goes on from back.fctx.
  (leaving_ != nullptr ? leaving_->context : main_context_) = back.fctx;
}

[[gnu::always_inline]] inline void FiberBlock::SwitchFrom(Fiber* self) {
  if (queue_count_ == 0 || mismatch_) return Jump(self, nullptr);
  Fiber* next = &fibers_[queue_[queue_first_]];
  if (++queue_first_ == threads_) queue_first_ = 0;
  --queue_count_;
  if (next != self) Jump(self, next);
}

// A fiber's life: a thread of one block after the other.
void FiberBlock::Enter(context::transfer_t from) {
  FiberBlock* const owner = static_cast<FiberBlock*>(from.data);
  (owner->leaving_ != nullptr ? owner->leaving_->context : owner->main_context_) = from.fctx;
  Fiber* const self = owner->entering_;
  while (true) {
    owner->kernel_->run_thread(self);
    self->state = Fiber::kExited;
    ++owner->done_;
    ++owner->blocks_[self->rank].done;
    owner->SwitchFrom(self);
  }
}

namespace {

// Two sizes known to the compiler instead of a call: values have 4 bytes or 8.
void CopyValue(void* to, const void* from, int bytes) {
  if (bytes == 4) {
    std::memcpy(to, from, 4);
  } else {
    std::memcpy(to, from, 8);
  }
}

constexpr int kVoters = 32;  // threads that vote together, in a warp of any size

// A bit for each of the threads from lane `first` on whose value is not 0.
uint32_t Ballot(const uint64_t* slots, int first, int lanes, int bytes) {
  uint32_t votes = 0;
  for (int i = 0; i < kVoters && first + i < lanes; ++i) {
    uint64_t vote = 0;
    CopyValue(&vote, &slots[first + i], bytes);
    if (vote != 0) votes |= uint32_t{1} << i;
  }
  return votes;
}

}  // namespace

void FiberBlock::Barrier(rg_host_thread* self, int line) {
  Fiber* fiber = static_cast<Fiber*>(self);
  Block& block = blocks_[fiber->rank];
  fiber->state = Fiber::kAtBarrier;
  fiber->line = line;
  if (block.barrier.arrived == 0) block.barrier.line = line;
  if (line != block.barrier.line) mismatch_ = true;
  if (++block.barrier.arrived == block_threads_ && !mismatch_) {
    block.barrier.arrived = 0;
    ++block.epoch;
    PushBlock(fiber->rank);
  }
  SwitchFrom(fiber);
}

void FiberBlock::ClusterBarrier(rg_host_thread* self, int line) {
  Fiber* fiber = static_cast<Fiber*>(self);
  fiber->state = Fiber::kAtClusterBarrier;
  fiber->line = line;
  if (cluster_.arrived == 0) cluster_.line = line;
  if (line != cluster_.line) mismatch_ = true;
  if (++cluster_.arrived == threads_ && !mismatch_) {
    cluster_.arrived = 0;
    const int meetings = (blocks_[0].epoch >> kBlockEpochBits) + 1;
    for (Block& block : blocks_) block.epoch = meetings << kBlockEpochBits;
    PushBlocks();
  }
  SwitchFrom(fiber);
}

bool FiberBlock::Shuffle(rg_host_thread* self, int line, rg_host_shuffle_mode mode, int distance,
                         void* value, int bytes) {
  Fiber* fiber = static_cast<Fiber*>(self);
  const int warp_index = fiber->warp, lane = fiber->lane;
  const int count = std::min(lanes_, threads_ - warp_index * lanes_);
  Warp& warp = warps_[warp_index];
  const int side = warp.side;
  CopyValue(&warp.slots[side][lane], value, bytes);
  fiber->state = Fiber::kAtShuffle;
  fiber->line = line;
  if (warp.arrived == 0) warp.line = line;
  if (line != warp.line) mismatch_ = true;
  if (++warp.arrived == count && !mismatch_) {
    warp.arrived = 0;
    if (mode == rg_host_meeting) ++warp.meetings;
    // The other slots are free: to come here again, every lane has left the shuffle before.
    warp.side = 1 - side;
    PushWarp(warp_index);
  }
  SwitchFrom(fiber);

  if (mode == rg_host_meeting) return true;
  if (mode == rg_host_ballot) {
    const uint32_t votes = Ballot(warp.slots[side], lane / kVoters * kVoters, count, bytes);
    std::memcpy(value, &votes, sizeof votes);
    return true;
  }
  int source = mode == rg_host_shuffle_xor ? lane ^ distance : lane + distance;
  if (source < 0 || source >= lanes_) source = lane;  // past the warp: one's own value
  if (source >= count) return false;
  CopyValue(value, &warp.slots[side][source], bytes);
  return true;
}

int FiberBlock::meetings(const rg_host_thread* self) const {
  return warps_[static_cast<const Fiber*>(self)->warp].meetings;
}

void FiberBlock::Abandon(rg_host_thread* self, std::string why) {
  stuck_ = std::string();  // or its memory would stay with the abandoned thread
  stuck_ = std::move(why);
  abandoned_ = true;
  Jump(static_cast<Fiber*>(self), nullptr);
  RG_CHECK(false);  // nobody goes on with an abandoned thread
}

bool FiberBlock::Run(const rg_host_kernel& kernel, absl::Span<rg_host_block* const> blocks,
                     uint64_t seed) {
  RG_CHECK(kernel.threads == strides_of_ && kernel.warp >= 1 && kernel.warp <= kMostLanes);
  kernel_ = &kernel;
  block_threads_ = kernel.threads;
  threads_ = block_threads_ * static_cast<int>(blocks.size());
  lanes_ = kernel.warp;
  RG_CHECK(threads_ <= stacks_->count && (blocks.size() == 1 || block_threads_ % lanes_ == 0));
  random_ = seed;
  // Quicker, since the stacks of one warp stay in the cache; but one order of warps among many.
  warp_goes_on_ = !kernel.checked || (Draw() & 1) != 0;
  block_goes_on_ = blocks.size() > 1 && (Draw() & 1) != 0;
  std::fill(std::begin(blocks_), std::end(blocks_), Block());
  cluster_ = Meeting();
  done_ = queue_first_ = queue_count_ = 0;
  for (int i = 0; i < threads_; ++i) {
    Fiber& fiber = fibers_[i];
    fiber.rank = i / block_threads_;
    fiber.block = blocks[fiber.rank];
    fiber.thread = i % block_threads_;
    fiber.warp = i / lanes_;
    fiber.lane = i % lanes_;
    if (fiber.context != nullptr) continue;
    fiber.context = stacks_->Make(i, &Enter);
    fiber.followed = NewStack();
  }
  main_followed_ = ThisStack();
  for (int i = 0; i * lanes_ < threads_; ++i) warps_[i].arrived = warps_[i].meetings = 0;
  PushBlocks();
  SwitchFrom(nullptr);
  if (done_ == threads_) return true;
  if (!abandoned_) stuck_ = absl::StrCat("divergent threads: ", DescribeStuck());
  mismatch_ = abandoned_ = false;
  ForgetContexts();
  return false;
}

// "threads 0 and 127 more wait at the barrier in line 9; thread 128 has returned"
std::string FiberBlock::DescribeStuck() const {
  std::map<std::pair<int, int>, std::pair<int, int>> places;  // state, line -> first thread, count
  for (int i = 0; i < threads_; ++i) {
    const Fiber& fiber = fibers_[i];
    const int line = fiber.state == Fiber::kReady || fiber.state == Fiber::kExited ? 0 : fiber.line;
    ++places.try_emplace({fiber.state, line}, i, 0).first->second.second;
  }
  std::vector<std::string> parts;
  for (const auto& [place, threads] : places) {
    const auto& [first, count] = threads;
    std::string who = count == 1 ? absl::StrCat("thread ", first)
                                 : absl::StrCat("thread ", first, " and ", count - 1, " more");
    const bool one = count == 1;
    switch (place.first) {
      case Fiber::kAtBarrier:
        absl::StrAppend(&who, one ? " waits" : " wait", " at the barrier in line ", place.second);
        break;
      case Fiber::kAtClusterBarrier:
        absl::StrAppend(&who, one ? " waits" : " wait", " at the cluster's barrier in line ",
                        place.second);
        break;
      case Fiber::kAtShuffle:
        absl::StrAppend(&who, one ? " waits" : " wait", " at the shuffle in line ", place.second);
        break;
      case Fiber::kExited: absl::StrAppend(&who, one ? " has" : " have", " returned"); break;
      default: absl::StrAppend(&who, one ? " has" : " have", " not come that far");
    }
    parts.push_back(std::move(who));
  }
  return absl::StrJoin(parts, "; ");
}

}  // namespace retrograd
