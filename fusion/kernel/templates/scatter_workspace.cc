#include "fusion/kernel/templates/scatter_workspace.h"

#include <algorithm>

#include "fusion/kernel/templates/schedule.h"

namespace retrograd {
namespace {

// The workspace follows from the IR alone, on every device: these sizes are for the largest ones.

// Counters of a block, one for each of its digits and threads: 32 KiB of the 48 that each device's
// blocks have at least.
constexpr int64_t kCounters = 8192;
constexpr int64_t kFewIndices = 8192;  // a block of 128 threads goes through so many
// Indices that all blocks of a pass read: more take longer than another pass (one H200).
constexpr int64_t kMostVisits = int64_t{1} << 26;
constexpr int kDigitBits = 10;
constexpr int64_t kPacksAtOnce = 4;

// Threads that sum columns and chunks at once: 431 for each of the 304 units of the largest GPU.
constexpr int64_t kThreadsOfSums = 131072;
constexpr int64_t kColumnsOfThread = 4;  // an access of fp32 sums
constexpr int64_t kLeastChunk = 8, kMostChunk = 64;

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

int Bits(int64_t n) {
  int bits = 1;
  while ((n >> bits) != 0) ++bits;
  return bits;
}

ScatterSort SortOf(int64_t rows, int64_t table_rows) {
  ScatterSort s;
  s.threads = rows <= kFewIndices ? 128 : 512;
  s.own_digits = kCounters / s.threads;
  s.digits = table_rows + 1;
  const int64_t packs = std::max<int64_t>(CeilDiv(CeilDiv(rows, s.threads), 4), 1);
  s.at_once = std::min(packs, kPacksAtOnce);
  s.packs = CeilDiv(packs, s.at_once) * s.at_once;
  const int bits = Bits(table_rows);
  if (CeilDiv(s.digits, s.own_digits) * rows > kMostVisits && bits > kDigitBits) {
    s.passes = static_cast<int>(CeilDiv(bits, kDigitBits));
    s.digit_bits = kDigitBits;
    s.digits = int64_t{1} << kDigitBits;
  }
  return s;
}

// As many chunks as make enough threads, but rows of the table whose segments go through many
// chunks have no more partial sums than positions of a chunk.
int64_t ChunkOf(const ScatterWorkspace& w, int64_t table_rows) {
  const int64_t columns = w.outer * CeilDiv(w.inner, kColumnsOfThread);
  const int64_t segment = w.rows / std::max<int64_t>(table_rows, 1);
  int64_t chunk = kLeastChunk;
  while (chunk < kMostChunk &&
         (CeilDiv(w.rows, chunk * 2) * columns >= kThreadsOfSums || chunk * chunk * 4 <= segment)) {
    chunk *= 2;
  }
  return chunk;
}

}  // namespace

// Counters of one thread are apart by the rows of the table, and those that one thread adds up by
// some words more, so that either way neighbours meet different banks.
int64_t ScatterCounters(const ScatterSort& sort) {
  const int64_t counters = sort.threads * sort.own_digits;
  return counters + counters / 32;
}

int ScatterLaunches(const ScatterWorkspace& w) {
  if (w.empty()) return 1;
  return 1 + w.sort.passes + (w.sort.passes > 1 ? 1 : 0) + 2;  // keys, sort, starts; sums, combine
}

ScatterWorkspace ScatterWorkspaceOf(const KernelIr& ir) {
  ScatterWorkspace w;
  const Scatter& scatter = *ir.scatter;
  w.rows = ir.Points(scatter.row_axes);
  bool before = true;
  for (size_t a = 0; a < ir.extents.size(); ++a) {
    if ((scatter.row_axes >> a & 1) != 0) {
      before = false;
    } else {
      (before ? w.outer : w.inner) *= ir.extents[a];
    }
  }
  w.sort = SortOf(w.rows, scatter.table_rows);
  w.chunk = ChunkOf(w, scatter.table_rows);
  w.chunks = CeilDiv(w.rows, w.chunk);
  auto place = [&](int64_t bytes) {
    const int64_t at = w.bytes;
    w.bytes += (bytes + 15) / 16 * 16;
    return at;
  };
  const int64_t dealt = 16 * w.sort.packs * w.sort.threads;
  w.starts = place(4 * (scatter.table_rows + 1));
  w.order = place(4 * w.rows);
  w.keys = place(4 * w.rows);
  w.dealt_keys[0] = place(dealt);
  if (w.sort.passes > 1) {
    w.dealt_keys[1] = place(dealt);
    w.dealt_order[1] = place(dealt);
  }
  if (w.sort.passes > 2) w.dealt_order[0] = place(dealt);
  w.partials = place(w.outer * w.chunks * 2 * w.inner *
                     SizeBytes(AccumulatorType(ir.buffers[scatter.buffer].dtype)));
  return w;
}

}  // namespace retrograd
