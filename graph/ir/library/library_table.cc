#include "graph/base/status.h"
#include "graph/ir/library/library_rows.h"

namespace retrograd {

const LibraryOp& LibraryOpOf(Op op) {
  switch (op) {
#define RG_LIBRARY_OP(OP, ROW) \
  case Op::OP:                 \
    return ROW;
#include "graph/ir/library/library_ops.def"
#undef RG_LIBRARY_OP
    default: RG_CHECK(false);
  }
}

}  // namespace retrograd
