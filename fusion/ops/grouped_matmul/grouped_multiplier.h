// Grouped matmuls by warpgroups (codegen/preludes/multiplier_prelude.h): which can be, and by which
// tiles.
#ifndef RETROGRAD_FUSION_OPS_GROUPED_MATMUL_GROUPED_MULTIPLIER_H_
#define RETROGRAD_FUSION_OPS_GROUPED_MATMUL_GROUPED_MULTIPLIER_H_

#include <string>
#include <vector>

#include "fusion/kernel/gemm/gemm_tile.h"
#include "fusion/ops/grouped_matmul/grouped_matmul_tiles.h"

namespace retrograd {

// Addresses, distances of lines and, within a line, places from which the copy engine loads are
// multiples of so many bytes.
inline constexpr int64_t kCopiedBytes = 16;

// Terms of operands of the type that are multiplied at once.
int64_t StepOf(DType dtype);

// The call as it is multiplied: as it stands, or, where its groups share out the terms of sums and
// the result lies by columns, turned: d^T = b^T.a^T, which lies by rows.
bool IsTurned(const GroupedMatMulCall& call);
GroupedMatMulCall Turned(const GroupedMatMulCall& call);

// Why the copy engine or the tensor cores cannot make the product; empty if they can.
std::string WhyNoMultiplier(const GroupedMatMulCall& call, const GroupedAlignments& known);

// Whether kernels by warpgroups with this tile take the call's scales of blocks, if it has any.
bool ServesBlocks(const GemmTile& tile, const GroupedMatMulCall& call);

// The tile by which groups of one size take least time on so many SMs, of those that fit into a
// block's shared memory.
GemmTile MultiplierTileFor(const GroupedMatMulCall& call, const GroupedLimits& limits);

// The tiles that are worth timing, no two alike: first that of MultiplierTileFor, then the others
// in the order of the same price, then the cheapest ones with another cluster.
std::vector<GemmTile> MultiplierTilesFor(const GroupedMatMulCall& call,
                                         const GroupedLimits& limits);

// Clusters that make the results of groups of any sizes, and the rows behind the last one.
int64_t ClustersOf(const GemmTile& tile, const GroupedMatMulCall& call);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_OPS_GROUPED_MATMUL_GROUPED_MULTIPLIER_H_
