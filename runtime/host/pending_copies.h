// Copies into shared memory that a kernel has asked for and not waited for yet, by thread. Their
// target holds poison until they are delivered, which is as late as the kernel's waits allow: a
// kernel that reads too early finds no number.
#ifndef RETROGRAD_RUNTIME_HOST_PENDING_COPIES_H_
#define RETROGRAD_RUNTIME_HOST_PENDING_COPIES_H_

#include <cstddef>
#include <vector>

namespace retrograd {

class PendingCopies {
 public:
  // Room for the threads of a block; what was pending is forgotten.
  void Reserve(int threads);
  // A new block: what the one before left under way has no target any more.
  void Clear();

  // Of the thread's open batch: `bytes` from `from` to `to`, which holds poison from now on.
  void Add(int thread, void* to, const void* from, int bytes);
  // The open batch, empty or not, is under way; another one is open.
  void Send(int thread);
  // Delivers the oldest batches until no more than `under_way` are.
  void Wait(int thread, int under_way);

 private:
  struct Copy {
    void* to;
    const void* from;
    int bytes;
  };
  struct Thread {
    std::vector<Copy> copies;  // the oldest first; those behind the sent ones are the open batch
    std::vector<size_t> sent;  // copies of each batch under way, the oldest first
    size_t in_batches = 0;     // copies that were sent
  };

  void Deliver(Thread& thread);

  std::vector<Thread> threads_;
  bool any_ = false;
};

}  // namespace retrograd

#endif  // RETROGRAD_RUNTIME_HOST_PENDING_COPIES_H_
