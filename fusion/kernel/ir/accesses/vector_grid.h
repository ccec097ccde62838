// The grid on which the vectors of a kernel lie. Where the width divides the fastest axis they fill
// it, from its first position on. Elsewhere rows begin at any place of memory: the vectors then lie
// where an access chosen here is aligned, and what is left at both ends of a row goes element by
// element.
#ifndef RETROGRAD_FUSION_KERNEL_IR_ACCESSES_VECTOR_GRID_H_
#define RETROGRAD_FUSION_KERNEL_IR_ACCESSES_VECTOR_GRID_H_

#include "fusion/kernel/ir/accesses/vector_access.h"

namespace retrograd {

// Whether rows have ends that vectors of the width do not cover.
bool HasEnds(const KernelIr& ir, int width);

// The vectors along the fastest axis.
Vectors VectorsOf(const KernelIr& ir, int width);

// Lanes that are whole accesses as well as whole turns of 3 or 6 elements: pixels of three colours,
// or of an image that grows threefold.
inline constexpr int kLanesOfThirds[] = {24, 12};

// Whole vectors of a row, and elements at its two ends: as many as there are in any row.
int64_t MostVectors(const KernelIr& ir, int width);
int64_t MostEnds(const KernelIr& ir, int width);

// Vectors and ends of all rows: what a pass over the points has a thread for.
int64_t PassPlaces(const KernelIr& ir, int width);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_KERNEL_IR_ACCESSES_VECTOR_GRID_H_
