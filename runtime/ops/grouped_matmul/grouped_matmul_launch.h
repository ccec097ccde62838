// The one launch of a grouped_matmul: its kernel, and what it is called with.
#ifndef RETROGRAD_RUNTIME_OPS_GROUPED_MATMUL_GROUPED_MATMUL_LAUNCH_H_
#define RETROGRAD_RUNTIME_OPS_GROUPED_MATMUL_GROUPED_MATMUL_LAUNCH_H_

#include <string>

#include "absl/status/statusor.h"
#include "fusion/ops/grouped_matmul/grouped_matmul_tiles.h"
#include "fusion/ops/grouped_matmul/grouped_multiplier.h"
#include "runtime/device/device.h"

namespace retrograd {

struct GroupedMatMulLaunch {
  Kernel kernel;
  Launch launch;    // its slots are those of GroupedSlot
  std::string how;  // for people: the schedule
  double us = 0;    // what it was measured to take; 0: nobody has
};

// What bounds the schedules by warps on a device of the dialect's.
GroupedLimits GroupedMatMulLimits(Dialect dialect, const DeviceFacts& device);

// By tiles of warps (codegen/grouped_matmul/emit_grouped_matmul.h), in any dialect; `warp`: threads
// of one. Unimplemented, with the numbers, where the tiles are more than a launch takes.
absl::StatusOr<GroupedMatMulLaunch> LaunchByWarps(const Call& call, const CallFacts& facts,
                                                  const GroupedTile& tile, Dialect dialect,
                                                  int warp);

// By warpgroups (codegen/grouped_matmul/emit_grouped_multiplier.h), in CUDA for sm_90a.
// Unimplemented, with the reason, where the call or the tile does not allow it.
absl::StatusOr<GroupedMatMulLaunch> LaunchByWarpgroups(const Call& call, const CallFacts& facts,
                                                       const GemmTile& tile);

// The tiles in which warpgroups of the device can make the call, in the order of
// MultiplierTilesFor; none where they cannot.
std::vector<GemmTile> GroupedTilesOn(const Call& call, const CallFacts& facts, Device& device);

// By whichever of both is faster on such a device, in its best tile.
absl::StatusOr<GroupedMatMulLaunch> LaunchGroupedMatMul(const Call& call, const CallFacts& facts,
                                                        Device& device);

}  // namespace retrograd

#endif  // RETROGRAD_RUNTIME_OPS_GROUPED_MATMUL_GROUPED_MATMUL_LAUNCH_H_
