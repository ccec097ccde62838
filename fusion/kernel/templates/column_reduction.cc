// Reductions keep the fastest axis: threads own columns and go down the rows.
#include <algorithm>

#include "fusion/kernel/ir/scale.h"
#include "fusion/kernel/templates/column_walks.h"
#include "fusion/kernel/templates/kernel_template.h"

namespace retrograd {
namespace {

// Search bounds: the largest block that either vendor runs, and what a thread loads before it works
// on the first, half of the registers of one of 2048 threads that share 65,536.
constexpr int kMostThreads = 1024;
constexpr int kMostRowsAtOnce = 8;
constexpr int64_t kBytesAtOnce = 128;
constexpr int64_t kSectorBytes = 32;  // that memory moves at once

std::optional<Classification> Recognise(const KernelIr& ir, const Folds& folds) {
  if (folds.sets.size() != 1 || folds.across(folds.sets[0])) return std::nullopt;
  const AxisMask rows = folds.sets[0], columns = ir.all_axes() & ~rows;
  if (std::string why = ColumnResultMisused(ir, columns, folds.long_axes); !why.empty()) {
    return Refused(why);
  }
  return Recognised(ir, Template::kColumnReduction, rows, columns);
}

Schedule Column(const CandidateList& list, int threads, int thread_rows, int width, int64_t split) {
  Schedule s{.kind = Template::kColumnReduction, .threads = threads, .vector_width = width};
  s.rows_per_block = thread_rows;
  s.split = split;
  s.blocks = CeilDiv(list.shape().columns, int64_t{threads / thread_rows} * width) * split;
  return s;
}

// So many rows of a thread at once as it has, and as its registers take.
Schedule WithRowsAtOnce(const CandidateList& list, int64_t row_bytes, Schedule s) {
  const int64_t rows = CeilDiv(CeilDiv(list.shape().rows, s.split), s.rows_per_block);
  const int64_t bytes = std::max<int64_t>(row_bytes * s.vector_width, 1);
  const int most = list.limits().rows_at_once ? kMostRowsAtOnce : 1;
  while (s.rows_per_thread * 2 <= most && s.rows_per_thread < rows &&
         s.rows_per_thread * 2 * bytes <= kBytesAtOnce) {
    s.rows_per_thread *= 2;
  }
  return s;
}

bool StoresRows(const CandidateList& list) {
  const KernelIr& ir = list.ir();
  return std::any_of(ir.stores.begin(), ir.stores.end(), [&](const Store& store) {
    return (ir.instrs[store.instr].axes & list.shape().row_axes) != 0;
  });
}

int64_t LoadedBytesOfElement(const CandidateList& list) {
  int64_t bytes = 0;
  for (const Instr& i : list.ir().instrs) {
    if (i.kind == InstrKind::kLoad && (i.axes & list.shape().row_axes) != 0) {
      bytes += SizeBytes(i.dtype);
    }
  }
  return bytes;
}

// Of the types that are loaded from every row, the narrowest; 0: nothing is.
int64_t NarrowestBytesOfElement(const CandidateList& list) {
  int64_t bytes = 0;
  for (const Instr& i : list.ir().instrs) {
    if (i.kind != InstrKind::kLoad || (i.axes & list.shape().row_axes) == 0) continue;
    const int64_t size = SizeBytes(list.ir().buffers[i.buffer].dtype);
    bytes = bytes == 0 ? size : std::min(bytes, size);
  }
  return bytes;
}

// The same with fewer columns a thread, as long as a block's piece of a row fills sectors and all
// rows of a thread are under way at once: so the columns are spread over more SMs, and each thread
// has less to do behind its loads.
void AddNarrower(CandidateList& list, int64_t row_bytes, const Schedule& whole) {
  const int64_t lanes = whole.threads / whole.rows_per_block;
  const int64_t bytes = NarrowestBytesOfElement(list);
  for (int width = whole.vector_width / 2; width >= 1; width /= 2) {
    if (lanes * width * bytes < kSectorBytes) break;
    const Schedule s = WithRowsAtOnce(list, row_bytes,
                                      Column(list, whole.threads, whole.rows_per_block, width, 1));
    if (s.blocks > list.limits().sms) break;
    if (CeilDiv(list.shape().rows, s.rows_per_block) <= s.rows_per_thread) list.Add(s);
  }
}

// Blocks, by their threads and thread rows. The largest do without a split: what they sum is too
// little for a second launch to pay. One that stores rows, too, has but narrow pieces of them (12
// us on an H200 where others took 8).
struct BlockShape {
  int threads, thread_rows;
};
constexpr BlockShape kBlocks[] = {
    {kThreads, 1},  {kThreads, 4},   {kThreads, 8},   {kThreads, 16},      {kThreads, 32},
    {kThreads, 64}, {kThreads, 128}, {kThreads, 256}, {kMostThreads, 128}, {kMostThreads, 256}};
constexpr int kLeastLanes = 8;  // that blocks have beside each other where all have columns

// Whether few lanes of the block's have no column, and few of its thread rows no row. Fewer lanes
// than kLeastLanes are for rows that are too narrow for twice as many.
bool FitsColumns(const CandidateList& list, int lanes, int thread_rows) {
  if (thread_rows == 1) return true;
  const int64_t columns = std::max<int64_t>(list.shape().columns, 1);
  const int64_t side_by_side = int64_t{lanes} * list.widest();
  const bool narrow = lanes < kLeastLanes && thread_rows * lanes == kThreads;
  if (narrow && 2 * side_by_side <= columns) return false;
  return side_by_side < 8 * columns && thread_rows / 2 < list.shape().rows;
}

void AddCandidates(CandidateList& list) {
  const RowsAndColumns& shape = list.shape();
  const int widest = list.widest();
  const int64_t sms = list.limits().sms, row_bytes = LoadedBytesOfElement(list);
  list.Add(Column(list, kThreads, 1, 1, 1));
  for (const auto [threads, thread_rows] : kBlocks) {
    if (threads > kThreads && StoresRows(list)) break;
    if (!FitsColumns(list, threads / thread_rows, thread_rows)) continue;
    const Schedule whole = Column(list, threads, thread_rows, widest, 1);
    if (whole.blocks > kMaxBlocks) continue;
    if (threads > kThreads && whole.blocks > sms) continue;
    list.Add(WithRowsAtOnce(list, row_bytes, whole));
    if (threads > kThreads) {
      AddNarrower(list, row_bytes, whole);
      continue;
    }
    for (int waves : {1, 2, 4, 8}) {
      if (!list.limits().split) continue;
      const int64_t split =
          std::min(CeilDiv(shape.rows, thread_rows), CeilDiv(sms * waves, whole.blocks));
      if (split <= 1) continue;
      list.Add(WithRowsAtOnce(list, row_bytes, Column(list, kThreads, thread_rows, widest, split)));
    }
  }
}

LaunchKind Main(const Schedule&) { return LaunchKind::kColumnReduction; }

LaunchKind KindOf(const Schedule& s, int64_t launch, int64_t) {
  return launch == 0 ? Main(s) : LaunchKind::kColumnFinalize;
}

PointsOfThread Points(const KernelProfile&, const Schedule& s) {
  return {.at_once = s.vector_width,
          .under_way = int64_t{std::max(2, s.rows_per_thread)} * s.vector_width,
          .vectors = s.rows_per_thread};
}

int64_t SharedOfBlock(const KernelIr&, const KernelProfile& p, const Schedule& s, int64_t launch) {
  return ColumnTileBytes(p, s, launch);
}

int64_t Rounds(const KernelProfile& p, const Schedule& s, const DeviceSpec& d) {
  const int64_t rounds =
      2 + CeilDiv(p.shape.shape.rows, s.split * s.rows_per_block * s.rows_per_thread);
  return rounds + (s.rows_per_block > d.warp ? d.column_fold_barriers : 0);
}

RowBatches Batches(const KernelProfile& p, const Schedule& s) {
  const int64_t at_once = int64_t{s.rows_per_block} * s.rows_per_thread;
  return {.count = CeilDiv(p.shape.shape.rows, at_once * s.split)};
}

}  // namespace

constinit const KernelTemplate kColumnReductionTemplate = {
    .id = Template::kColumnReduction,
    .name = "column_reduction",
    .recognise = Recognise,
    .candidates = AddCandidates,
    .walk = Walk::kColumns,
    .sums_columns = true,
    .shares_launches = true,
    .in_place = true,
    .launch_kind = KindOf,
    .main_launch = Main,
    .points_of_thread = Points,
    .shared_bytes = SharedOfBlock,
    .barrier_rounds = Rounds,
    .row_batches = Batches,
    .streams = true,
    .finalize_ps = [](const DeviceSpec& d) { return d.column_finalize_ps; },
};

}  // namespace retrograd
