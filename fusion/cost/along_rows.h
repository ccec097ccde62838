// What walks down columns read along their rows: a tensor that lies the other way round than the
// columns, so that the neighbours of an element are those of the next rows.
#ifndef RETROGRAD_FUSION_COST_ALONG_ROWS_H_
#define RETROGRAD_FUSION_COST_ALONG_ROWS_H_

#include <cstdint>

#include "fusion/device/device_spec.h"
#include "fusion/kernel/templates/registers.h"

namespace retrograd {

// Loads along rows of one kernel: how many rows follow one another side by side, and from column to
// column. No rows: a load goes otherwise.
struct AlongRows {
  int64_t rows = 0, column_step_bytes = 0;
  friend bool operator==(const AlongRows&, const AlongRows&) = default;
};

// How a load of elements of so many bytes goes, of the kernel that has this profile. step: elements
// from column to column.
AlongRows RunAlongRows(const KernelIr& ir, const KernelProfile& profile, const IndexExpr& offset,
                       int64_t step, int64_t element_bytes);

// Bytes fetched for a million used, of `alone_ppm` if each row's were fetched for themselves: the
// rows that a block loads at once share sectors.
int64_t FetchedAlongRowsPpm(int64_t alone_ppm, const AlongRows& along, const Schedule& schedule);

// Sectors that the warps of all SMs ask for, of so many elements. A warp has as many columns as its
// block has lanes, at most one for each thread, and of each column the sectors of its rows. Columns
// that share a line of 128 bytes are asked for together.
int64_t SectorsAlongRows(int64_t elements, int64_t element_bytes, const AlongRows& along,
                         const Schedule& schedule, const DeviceSpec& device);

// What they take beside what memory takes: an SM is given 64 bytes a clock, two sectors on NVIDIA's
// devices. Of the times of 72 schedules of four kernels (tokens_of_channels in
// bench/results/schedules_of_walks_h200.json) the prices with 32, 64 and 96 are 32, 18 and 18% off;
// their largest kernel says 32 to 64.
int64_t AlongRowsPs(int64_t sectors, const DeviceSpec& device);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_COST_ALONG_ROWS_H_
