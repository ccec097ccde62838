// What templates share whose threads have points of their own.
#ifndef RETROGRAD_FUSION_KERNEL_TEMPLATES_POINT_WALKS_H_
#define RETROGRAD_FUSION_KERNEL_TEMPLATES_POINT_WALKS_H_

#include "fusion/kernel/templates/kernel_template.h"

namespace retrograd {

inline PointsOfThread OneVector(const KernelProfile&, const Schedule& s) {
  return {.at_once = s.vector_width, .under_way = s.vector_width};
}

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_KERNEL_TEMPLATES_POINT_WALKS_H_
