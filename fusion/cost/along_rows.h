// What walks down columns access along their rows: a tensor that lies the other way round than the
// columns, so that the neighbours of an element are those of the next rows.
#ifndef RETROGRAD_FUSION_COST_ALONG_ROWS_H_
#define RETROGRAD_FUSION_COST_ALONG_ROWS_H_

#include <cstdint>

#include "fusion/device/device_spec.h"
#include "fusion/kernel/templates/registers.h"

namespace retrograd {

// Whether an access of the kernel, which has this profile, goes so.
bool RunsAlongRows(const KernelIr& ir, const KernelProfile& profile, const IndexExpr& offset);

// Bytes fetched for a million used, of `alone_ppm` if each row's were fetched for themselves: the
// rows that a block loads at once share sectors.
int64_t FetchedAlongRowsPpm(int64_t alone_ppm, const Schedule& schedule);

// Sectors that the warps of all SMs ask for, of so many elements that stand so many bytes apart
// from column to column. A warp has as many columns as its block has lanes, at most one for each
// thread, and asks for each by itself.
int64_t SectorsAlongRows(int64_t elements, int64_t column_step_bytes, const Schedule& schedule,
                         const DeviceSpec& device);

// What they take beside what memory takes: an SM is given two sectors a clock. Of the times of 72
// schedules of four kernels (tokens_of_channels in bench/results/schedules_of_walks_h200.json) the
// prices with 1, 2 and 3 are 32, 18 and 18% off; their largest kernel says 1 to 2.
int64_t AlongRowsPs(int64_t sectors, const DeviceSpec& device);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_COST_ALONG_ROWS_H_
