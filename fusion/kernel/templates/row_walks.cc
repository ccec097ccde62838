#include "fusion/kernel/templates/row_walks.h"

#include <algorithm>
#include <iterator>

#include "fusion/kernel/ir/scale.h"

namespace retrograd {
namespace {

// A search bound.
constexpr int64_t kMostBatches = 4;

}  // namespace

absl::Span<const int> RowsAtOnce(const ScheduleLimits& limits) {
  static constexpr int kRowsAtOnce[] = {1, 2};
  return absl::MakeConstSpan(kRowsAtOnce, limits.rows_at_once ? std::size(kRowsAtOnce) : 1);
}

Schedule RowSchedule(const CandidateList& list, Template id, int threads_per_row, int width,
                     int at_once, bool persistent) {
  Schedule s{.kind = id, .vector_width = width};
  s.threads_per_row = threads_per_row;
  s.rows_per_block = std::max(1, kThreads / threads_per_row);
  s.threads = threads_per_row * s.rows_per_block;
  s.rows_per_thread = at_once;
  s.persistent = persistent;
  s.blocks = std::min(CeilDiv(list.shape().rows, int64_t{s.rows_per_block} * at_once), kMaxBlocks);
  return s;
}

int64_t PowerOfTwoFrom(int64_t n) {
  int64_t p = 1;
  while (p < n) p *= 2;
  return p;
}

bool FitsRow(const CandidateList& list, int threads_per_row, int width) {
  const int64_t columns = std::max<int64_t>(list.shape().columns, 1);
  return threads_per_row <= std::max<int64_t>(PowerOfTwoFrom(CeilDiv(columns, width)), 8);
}

int64_t ElementsInThread(const CandidateList& list, int threads_per_row, int width) {
  return CeilDiv(list.shape().columns, int64_t{threads_per_row} * width) * width;
}

Schedule SharedByCluster(Schedule s, int cluster, int64_t clusters) {
  s.cluster = cluster;
  s.blocks = clusters * cluster;
  return s;
}

absl::InlinedVector<int, 4> ClustersOfRow(const CandidateList& list, int threads_per_row,
                                          int width) {
  absl::InlinedVector<int, 4> clusters;
  // Rows are shared by whole blocks.
  if (threads_per_row < kThreads) return clusters;
  for (int cluster = 2; cluster <= list.limits().row_cluster_blocks; cluster *= 2) {
    const int64_t of_others = int64_t{cluster - 1} * threads_per_row * width;
    if (of_others < list.shape().columns) clusters.push_back(cluster);
  }
  return clusters;
}

int64_t MeetingsOfCluster(const Schedule& s, int64_t rows, int row_stages) {
  if (s.cluster == 1) return 0;
  return row_stages * (ScratchTakesTurns(s, rows, row_stages) ? 2 : 1);
}

// The threads that are ahead write the other turn. After several rounds the last one's barrier
// keeps them from overtaking the readers of the first.
bool ScratchTakesTurns(const Schedule& s, int64_t rows, int row_stages) {
  return MeetsThroughShared(s) && LoopsOverRows(s, rows) && row_stages == 1;
}

int64_t ScratchElements(const Schedule& s) {
  return int64_t{s.rows_per_thread} * s.threads / kLeastWarp;
}

int64_t ScratchBytes(const KernelProfile& p, const Schedule& s) {
  if (!MeetsThroughShared(s)) return 0;
  const bool turns = ScratchTakesTurns(s, p.shape.shape.rows, p.stages.row_stages);
  int64_t bytes = 0;
  for (int accumulator : p.row_accumulators) {
    bytes += SharedArrayBytes((turns ? 2 : 1) * ScratchElements(s), accumulator);
    if (s.cluster > 1) bytes += SharedArrayBytes((turns ? 2 : 1) * s.cluster, accumulator);
  }
  const int64_t meetings = MeetingsOfCluster(s, p.shape.shape.rows, p.stages.row_stages);
  return bytes + SharedArrayBytes(meetings, SizeBytes(DType::kInt64));
}

int64_t ElementsOfRow(const KernelProfile& p, const Schedule& s) {
  const int64_t columns = p.shape.shape.columns;
  const int64_t piece = TemplateOf(s).splits_rows ? CeilDiv(columns, s.split) : columns;
  return CeilDiv(piece, LanesOfRow(s) * s.vector_width) * s.vector_width;
}

int64_t RowBlocks(const Schedule& s) {
  return (TemplateOf(s).splits_rows ? s.blocks / s.split : s.blocks) / s.cluster;
}

bool LoopsOverRows(const Schedule& s, int64_t rows) {
  return RowBlocks(s) * s.rows_per_block * s.rows_per_thread < rows;
}

bool LoopsOverRows(const KernelProfile& p, const Schedule& s) {
  return LoopsOverRows(s, p.shape.shape.rows);
}

int64_t StagedBytesOfElement(const CandidateList& list, int width) {
  return list.limits().staged_bytes == 0 ? 0 : StagedBytesOfElement(list.ir(), list.shape(), width);
}

int StagedBatches(const CandidateList& list, const Schedule& s, int64_t staged_element) {
  const ScheduleLimits& limits = list.limits();
  const int64_t held =
      ElementsInThread(list, static_cast<int>(LanesOfRow(s)), s.vector_width) * s.rows_per_thread;
  const int64_t batch = staged_element * held * s.threads;
  if (limits.staged_bytes == 0 || batch == 0) return 0;
  const int64_t blocks = CeilDiv(s.blocks, limits.sms);
  const int64_t room = std::min(limits.staged_bytes, limits.shared_bytes_per_sm / blocks);
  const int64_t fit = (room - 2 * limits.shared_bytes_reserved - list.MostShared(s)) / batch;
  if (fit < 2) return 0;
  return static_cast<int>(
      std::min({fit, CeilDiv(limits.staged_bytes_under_way, batch * blocks) + 1, kMostBatches}));
}

int64_t StagedBytesOfBlock(const KernelIr& ir, const KernelProfile& p, const Schedule& s) {
  const int64_t element = StagedBytesOfElement(ir, p.shape.shape, s.vector_width);
  return s.staged * element * ElementsOfRow(p, s) * s.rows_per_thread * s.threads;
}

PointsOfThread PointsOfRowWalk(const KernelProfile& p, const Schedule& s) {
  const int64_t at_once = (s.persistent ? ElementsOfRow(p, s) : s.vector_width) * s.rows_per_thread;
  return {.at_once = at_once, .under_way = at_once * std::max(s.staged - 1, 1)};
}

int64_t RoundsOfRowWalk(const KernelProfile& p, const Schedule& s, const DeviceSpec& d) {
  const RowsAndColumns& rc = p.shape.shape;
  const int64_t rows_at_once = int64_t{s.rows_per_block} * s.rows_per_thread;
  const int64_t iterations = CeilDiv(rc.rows, rows_at_once * std::max<int64_t>(RowBlocks(s), 1));
  int64_t rounds = iterations * std::max(p.stages.row_stages, 1);
  if (!MeetsThroughShared(s)) rounds = CeilDiv(rounds, d.shuffles_per_barrier);  // shuffles alone
  // Short chunks that are not unrolled wait for memory one after the other.
  if (!s.persistent) {
    const int64_t lane = int64_t{s.threads_per_row} * s.vector_width;
    const int64_t runs = CeilDiv(rc.columns / s.split, lane);
    rounds += iterations * (p.stages.row_stages + 1) * runs / d.runs_per_barrier;
  }
  return rounds;
}

int64_t HeldRowsPpm(const KernelProfile& p, const Schedule& s, int64_t above, int64_t twice) {
  if (s.staged > 0) return kPpm;
  const int64_t lane = LanesOfRow(s) * s.vector_width;
  const int64_t held = CeilDiv(p.shape.shape.columns, lane) * s.vector_width * s.rows_per_thread;
  return kPpm + std::max<int64_t>(held - above, 0) * kPpm / twice;
}

}  // namespace retrograd
