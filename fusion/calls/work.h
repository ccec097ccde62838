// What a group asks of the device while it runs: all that a stream schedule needs to know of it,
// whatever it consists of.
#ifndef RETROGRAD_FUSION_CALLS_WORK_H_
#define RETROGRAD_FUSION_CALLS_WORK_H_

#include <cstdint>
#include <optional>

#include "fusion/device/interference.h"
#include "fusion/plan/plan.h"

namespace retrograd {

struct Work {
  bool launches = true;  // false: nothing runs, and nothing else here counts
  int64_t ps = 0;        // predicted time alone
  int64_t blocks = 0;    // its share of the multiprocessors
  // Its rows in the table of interference; none where that is not measured with work of its kind.
  std::optional<WorkKind> kind = WorkKind::kKernel;
  bool background = false;  // CallOp::background
};

Work WorkOf(const Group& group);

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_CALLS_WORK_H_
