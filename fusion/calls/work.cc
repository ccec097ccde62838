#include "fusion/calls/work.h"

#include "fusion/ops/library_op.h"

namespace retrograd {

Work WorkOf(const Group& group) {
  Work work{
      .ps = group.price_ps, .read_bytes = group.read_bytes, .written_bytes = group.written_bytes};
  if (const Call* call = CallOf(group)) {
    const LibraryOp& row = LibraryOpOf(call->op);
    work.blocks = row.blocks(*call);
    work.kind = WorkKind::kMatMul;
    work.may_overlap = row.in_interference_table;
    return work;
  }
  work.launches = AliasOf(group) == nullptr;
  for (const KernelBody* kernel : KernelsOf(group)) work.blocks += kernel->schedule.blocks;
  return work;
}

}  // namespace retrograd
