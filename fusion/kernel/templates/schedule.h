// The schedule of a kernel: template, threads, vector width, splits. It is chosen by price together
// with the set of ops to fuse. Code generation prints exactly this schedule.
#ifndef RETROGRAD_FUSION_KERNEL_TEMPLATES_SCHEDULE_H_
#define RETROGRAD_FUSION_KERNEL_TEMPLATES_SCHEDULE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "fusion/device/device_spec.h"
#include "fusion/kernel/ir/kernel_ir.h"

namespace retrograd {

enum class Template : uint8_t {
#define RG_TEMPLATE(NAME) k##NAME,
#include "fusion/kernel/templates/templates.def"
#undef RG_TEMPLATE
};
absl::string_view Name(Template t);

// Which axes a template takes as rows and which as columns. Rows are the axes kept by the row
// reduction (or folded by the column reduction); columns are the others. kHeldColumns reads axes as
// the row reduction does: what it folds, stage by stage, are `columns` elements of each of `rows`.
// Points are numbered row-major over each list of axes, outermost first.
struct RowsAndColumns {
  AxisMask row_axes = 0;
  AxisMask column_axes = 0;
  int64_t rows = 1;
  int64_t columns = 1;
};

struct Schedule {
  Template kind = Template::kPointwise;
  int threads = 256;        // of a block
  int vector_width = 1;     // elements that a thread handles side by side along the fastest axis
  int threads_per_row = 0;  // kRowReduction, kRowColumn, kScan: threads of a block that share a row
                            // (a power of two); kHeldTiles: all of a block, which share a tile
  int rows_per_block = 1;   // rows in separate threads of a block = threads / threads_per_row;
                            // kColumnReduction, kHeldColumns: thread rows of a block that share
                            // the columns
  int rows_per_thread = 1;  // rows at once in the registers of the same threads
  int turns = 1;            // kPointwise: rows that a thread goes through one after the other, at
                            // the same columns (accesses/pass_columns.h)
  bool persistent = false;  // inputs stay in registers between stages; else each stage re-reads
  int staged = 0;           // kRowColumn, persistent: rows lie in shared memory, so many batches of
                            // them at once. kScatterAdd: positions do; kPointwise: point_rows.h;
                            // kHeldColumns: all rows of a block do
  int cluster = 1;          // blocks that share rows (kHeldColumns: columns), each with a part
  int64_t split = 1;        // kColumnReduction, kRowColumn: partial results a column;
                            // kRowReduction: pieces of one row. > 1 needs a finalize launch
  int64_t blocks = 1;       // of the main launch
  bool unrolled = false;    // of a kernel whose reductions are unrolled (unroll_reductions.h)
  friend bool operator==(const Schedule&, const Schedule&) = default;
  std::string Print() const;  // "row_reduction threads=256 per_row=128 rows=2 vec=8 persistent"
};

// Template and reading that fit the IR's reductions, or nullopt with the reason.
struct Classification {
  bool feasible = false;
  Template kind = Template::kPointwise;
  RowsAndColumns shape;
  std::string reason;  // why no template can run this IR
};
Classification Classify(const KernelIr& ir);

// The axes of more than one position that a reduction folds. 0: it only copies its operand (or is
// no reduction).
AxisMask FoldedAxes(const KernelIr& ir, const Instr& instr);

// Stage of each instruction under the classification: 0 before any row reduction; a row reduction
// and what follows from it is one later than its operand; what depends on a column reduction is in
// the last stage, `finalize`.
struct Stages {
  std::vector<int> stage;      // by instruction: the stage in which its value first exists
  int row_stages = 0;          // number of row-reduction rounds
  std::vector<bool> finalize;  // by instruction: evaluated over columns (or kept axes) at the end
};
Stages AssignStages(const KernelIr& ir, const Classification& shape);

// Element type and bytes of the partial results that a split schedule parks in global memory:
// one value of the compute type per column reduction, split and column (or per row reduction,
// row and split), in the order [reduction][split][column] (or [reduction][row][split]).
int64_t WorkspaceBytes(const KernelIr& ir, const Schedule& schedule);

// A reduction adds up in its accumulator: fp32 or fp64, int64, or int32 for everything narrower.
DType AccumulatorType(DType dtype);

// Where the partial results of each reduction begin in the workspace, in bytes and multiples of 16;
// -1 for other instructions and where nothing is split.
std::vector<int64_t> WorkspaceOffsets(const KernelIr& ir, const Classification& shape,
                                      const Schedule& schedule);

// What differs between devices in which schedules exist.
struct ScheduleLimits {
  int warp = 32;
  int sms = 132;
  int max_threads = 1024;
  int64_t shared_bytes = 0;  // of a block
  int64_t staged_bytes = 0;  // of a block with rows staged in shared memory; 0: no such loads
  int64_t shared_bytes_per_sm = 0;
  int64_t shared_bytes_reserved = 1 << 10;    // of each block
  int64_t staged_bytes_under_way = 64 << 10;  // of an SM: enough
  int max_registers = 255;                    // of a thread
  int cluster_blocks = 1;                     // of a cluster, at most
  int row_cluster_blocks = 1;                 // of a cluster that shares rows
  bool vectorize = true;                      // each of these can be switched off by name
  bool split = true;
  bool persistent = true;
  bool rows_at_once = true;
  bool passes_by_rows = true;
  bool transpose_tiles = true;
  bool hold_columns = true;
  bool hold_tiles = true;
};
ScheduleLimits ScheduleLimitsOf(const DeviceSpec& device);

// SMs that clusters of so many blocks are sure to find: each lies within a part of the device whose
// number of SMs its size need not divide. One cluster more than run at once takes as long as all.
int64_t SmsForClusters(int64_t sms, int cluster);

// Every schedule worth pricing, in a fixed order. Never empty for a feasible classification.
std::vector<Schedule> CandidateSchedules(const KernelIr& ir, const Classification& shape,
                                         const ScheduleLimits& limits);

// Whether the rows of a walk can be staged in shared memory by this load: as whole words of its
// vectors.
bool CanStage(const KernelIr& ir, const RowsAndColumns& shape, int instr, int width);

// What the loads that can be staged bring in for one element.
int64_t StagedBytesOfElement(const KernelIr& ir, const RowsAndColumns& shape, int width);

// Reductions of more elements than this per thread are not unrolled into registers.
inline constexpr int kMaxPersistentElements = 64;

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_KERNEL_TEMPLATES_SCHEDULE_H_
