#include "runtime/host/pending_copies.h"

#include <cstring>

namespace retrograd {
namespace {

constexpr int kPoison = 0xff;  // of each byte: a NaN of every floating type

}  // namespace

void PendingCopies::Reserve(int threads) {
  if (threads_.size() < static_cast<size_t>(threads)) threads_.resize(threads);
  Clear();
}

void PendingCopies::Clear() {
  if (!any_) return;
  for (Thread& thread : threads_) {
    thread.copies.clear();
    thread.sent.clear();
    thread.in_batches = 0;
  }
  any_ = false;
}

void PendingCopies::Add(int thread, void* to, const void* from, int bytes) {
  std::memset(to, kPoison, bytes);
  threads_[thread].copies.push_back({to, from, bytes});
  any_ = true;
}

void PendingCopies::Send(int thread) {
  Thread& t = threads_[thread];
  t.sent.push_back(t.copies.size() - t.in_batches);
  t.in_batches = t.copies.size();
  any_ = true;
}

void PendingCopies::Wait(int thread, int under_way) {
  Thread& t = threads_[thread];
  while (t.sent.size() > static_cast<size_t>(under_way)) Deliver(t);
}

void PendingCopies::Deliver(Thread& thread) {
  const size_t count = thread.sent.front();
  for (size_t i = 0; i < count; ++i) {
    const Copy& copy = thread.copies[i];
    std::memcpy(copy.to, copy.from, copy.bytes);
  }
  thread.copies.erase(thread.copies.begin(), thread.copies.begin() + count);
  thread.sent.erase(thread.sent.begin());
  thread.in_batches -= count;
}

}  // namespace retrograd
