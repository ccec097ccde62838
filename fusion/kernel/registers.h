// What a schedule asks of an SM: registers of a thread, shared memory, bytes in flight.
#ifndef RETROGRAD_FUSION_KERNEL_REGISTERS_H_
#define RETROGRAD_FUSION_KERNEL_REGISTERS_H_

#include "fusion/kernel/device_spec.h"
#include "fusion/kernel/kernel_ir.h"
#include "fusion/kernel/schedule.h"

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
  int carried_words = 0;      // 32-bit words an element that a later stage still needs
  int live_words = 0;         // largest number of words live at once while one element is evaluated
  int loaded_words = 0;       // words an element that the loads of the first stage bring in
  int64_t loaded_bytes = 0;   // bytes an element that all inner loads bring in
  int column_sums = 0;        // column reductions
  int column_sum_words = 0;   // words of their accumulators, a column
  int row_sums = 0;
};
KernelProfile ProfileKernel(const KernelIr& ir, const Classification& shape);

struct Footprint {
  int registers = 0;             // of a thread, capped at what the device allows
  int registers_wanted = 0;      // before the cap
  int64_t spill_bytes = 0;       // of a thread: 4 x what is above the cap
  int64_t shared_bytes = 0;      // of a block
  int64_t blocks_per_sm = 0;     // resident at once; 0: a block does not fit
  int64_t bytes_in_flight = 0;   // of a thread before it waits
  int64_t elements = 1;          // points a thread holds at once
};
Footprint PredictFootprint(const KernelIr& ir, const KernelProfile& profile,
                           const Schedule& schedule, const DeviceSpec& device);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_KERNEL_REGISTERS_H_
