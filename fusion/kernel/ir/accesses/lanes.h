// How an index expression goes over the lanes of a vector: `width` consecutive positions of one
// axis, which begin where the position plus `phase` is a multiple of `width`.
#ifndef RETROGRAD_FUSION_KERNEL_IR_ACCESSES_LANES_H_
#define RETROGRAD_FUSION_KERNEL_IR_ACCESSES_LANES_H_

#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "fusion/kernel/ir/access_map.h"

namespace retrograd {

struct Vectors {
  int axis = -1;
  int width = 1;
  IndexExpr phase;      // of other axes than `axis`; 0: vectors begin at multiples of the width
  bool shifts = false;  // loads out of phase are put together from aligned ones
};

// A number that divides e at lane 0 of every vector (0: e is always 0).
int64_t KnownMultiple(const IndexExpr& e, const Vectors& vectors);

// s such that e(lane j) = e(lane 0) + s·j in every vector, or nullopt.
std::optional<int64_t> LaneStride(const IndexExpr& e, const Vectors& vectors);

// By lane j: e(lane j) - e(lane 0), where that is the same in every vector; else empty.
std::vector<int64_t> LaneSteps(const IndexExpr& e, const Vectors& vectors);

// An expression that is e at lane 0 of every vector, equal for more of those that are equal there:
// without what lanes before the vector's own leave in divisions.
IndexExpr AtLane0(const IndexExpr& e, const Vectors& vectors, absl::Span<const int64_t> extents);

// True if the guard has one truth for all lanes of every vector.
bool LanesAgree(const Guard& guard, const Vectors& vectors, absl::Span<const int64_t> extents);

// By lane: the guard's truth, where that is the same in every vector.
enum class LaneTruth : uint8_t { kNever, kAlways, kVaries };
std::vector<LaneTruth> LaneTruths(const Guard& guard, const Vectors& vectors,
                                  absl::Span<const int64_t> extents);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_KERNEL_IR_ACCESSES_LANES_H_
