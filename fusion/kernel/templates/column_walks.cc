#include "fusion/kernel/templates/column_walks.h"

#include <algorithm>
#include <utility>

#include "fusion/kernel/templates/kernel_template.h"

namespace retrograd {
namespace {

// From so many partial results on, several threads of a finalize launch share a column.
constexpr int64_t kManySplits = 16, kVeryManySplits = 64;

// Bounds of what sums that are folded together take of shared memory: what any GPU has for a block,
// less what a kernel holds beside; and for each thread of a block so much that an SM's threads fit.
constexpr int64_t kMostBytes = 40 << 10, kMostBytesOfThread = 96;

// How many reductions down columns add up in each type.
std::vector<std::pair<DType, int64_t>> SumsByType(const KernelIr& ir, AxisMask column_axes) {
  std::vector<std::pair<DType, int64_t>> types;
  for (const Instr& instr : ir.instrs) {
    const AxisMask folded = FoldedAxes(ir, instr);
    if (folded == 0 || (folded & column_axes) != 0) continue;
    const DType type = AccumulatorType(instr.dtype);
    auto same =
        std::find_if(types.begin(), types.end(), [&](const auto& t) { return t.first == type; });
    if (same == types.end()) same = types.insert(types.end(), {type, 0});
    ++same->second;
  }
  return types;
}

}  // namespace

int FinalizeThreadRows(int64_t split) {
  if (split >= kVeryManySplits) return 16;
  return split >= kManySplits ? 8 : 1;
}

int FinalizeLanes(int64_t split) { return FinalizeThreadRows(split) > 1 ? 32 : 128; }

ColumnFold ColumnFoldOf(int64_t thread_rows, int64_t lanes, int64_t width, DType type,
                        int64_t sums) {
  ColumnFold fold{.rows = {thread_rows}, .elements = thread_rows * lanes * width};
  for (int64_t rows = thread_rows; rows > kRowsInTurn && rows % kRowsInTurn == 0;) {
    rows /= kRowsInTurn;
    fold.rows.push_back(rows);
    fold.elements += rows * lanes * width;
  }
  const int64_t most = std::min(kMostBytes, kMostBytesOfThread * thread_rows * lanes);
  fold.together = std::clamp<int64_t>(most / (fold.elements * SizeBytes(type)), 1, sums);
  return fold;
}

bool FoldsTogether(const Schedule& s, int64_t launch) {
  return launch > 0 || !TemplateOf(s).keeps_columns;
}

int64_t ColumnTileBytes(const KernelIr& ir, const KernelProfile& p, const Schedule& s,
                        int64_t launch) {
  const int64_t rows = launch == 0 ? s.rows_per_block : FinalizeThreadRows(s.split);
  if (rows == 1 || p.column_accumulators.empty()) return 0;
  const int64_t lanes = launch == 0 ? s.threads / rows : FinalizeLanes(s.split);
  const int64_t width = launch == 0 ? s.vector_width : 1;
  const bool together = FoldsTogether(s, launch);
  int64_t bytes = 0;
  for (const auto& [type, sums] : SumsByType(ir, p.shape.shape.column_axes)) {
    const ColumnFold fold = ColumnFoldOf(rows, lanes, width, type, together ? sums : 1);
    bytes += SharedArrayBytes(fold.elements * fold.together, SizeBytes(type));
  }
  return bytes;
}

}  // namespace retrograd
