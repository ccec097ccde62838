#include "fusion/kernel/templates/scatter_workspace.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "fusion/kernel/ir/accesses/vector_access.h"
#include "fusion/kernel/ir/scale.h"
#include "fusion/kernel/templates/registers.h"
#include "fusion/kernel/templates/row_walks.h"

namespace retrograd {
namespace {

// The workspace follows from the IR alone, on every device: these sizes are for the largest ones.

// Threads that sum columns and chunks at once: 431 for each of the 304 units of the largest GPU.
constexpr int64_t kThreadsOfSums = 131072;
constexpr int64_t kColumnsOfThread = 4;  // an access of fp32 sums
constexpr int64_t kLeastChunk = 8, kMostDoubled = 64, kMostChunk = 128;

int64_t Batches(int64_t positions) { return positions / kLeastChunk * kLeastChunk; }

// A block adds up segments of many parts one behind the other for each eight vectors of columns:
// where it has more of these, a thread is as fast with more parts.
constexpr int64_t kFewParts = 32, kMostFewParts = 1024;

// --- what blocks share

constexpr int64_t kMostSharedBytes = int64_t{40} << 10;  // of the 48 that each block may have
constexpr int64_t kIntBytes = sizeof(int32_t);
constexpr int64_t kLeastReaders = 4;  // threads that read a position
constexpr int64_t kLeastBlocks = 4;   // of a slice: few threads of the last idle

// For the source and for what is stored of each position.
std::vector<bool> NeededAtPositions(const KernelIr& ir) {
  std::vector<bool> needed(ir.instrs.size(), false);
  needed[ir.scatter->src_instr] = true;
  for (const Store& store : ir.stores) needed[store.instr] = true;
  for (size_t i = ir.instrs.size(); i-- > 0;) {
    if (!needed[i]) continue;
    for (int o : ir.instrs[i].operands) needed[o] = true;
    for (const Indirect& ind : ir.instrs[i].indirect) needed[ind.instr] = true;
  }
  return needed;
}

AxisMask MentionedAxes(const Instr& instr) {
  AxisMask axes = instr.offset.axes();
  for (const Guard& guard : instr.guards) axes |= guard.expr.axes();
  return axes;
}

// Of how many rows the instruction says which one is gathered, if what is needed does nothing else
// with it, and the number fits into an int32; else 0.
int64_t RowsOfIndex(const KernelIr& ir, int index, const std::vector<bool>& needed) {
  int64_t rows = 0;
  for (const Store& store : ir.stores) {
    if (store.instr == index) return 0;
  }
  for (size_t i = 0; i < ir.instrs.size(); ++i) {
    if (!needed[i]) continue;
    // A load's operands are its indices.
    for (int o : ir.instrs[i].operands) {
      if (o == index && ir.instrs[i].kind != InstrKind::kLoad) return 0;
    }
    for (const Indirect& ind : ir.instrs[i].indirect) {
      if (ind.instr != index) continue;
      if (rows != 0 && ind.extent != rows) return 0;
      rows = ind.extent;
    }
  }
  return rows <= std::numeric_limits<int32_t>::max() ? rows : 0;
}

// Chunks of so many threads that a block's reach at most.
int64_t ChunksOfBlock(int64_t threads) {
  if (threads % kScatterThreads == 0) return 1;
  const bool aligned = kScatterThreads % threads == 0;
  return aligned ? kScatterThreads / threads : (kScatterThreads - 2) / threads + 2;
}

// The last segments go on in one chunk more, and a batch may go on behind the last position.
int64_t PositionsOfBlock(int64_t chunk, int64_t threads_of_chunk) {
  return (ChunksOfBlock(threads_of_chunk) + 1) * chunk + PositionsAtOnce(false);
}

// What is shared, whatever the chunk: all but of_block, bytes and finds_lost.
SharedPositions SharedValues(const KernelIr& ir, AxisMask inner_axes) {
  const AxisMask rows = ir.scatter->row_axes;
  const std::vector<bool> needed = NeededAtPositions(ir), after = AfterFolds(ir);
  const std::vector<bool> keys = KeyLoads(ir);
  std::vector<bool> read(ir.instrs.size(), false);  // by what varies over columns, if there are any
  SharedPositions shared;
  bool at_positions = !ir.stores.empty();  // columns are read there, or results stored
  for (size_t i = 0; i < ir.instrs.size(); ++i) {
    const Instr& instr = ir.instrs[i];
    const bool in_columns = (instr.axes & inner_axes) != 0 || after[i];
    if (!needed[i] || (!in_columns && inner_axes != 0)) continue;
    for (const Indirect& ind : instr.indirect) read[ind.instr] = true;
    if (!in_columns) continue;
    at_positions = at_positions || (MentionedAxes(instr) & rows) != 0;
    for (int o : instr.operands) read[o] = true;
  }
  for (const Store& store : ir.stores) read[store.instr] = true;
  shared.places = at_positions && !ir.scatter->in_order;
  for (size_t i = 0; i < ir.instrs.size(); ++i) {
    const Instr& instr = ir.instrs[i];
    if (!read[i] || (instr.axes & rows) == 0) continue;
    if ((instr.axes & inner_axes) != 0 || after[i]) continue;
    if (keys[i]) {
      shared.keys.push_back(static_cast<int>(i));
      continue;
    }
    shared.values.push_back(static_cast<int>(i));
    shared.rows.push_back(RowsOfIndex(ir, static_cast<int>(i), needed));
  }
  shared.rows_alone = !at_positions && shared.keys.empty();
  return shared;
}

// Of one position's value number v, as it is shared.
int64_t SharedBytesOf(const KernelIr& ir, const SharedPositions& shared, size_t v) {
  if (shared.rows[v] > 0) return kIntBytes;
  return SizeBytes(ComputeType(ir.instrs[static_cast<size_t>(shared.values[v])].dtype));
}

// Positions of shared arrays that hold so many: as many rounds of what a block's threads load.
int64_t SharedArrayOf(int64_t positions) {
  const int64_t at_once =
      kScatterThreads * std::min(CeilDiv(positions, kScatterThreads), kMostSharedAtOnce);
  return CeilDiv(positions, at_once) * at_once;
}

// Columns of a thread that shares positions: an access of the table, where as many threads read a
// position that sharing gains something (docs/decisions/052-sorted-indices.md).
int64_t ColumnsOfSharer(const KernelIr& ir, const ScatterWorkspace& w) {
  const int64_t widest = kMaxAccessBytes / SizeBytes(ir.buffers[ir.scatter->buffer].dtype);
  return w.inner / widest > kLeastReaders ? std::max(widest, kColumnsOfThread) : kColumnsOfThread;
}

// The longest chunk by which blocks can share their positions, or kMostChunk where they share none.
int64_t MostSharedChunk(const KernelIr& ir, const ScatterWorkspace& w) {
  const int64_t threads = CeilDiv(w.inner, ColumnsOfSharer(ir, w));
  if (threads < kLeastReaders) return kMostChunk;
  const SharedPositions shared = SharedValues(ir, w.inner_axes);
  int64_t bytes = (shared.places ? 2 : 1) * kIntBytes;
  for (size_t v = 0; v < shared.values.size(); ++v) bytes += SharedBytesOf(ir, shared, v);
  constexpr int64_t kFound = kScatterThreads / 32 * kIntBytes;
  const int64_t most =
      std::min((kMostSharedBytes - kFound) / bytes, threads * kScatterThreads * kMostSharedAtOnce);
  for (int64_t chunk = kMostChunk; chunk >= kLeastChunk; chunk -= kLeastChunk) {
    const bool few =
        w.outer > 1 && CeilDiv(w.sorted.indices, chunk) * threads < kLeastBlocks * kScatterThreads;
    if (!few && SharedArrayOf(PositionsOfBlock(chunk, threads)) <= most) return chunk;
  }
  return kMostChunk;
}

// As many positions as leave enough threads: a power of two of them, or where there are more
// threads than wanted by chunks of kMostDoubled, a multiple of eight. Rows of the table whose
// segments go through many chunks have no more partial sums than positions of a chunk. Chunks of
// threads that fold columns, which keep much of each position, have kMostDoubled at most.
int64_t ChunkOf(const KernelIr& ir, const ScatterWorkspace& w) {
  const int64_t columns = w.outer * CeilDiv(w.inner, kColumnsOfThread);
  const int64_t indices = w.sorted.indices;
  const int64_t segment = indices / std::max<int64_t>(w.sorted.rows, 1);
  int64_t chunk = kLeastChunk;
  while (chunk < kMostDoubled && (CeilDiv(indices, chunk * 2) * columns >= kThreadsOfSums ||
                                  chunk * chunk * 4 <= segment)) {
    chunk *= 2;
  }
  if (chunk < kMostDoubled || FoldedColumns(ir) != 0) return chunk;
  const int64_t longer = Batches(Product({indices, columns}) / kThreadsOfSums);
  return std::max(chunk, std::min(longer, MostSharedChunk(ir, w)));
}

}  // namespace

int ScatterLaunches(const ScatterWorkspace& w) { return w.empty() ? 1 : 2; }  // sums, combine

int64_t SharedBytesOfCombine(const KernelIr& ir, int vector_width) {
  if (!ScatterWorkspaceOf(ir).may_have_many()) return 0;
  const DType sum = AccumulatorType(ir.buffers[ir.scatter->buffer].dtype);
  return SharedArrayBytes(kScatterThreads, kIntBytes) +
         SharedArrayBytes(kScatterThreads / 32, kIntBytes) +
         SharedArrayBytes(int64_t{kScatterThreads} * vector_width, SizeBytes(sum));
}

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
      (before ? w.outer_axes : w.inner_axes) |= AxisMask{1} << a;
    }
  }
  w.chunk = ChunkOf(ir, w);
  w.chunks = CeilDiv(w.sorted.indices, w.chunk);
  w.few_parts = std::clamp(w.inner, kFewParts, kMostFewParts);
  const int64_t partials = w.outer * w.chunks * 2 * w.inner;
  w.bytes = partials * SizeBytes(AccumulatorType(ir.buffers[scatter.buffer].dtype));
  w.bytes = (w.bytes + 15) / 16 * 16;
  return w;
}

