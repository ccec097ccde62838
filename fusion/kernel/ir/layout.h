// Where the elements of a stored value lie in memory.
#ifndef RETROGRAD_FUSION_KERNEL_IR_LAYOUT_H_
#define RETROGRAD_FUSION_KERNEL_IR_LAYOUT_H_

#include <cstdint>
#include <vector>

namespace retrograd {

// Strides in elements, one per dim of the value's type. An internal value's layout is the
// planner's choice; a graph input's and a graph output's are the host's.
struct Layout {
  std::vector<int64_t> strides;
  friend bool operator==(const Layout&, const Layout&) = default;
};

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_KERNEL_IR_LAYOUT_H_
