#include "fusion/kernel/templates/column_walks.h"

#include <algorithm>

#include "fusion/kernel/ir/scale.h"

namespace retrograd {
namespace {

// From so many partial results on, several threads of a finalize launch share a column. A block has
// the fewer columns the more results they have: an SM alone would take long to bring them in.
constexpr int64_t kManySplits = 16, kVeryManySplits = 64, kMostSplits = 256;

// Partial results that a thread has under way: a quarter of the registers that any thread may have.
constexpr int64_t kPartialBytesAtOnce = 256;

// Bounds of what sums that are folded together take of shared memory: what any GPU has for a block,
// less what a kernel holds beside; and for each thread of a block so much that an SM's threads fit.
constexpr int64_t kMostBytes = 40 << 10, kMostBytesOfThread = 96;

// Calls step(rows) with the rows that are left behind each step of a fold.
template <typename Fn>
void ForEachStep(int64_t thread_rows, Fn step) {
  for (int64_t rows = thread_rows; rows > kRowsInTurn && rows % kRowsInTurn == 0;) {
    rows /= kRowsInTurn;
    step(rows);
  }
}

// Of shared memory for one sum.
int64_t FoldElements(int64_t thread_rows, int64_t lanes, int64_t width) {
  int64_t rows = thread_rows;
  ForEachStep(thread_rows, [&](int64_t left) { rows += left; });
  return rows * lanes * width;
}

// Of up to `sums` sums that take so many elements each.
int64_t SumsTogether(int64_t thread_rows, int64_t lanes, int64_t elements, DType type,
                     int64_t sums) {
  const int64_t most = std::min(kMostBytes, kMostBytesOfThread * thread_rows * lanes);
  return std::clamp<int64_t>(most / (elements * SizeBytes(type)), 1, sums);
}

}  // namespace

int FinalizeThreadRows(int64_t split) {
  if (split >= kMostSplits) return 32;
  if (split >= kVeryManySplits) return 16;
  return split >= kManySplits ? 8 : 1;
}

int FinalizeLanes(int64_t split) {
  if (split >= kMostSplits) return 16;
  return FinalizeThreadRows(split) > 1 ? 32 : 128;
}

int64_t PartialsAtOnce(int64_t split, int64_t bytes) {
  const int64_t share = CeilDiv(split, FinalizeThreadRows(split));
  const int64_t most = std::clamp<int64_t>(kPartialBytesAtOnce / bytes, 1, share);
  return CeilDiv(share, CeilDiv(share, most));  // turns of about equal length
}

ColumnFold ColumnFoldOf(int64_t thread_rows, int64_t lanes, int64_t width, DType type,
                        int64_t sums) {
  ColumnFold fold{.rows = {thread_rows}, .elements = FoldElements(thread_rows, lanes, width)};
  ForEachStep(thread_rows, [&](int64_t left) { fold.rows.push_back(left); });
  fold.together = SumsTogether(thread_rows, lanes, fold.elements, type, sums);
  return fold;
}

int64_t ColumnTileBytes(const KernelProfile& p, const Schedule& s, int64_t launch) {
  const int64_t rows = launch == 0 ? s.rows_per_block : FinalizeThreadRows(s.split);
  if (rows == 1 || p.column_accumulators.empty()) return 0;
  const int64_t lanes = launch == 0 ? s.threads / rows : FinalizeLanes(s.split);
  const int64_t width = launch == 0 ? s.vector_width : 1;
  const int64_t elements = FoldElements(rows, lanes, width);
  int64_t bytes = 0;
  for (const auto& [type, sums] : p.column_accumulators) {
    const int64_t at_once = SumsTogether(rows, lanes, elements, type, sums);
    bytes += SharedArrayBytes(elements * at_once, SizeBytes(type));
  }
  return bytes;
}

}  // namespace retrograd
