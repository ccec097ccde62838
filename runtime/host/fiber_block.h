// FiberBlock: runs the threads of one block of a cooperative host kernel, or of the blocks of one
// cluster, as fibers on the calling thread. Between barriers and shuffles the threads run in an
// order drawn from a seed, so that code that relies on an order is found out. Threads that wait in
// vain are reported, never waited for.
#ifndef RETROGRAD_RUNTIME_HOST_FIBER_BLOCK_H_
#define RETROGRAD_RUNTIME_HOST_FIBER_BLOCK_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "codegen/preludes/host_abi.h"

namespace boost::context::detail {
struct transfer_t;
}

namespace retrograd {

class FiberBlock {
 public:
  static constexpr int kMostThreads = 1024;  // of a block
  static constexpr int kMostBlocks = 16;     // of a cluster
  static constexpr int kMostLanes = 64;      // of a warp

  FiberBlock();
  ~FiberBlock();
  FiberBlock(const FiberBlock&) = delete;
  FiberBlock& operator=(const FiberBlock&) = delete;

  // Stacks for that many threads of so many blocks; allocates only where an earlier call did not.
  absl::Status Reserve(int threads, int blocks = 1);

  // Runs every thread of the kernel's cluster of blocks to its end: true. Or to where threads wait
  // for others that never come: false, and stuck() says who waits where.
  bool Run(const rg_host_kernel& kernel, absl::Span<rg_host_block* const> blocks, uint64_t seed);
  const std::string& stuck() const { return stuck_; }

  // Ends the block from within one of its threads, as stuck with this text.
  [[noreturn]] void Abandon(rg_host_thread* self, std::string why);

  // Barriers that the block with this number in its cluster has passed: of the cluster times 2^20,
  // and its own.
  int epoch(int rank = 0) const { return blocks_[rank].epoch; }
  // Whether all of its threads have returned.
  bool ended(int rank) const { return blocks_[rank].done == block_threads_; }
  // Meetings that the warp of a running fiber has passed.
  int meetings(const rg_host_thread* self) const;

  // What running fibers call.
  void Barrier(rg_host_thread* self, int line);
  void ClusterBarrier(rg_host_thread* self, int line);
  // False if the lane to read from does not exist: *value stays.
  bool Shuffle(rg_host_thread* self, int line, rg_host_shuffle_mode mode, int distance, void* value,
               int bytes);

 private:
  struct Fiber;
  struct Warp;
  struct Stacks;
  static void Enter(boost::context::detail::transfer_t from);

  uint64_t Draw();                         // the next random number
  void PutReady(int position, int fiber);  // into the queue
  void PushBlock(int rank);                // all fibers of a block
  void PushBlocks();                       // of all blocks
  void PushWarp(int warp);                 // all lanes of a warp
  void SwitchFrom(Fiber* self);       // to the next ready fiber, or back to Run if there is none
  void Jump(Fiber* from, Fiber* to);  // null: Run's own context
  void ForgetContexts();              // the next block makes new ones
  std::string DescribeStuck() const;

  std::unique_ptr<Stacks> stacks_;
  std::vector<Fiber> fibers_;
  std::vector<Warp> warps_;
  std::vector<int> queue_;  // a ring of ready fibers, each at most once
  int queue_first_ = 0, queue_count_ = 0;

  const rg_host_kernel* kernel_ = nullptr;
  int threads_ = 0, block_threads_ = 0, lanes_ = 0;  // threads_: of all blocks
  struct Meeting {
    int arrived = 0, line = 0;
  };
  struct Block {
    Meeting barrier;
    int done = 0, epoch = 0;
  };
  Block blocks_[kMostBlocks];
  Meeting cluster_;
  int done_ = 0;
  bool warp_goes_on_ = true;    // after a shuffle, the warp's lanes before all other threads
  bool block_goes_on_ = false;  // after a barrier, the block's threads before those of its cluster
  bool mismatch_ = false;       // threads met at different barriers or shuffles
  bool abandoned_ = false;
  uint64_t random_ = 0;
  std::vector<int> strides_;  // coprime to a block's threads: orders in which to push it
  int strides_of_ = 0;        // the number of threads that strides_ is for
  void *main_context_ = nullptr, *main_followed_ = nullptr;
  Fiber *leaving_ = nullptr, *entering_ = nullptr;  // of the jump under way; null: Run
  std::string stuck_;
};

}  // namespace retrograd

#endif  // RETROGRAD_RUNTIME_HOST_FIBER_BLOCK_H_