AxisMask FoldedColumns(const KernelIr& ir) {
  AxisMask folded = 0;
  for (const Instr& instr : ir.instrs) folded |= FoldedAxes(ir, instr);
  return folded;
}

ChunkThreads ChunkThreadsOf(const KernelIr& ir, int vector_width) {
  ChunkThreads threads{.vectors = CeilDiv(ScatterWorkspaceOf(ir).inner, vector_width)};
  const AxisMask folded = FoldedColumns(ir);
  if (folded == 0) return threads;
  threads.fold = CeilDiv(ir.Points(folded), vector_width);
  threads.team = PowerOfTwoFrom(threads.fold);
  return threads;
}

bool FoldsInWarps(const KernelIr& ir, int vector_width) {
  const AxisMask folded = FoldedColumns(ir);
  return folded == 0 || (ir.extents[FastestAxis(ir)] % vector_width == 0 &&
                         ChunkThreadsOf(ir, vector_width).team <= kLeastWarp);
}

std::vector<bool> AfterFolds(const KernelIr& ir) {
  std::vector<bool> after(ir.instrs.size(), false);
  for (size_t i = 0; i < ir.instrs.size(); ++i) {
    after[i] = FoldedAxes(ir, ir.instrs[i]) != 0;
    for (int o : ir.instrs[i].operands) after[i] = after[i] || after[o];
    for (const Indirect& ind : ir.instrs[i].indirect) after[i] = after[i] || after[ind.instr];
  }
  return after;
}

