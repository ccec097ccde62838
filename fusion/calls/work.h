// What a group asks of the device while it runs: all that a stream schedule needs to know of it,
// whatever it consists of.
#ifndef RETROGRAD_FUSION_CALLS_WORK_H_
#define RETROGRAD_FUSION_CALLS_WORK_H_

#include <cstdint>

#include "fusion/device/interference.h"
#include "fusion/plan/plan.h"

namespace retrograd {

struct Work {
  bool launches = true;               // false: nothing runs, and nothing else here counts
  int64_t ps = 0;                     // predicted time alone
  int64_t blocks = 0;                 // its share of the multiprocessors
  WorkKind kind = WorkKind::kKernel;  // its row in the table of interference
  bool may_overlap = true;            // whether that table was measured with work of its kind
};

Work WorkOf(const Group& group);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_CALLS_WORK_H_
