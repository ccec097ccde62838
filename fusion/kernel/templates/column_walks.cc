#include "fusion/kernel/templates/column_walks.h"

namespace retrograd {
namespace {

// From so many partial results on, several threads of a finalize launch share a column.
constexpr int64_t kManySplits = 16, kVeryManySplits = 64;

int64_t TileElements(const Schedule& s, int64_t launch) {
  if (launch == 0) return s.rows_per_block > 1 ? int64_t{s.threads} * s.vector_width : 0;
  const int thread_rows = FinalizeThreadRows(s.split);
  return thread_rows > 1 ? int64_t{thread_rows} * FinalizeLanes(s.split) : 0;
}

}  // namespace

int FinalizeThreadRows(int64_t split) {
  if (split >= kVeryManySplits) return 16;
  return split >= kManySplits ? 8 : 1;
}

int FinalizeLanes(int64_t split) { return FinalizeThreadRows(split) > 1 ? 32 : 128; }

int64_t ColumnTileBytes(const KernelProfile& p, const Schedule& s, int64_t launch) {
  int64_t bytes = 0;
  for (int accumulator : p.column_accumulators) {
    bytes += SharedArrayBytes(TileElements(s, launch), accumulator);
  }
  return bytes;
}

}  // namespace retrograd