std::vector<bool> KeyLoads(const KernelIr& ir) {
  std::vector<bool> keys(ir.instrs.size(), false);
  const AxisMask rows = ir.scatter->row_axes;
  const std::vector<bool> needed = NeededAtPositions(ir);
  for (size_t i = 0; i < ir.instrs.size(); ++i) {
    const Instr& instr = ir.instrs[i];
    if (instr.kind != InstrKind::kLoad || !ir.buffers[instr.buffer].sorted_by_list) continue;
    if (instr.axes != rows || (rows & (rows - 1)) != 0) continue;  // one axis numbers positions
    const int axis = std::countr_zero(rows);
    const bool own =
        instr.indirect.empty() && instr.guards.empty() && instr.offset == IndexExpr::Axis(axis);
    keys[i] = own && RowsOfIndex(ir, static_cast<int>(i), needed) == ir.scatter->table_rows;
  }
  return keys;
}

int64_t ThreadsOfSlice(const KernelIr& ir, int vector_width) {
  return ScatterWorkspaceOf(ir).chunks * ChunkThreadsOf(ir, vector_width).count();
}

int64_t BlocksOfSums(const KernelIr& ir, const Schedule& s) {
  const ScatterWorkspace w = ScatterWorkspaceOf(ir);
  if (w.empty()) return 0;
  const int64_t slice = ThreadsOfSlice(ir, s.vector_width);
  return s.staged > 0 ? w.outer * CeilDiv(slice, kScatterThreads)
                      : CeilDiv(w.outer * slice, kScatterThreads);
}

