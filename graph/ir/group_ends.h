// Where groups of neighbours end, as ops read it from a list of integers.
#ifndef RETROGRAD_GRAPH_IR_GROUP_ENDS_H_
#define RETROGRAD_GRAPH_IR_GROUP_ENDS_H_

#include <algorithm>
#include <cstdint>

namespace retrograd {

// Of a group: its first of `size` places, and the one past its last.
struct GroupSpan {
  int64_t begin = 0, end = 0;
};

// The group behind `before`, which the list says to end at `end`: whatever it says, groups follow
// each other and none leaves the `size` places.
inline GroupSpan NextGroup(const GroupSpan& before, int64_t end, int64_t size) {
  return {before.end, std::clamp(end, before.end, size)};
}

}  // namespace retrograd

#endif  // RETROGRAD_GRAPH_IR_GROUP_ENDS_H_
