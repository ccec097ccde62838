#include "fusion/ops/call_op.h"

#include "graph/base/status.h"

namespace retrograd {

const CallOp& CallOpOf(Op op) {
  switch (op) {
#define RG_CALL_OP(OP, ROW) \
  case Op::OP:              \
    return ROW;
#include "fusion/ops/call_ops.def"
#undef RG_CALL_OP
    default: RG_CHECK(false);
  }
}

}  // namespace retrograd