SharedPositions SharedPositionsOf(const KernelIr& ir, int vector_width) {
  const ScatterWorkspace w = ScatterWorkspaceOf(ir);
  SharedPositions shared = SharedValues(ir, w.inner_axes);
  const ChunkThreads of_chunk = ChunkThreadsOf(ir, vector_width);
  const int64_t threads = std::max<int64_t>(of_chunk.count(), 1);
  shared.of_block = SharedArrayOf(PositionsOfBlock(w.chunk, threads));
  shared.bytes = (shared.places ? 2 : 1) * SharedArrayBytes(shared.of_block, kIntBytes);
  for (size_t v = 0; v < shared.values.size(); ++v) {
    shared.bytes += SharedArrayBytes(shared.of_block, SharedBytesOf(ir, shared, v));
  }
  const bool names_rows =
      std::any_of(shared.rows.begin(), shared.rows.end(), [](int64_t rows) { return rows > 0; });
  const bool whole = HasWholeBatches(w.chunk, FoldedColumns(ir) != 0) && !of_chunk.idle();
  shared.finds_lost =
      shared.rounds() == 1 && whole && (names_rows || !shared.keys.empty() || !ir.stores.empty());
  if (shared.finds_lost) shared.bytes += SharedArrayBytes(kScatterThreads / 32, kIntBytes);
  return shared;
}

bool CanSharePositions(const KernelIr& ir, int vector_width) {
  const ScatterWorkspace w = ScatterWorkspaceOf(ir);
  if (w.empty() || w.inner / vector_width < kLeastReaders) return false;
  if (w.outer > 1 && ThreadsOfSlice(ir, vector_width) < kLeastBlocks * kScatterThreads)
    return false;
  const SharedPositions shared = SharedPositionsOf(ir, vector_width);
  const bool more = shared.places || !shared.values.empty() || !shared.keys.empty();
  // Each round is waited for by all of the block.
  const bool soon = shared.rounds() <= w.inner / vector_width;
  return more && soon && shared.bytes <= kMostSharedBytes;
}

}  // namespace retrograd
