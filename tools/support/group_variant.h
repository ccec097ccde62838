// What two sizes share of a kernel or library call where only its numbers differ.
#ifndef RETROGRAD_TOOLS_SUPPORT_GROUP_VARIANT_H_
#define RETROGRAD_TOOLS_SUPPORT_GROUP_VARIANT_H_

#include <string>

#include "fusion/plan/plan.h"

namespace retrograd {

// Of a kernel its schedule without what a launch can be given: the numbers of blocks, of pieces of
// a split and of batches under way ("row_column threads=256 vec=8 persistent split"). Of a library
// call its size class, by the call for which the class is timed ("matmul 3072x768x1024 bf16").
std::string VariantOf(const Group& group);

}  // namespace retrograd

#endif  // RETROGRAD_TOOLS_SUPPORT_GROUP_VARIANT_H_
