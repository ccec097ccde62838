// How the threads of a scan go along its rows, for its template and its emitter.
#ifndef RETROGRAD_FUSION_KERNEL_TEMPLATES_SCAN_WALK_H_
#define RETROGRAD_FUSION_KERNEL_TEMPLATES_SCAN_WALK_H_

#include "fusion/kernel/templates/schedule.h"

namespace retrograd {

// Whether places along the scanned axis are neighbours in memory. Else rows are.
inline bool ScansNeighbours(const RowsAndColumns& shape) {
  return shape.column_axes > shape.row_axes;  // the axis with the highest number is the fastest
}

// Places that a thread has side by side in a chunk: a vector of them, or several where rows are
// neighbours.
inline int PlacesOfThread(const RowsAndColumns& shape, const Schedule& s) {
  return ScansNeighbours(shape) ? s.vector_width : 4;
}

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_KERNEL_TEMPLATES_SCAN_WALK_H_
