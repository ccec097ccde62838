#include "fusion/ops/library_op.h"

#include "graph/base/status.h"

namespace retrograd {

const LibraryOp& LibraryOpOf(Op op) {
  switch (op) {
#define RG_LIBRARY_OP(OP, ROW) \
  case Op::OP:                 \
    return ROW;
#include "fusion/ops/library_ops.def"
#undef RG_LIBRARY_OP
    default: RG_CHECK(false);
  }
}

}  // namespace retrograd
