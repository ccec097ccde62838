// What the templates have in common whose threads share rows in teams: their schedules, what a
// thread holds of a row, and what a block waits for.
#ifndef RETROGRAD_FUSION_KERNEL_TEMPLATES_ROW_WALKS_H_
#define RETROGRAD_FUSION_KERNEL_TEMPLATES_ROW_WALKS_H_

#include "absl/container/inlined_vector.h"
#include "fusion/kernel/templates/kernel_template.h"

namespace retrograd {

// Rows in the registers of the same threads. A search bound: four were the fastest for none of 30
// kernels whose schedules were timed on an H200, mostly a third slower than one row with the next
// loaded ahead.
absl::Span<const int> RowsAtOnce(const ScheduleLimits& limits);

// Teams of so many threads in a block of kThreads or, if that is more, of one team.
Schedule RowSchedule(const CandidateList& list, Template id, int threads_per_row, int width,
                     int at_once, bool persistent);

// The least power of two that is at least n.
int64_t PowerOfTwoFrom(int64_t n);

// Threads of a row that leave none without a column.
bool FitsRow(const CandidateList& list, int threads_per_row, int width);

// Elements of a row in one thread.
int64_t ElementsInThread(const CandidateList& list, int threads_per_row, int width);

// The threads of a row are more than any warp surely has: its warps meet through shared memory. One
// text runs in warps of 32 and of 64 threads.
inline constexpr int kLeastWarp = 32;
inline bool MeetsThroughShared(const Schedule& s) { return s.threads_per_row > kLeastWarp; }

// Threads side by side along a row, of all blocks that share it.
inline int64_t LanesOfRow(const Schedule& s) { return int64_t{s.threads_per_row} * s.cluster; }

// The same row walk by clusters of so many blocks, each of which has part of a row.
Schedule SharedByCluster(Schedule s, int cluster, int64_t clusters);

// Sizes of clusters that can share rows by blocks of so many threads, each of which has columns.
absl::InlinedVector<int, 4> ClustersOfRow(const CandidateList& list, int threads_per_row,
                                          int width);

// Meetings of a cluster that a block keeps in shared memory.
int64_t MeetingsOfCluster(const Schedule& s, int64_t rows, int row_stages);

// Whether blocks have two turns of scratch: one barrier a row is then enough.
bool ScratchTakesTurns(const Schedule& s, int64_t rows, int row_stages);

// Elements of one turn of the scratch of one reduction: one of each warp and row at once.
int64_t ScratchElements(const Schedule& s);

// Shared memory in which the warps of a row add up.
int64_t ScratchBytes(const KernelProfile& p, const Schedule& s);

// Elements that a thread holds of one row, or of its piece of one.
int64_t ElementsOfRow(const KernelProfile& p, const Schedule& s);

// Blocks that have rows of their own.
int64_t RowBlocks(const Schedule& s);

// The blocks of a launch hold fewer rows at once than there are.
bool LoopsOverRows(const Schedule& s, int64_t rows);
bool LoopsOverRows(const KernelProfile& p, const Schedule& s);

// Bytes of an element that staged loads of this width bring in; 0 where the device has none.
int64_t StagedBytesOfElement(const CandidateList& list, int width);

// Batches of rows in shared memory at once: enough to keep the bytes under way that saturate memory
// with the blocks that share an SM, if they all fit. 0 if there is no room for two.
int StagedBatches(const CandidateList& list, const Schedule& s, int64_t staged_element);

// Shared memory that a block asks for, for its batches of rows.
int64_t StagedBytesOfBlock(const KernelIr& ir, const KernelProfile& p, const Schedule& s);

PointsOfThread PointsOfRowWalk(const KernelProfile& p, const Schedule& s);
int64_t RoundsOfRowWalk(const KernelProfile& p, const Schedule& s, const DeviceSpec& d);

// How much longer than at full bandwidth the loads of rows take whose elements are held in
// registers: above so many, `twice` more of them take twice as long.
int64_t HeldRowsPpm(const KernelProfile& p, const Schedule& s, int64_t above, int64_t twice);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_KERNEL_TEMPLATES_ROW_WALKS_H_
