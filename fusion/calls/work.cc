#include "fusion/calls/work.h"

#include "fusion/kernel/templates/kernel_template.h"
#include "fusion/ops/call_op.h"

namespace retrograd {

Work WorkOf(const Group& group) {
  Work work{.ps = group.price_ps};
  if (const Call* call = CallOf(group)) {
    const CallOp& row = CallOpOf(call->op);
    work.blocks = row.blocks(*call);
    work.kind = row.work_kind;
    work.background = row.background;
    return work;
  }
  if (const CallLaunch* shared = SharedCallsOf(group)) {
    work.background = true;
    for (const CallLaunch::Member& member : shared->members) {
      const CallOp& row = CallOpOf(member.call.op);
      work.blocks += row.blocks(member.call);
      work.background = work.background && row.background;
    }
    work.kind = std::nullopt;
    return work;
  }
  work.launches = AliasOf(group) == nullptr;
  for (const KernelBody* kernel : KernelsOf(group)) {
    work.blocks += WorkingLaunch(kernel->ir, kernel->schedule).blocks;
  }
  return work;
}

}  // namespace retrograd
