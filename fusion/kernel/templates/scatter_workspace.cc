#include "fusion/kernel/templates/scatter_workspace.h"

#include <algorithm>

#include "fusion/kernel/templates/schedule.h"

namespace retrograd {
namespace {

// The workspace follows from the IR alone, on every device: these sizes are for the largest ones.

// Threads that sum columns and chunks at once: 431 for each of the 304 units of the largest GPU.
constexpr int64_t kThreadsOfSums = 131072;
constexpr int64_t kColumnsOfThread = 4;  // an access of fp32 sums
constexpr int64_t kLeastChunk = 8, kMostChunk = 64;

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// As many chunks as make enough threads, but rows of the table whose segments go through many
// chunks have no more partial sums than positions of a chunk.
int64_t ChunkOf(const ScatterWorkspace& w) {
  const int64_t columns = w.outer * CeilDiv(w.inner, kColumnsOfThread);
  const int64_t indices = w.sorted.indices;
  const int64_t segment = indices / std::max<int64_t>(w.sorted.rows, 1);
  int64_t chunk = kLeastChunk;
  while (chunk < kMostChunk && (CeilDiv(indices, chunk * 2) * columns >= kThreadsOfSums ||
                                chunk * chunk * 4 <= segment)) {
    chunk *= 2;
  }
  return chunk;
}

}  // namespace

int ScatterLaunches(const ScatterWorkspace& w) { return w.empty() ? 1 : 2; }  // sums, combine

ScatterWorkspace ScatterWorkspaceOf(const KernelIr& ir) {
  ScatterWorkspace w;
  const Scatter& scatter = *ir.scatter;
  w.sorted = {.rows = scatter.table_rows, .indices = ir.Points(scatter.row_axes)};
  bool before = true;
  for (size_t a = 0; a < ir.extents.size(); ++a) {
    if ((scatter.row_axes >> a & 1) != 0) {
      before = false;
    } else {
      (before ? w.outer : w.inner) *= ir.extents[a];
    }
  }
  w.chunk = ChunkOf(w);
  w.chunks = CeilDiv(w.sorted.indices, w.chunk);
  const int64_t partials = w.outer * w.chunks * 2 * w.inner;
  w.bytes = partials * SizeBytes(AccumulatorType(ir.buffers[scatter.buffer].dtype));
  w.bytes = (w.bytes + 15) / 16 * 16;
  return w;
}

}  // namespace retrograd
