// What a schedule asks of an SM: registers of a thread, shared memory, bytes in flight.
#ifndef RETROGRAD_FUSION_KERNEL_TEMPLATES_REGISTERS_H_
#define RETROGRAD_FUSION_KERNEL_TEMPLATES_REGISTERS_H_

#include "fusion/device/device_spec.h"
#include "fusion/device/register_model.h"
#include "fusion/kernel/ir/accesses/pass_columns.h"
#include "fusion/kernel/ir/accesses/point_rows.h"
#include "fusion/kernel/ir/kernel_ir.h"
#include "fusion/kernel/ir/scale.h"
#include "fusion/kernel/templates/schedule.h"

namespace retrograd {

// What pricing needs to know of an IR, found once for all its schedules.
struct KernelProfile {
  Classification shape;
  Stages stages;
  // By instruction: evaluated at every point of rows x columns (or of all axes).
  std::vector<bool> inner;
  // By row stage (0 .. row_stages): the inner instructions that the stage evaluates if nothing is
  // kept from earlier stages.
  std::vector<std::vector<int>> needed;
  int64_t loaded_bytes = 0;        // bytes an element that all inner loads bring in
  int64_t wide_tile_bytes = 0;     // what all loads bring a thread of a wide tile
  int64_t late_loaded_bytes = 0;   // of them, what a stage that stores is the first to need
  int64_t unguarded_ppm = kPpm;    // of them, what guards let through of an element, on average
  int64_t unloaded_ppm = 0;        // of the elements, those at which guards leave out all loads
  int carried_loads = 0;           // inner loads that a later stage uses too
  int64_t carried_load_bytes = 0;  // an element, as they lie in memory
  // Made in one row stage by a division or a slower instruction and used in a later one, in the
  // order of the IR.
  std::vector<int> costly;
  // As `needed`, if a thread keeps the costly values; then what it keeps of an element: the values,
  // and the loads that later stages still need, unless those lie in shared memory.
  std::vector<std::vector<int>> needed_beside_costly;
  int64_t costly_bytes = 0;
  int64_t loads_beside_costly_bytes = 0;
  int column_sums = 0;  // column reductions
  int row_sums = 0;
  int word_bytes = 4;                 // of the widest value in registers
  std::vector<int> row_accumulators;  // bytes of what threads add up in, for each along rows
  // What those down columns add up in: each type once, with how many of them have it.
  std::vector<std::pair<DType, int64_t>> column_accumulators;
  // Of kernels that hold columns, what a block keeps one of for each of its columns:
  // bytes of each of SharedColumnValues.
  std::vector<int> shared_column_values;
  std::vector<PointRows> point_rows;  // of kernels without reductions
  PassColumns pass_columns;           // of the same
  // The counts of registers.h's model that do not depend on the schedule, each for one element (or
  // one column, or one row): a prediction multiplies them by what a thread holds.
  int64_t stored_bytes = 0;
  RegisterCounts counts = {};
};
KernelProfile ProfileKernel(const KernelIr& ir, const Classification& shape);

// The share of elements at which a load's guards let it through: an element of a join is in one of
// its parts. A buffer with fewer elements than there are positions is read at as many, unless its
// elements are read several times, as windows that overlap do.
int64_t UnguardedPpm(const KernelIr& ir, const Instr& load);

// Of a kernel that holds columns, by round of reductions: values of columns that follow from its
// results, and that rows (shape.column_axes, which reductions fold) are the first to need right
// behind it. One thread makes each, and the others of its block take it from shared memory. Results
// of reductions themselves are not listed.
std::vector<std::vector<int>> SharedColumnValues(const KernelIr& ir, const RowsAndColumns& shape,
                                                 const Stages& stages);

// Whether a thread keeps the costly values from stage to stage: where rows stay in registers, or
// lie in shared memory and no columns are summed, and what it keeps of them is no more than
// kMostKeptWords.
inline constexpr int64_t kMostKeptWords = 16;
bool KeepsCostly(const KernelProfile& profile, const Schedule& schedule);

// CandidateSchedules of a profile that is known.
std::vector<Schedule> CandidateSchedules(const KernelIr& ir, const KernelProfile& profile,
                                         const ScheduleLimits& limits);

struct Footprint {
  int registers = 0;  // of a thread, capped at what the device allows
  // Before the cap. Where a thread may spill, with the margin of the device's register model.
  int registers_wanted = 0;
  int64_t spill_bytes = 0;      // of a thread: 4 x what registers_wanted is above the cap
  int64_t doubtful_bytes = 0;   // of a thread: what it is expected to spill by the slack's chance
  int64_t shared_bytes = 0;     // of a block of the main launch, declared in its text
  int64_t staged_bytes = 0;     // of the same, for rows that are loaded ahead
  int64_t blocks_per_sm = 0;    // resident at once; 0: a block does not fit
  int64_t bytes_in_flight = 0;  // of a thread before it waits
  int64_t elements = 1;         // points a thread holds at once
};
Footprint PredictFootprint(const KernelIr& ir, const KernelProfile& profile,
                           const Schedule& schedule, const DeviceSpec& device);

// What a block declares for a shared array: arrays begin at multiples of 16 bytes.
inline int64_t SharedArrayBytes(int64_t elements, int64_t element_bytes) {
  return (elements * element_bytes + 15) / 16 * 16;
}

// Shared memory that a block of launch number `launch` declares in its text.
int64_t SharedBytes(const KernelIr& ir, const KernelProfile& profile, const Schedule& schedule,
                    int64_t launch);

// What a compiler reported of a kernel, in place of a prediction.
struct CompiledResources {
  int64_t registers = 0;     // of a thread
  int64_t spill_bytes = 0;   // of a thread
  int64_t shared_bytes = 0;  // of a block
  friend bool operator==(const CompiledResources&, const CompiledResources&) = default;
};
void UseCompiled(const CompiledResources& compiled, const Schedule& schedule,
                 const DeviceSpec& device, Footprint& footprint);

// The launch whose registers decide how many blocks are resident: the one that does the work.
LaunchKind MainLaunch(const Schedule& schedule);

// What the register model counts of a launch under this schedule.
RegisterCounts CountForRegisters(const KernelProfile& profile, const Schedule& schedule,
                                 LaunchKind launch);

// Registers of a thread before any cap, under a schedule that launches such a launch.
int64_t ExpectedRegisters(LaunchKind launch, const RegisterCounts& counts, const Schedule& schedule,
                          const DeviceSpec& device);

// Registers that a thread of a block of so many threads may have.
int64_t RegisterCap(int threads, const DeviceSpec& device);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_KERNEL_TEMPLATES_REGISTERS_H_
