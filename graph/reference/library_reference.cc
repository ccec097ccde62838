#include "graph/reference/library_reference.h"

#include "graph/base/status.h"

namespace retrograd {

absl::Status EvaluateLibrary(const LibraryNode& node, absl::Span<double* const> out) {
  switch (node.op) {
#define RG_LIBRARY_REFERENCE(OP, EVALUATE) \
  case Op::OP:                             \
    return EVALUATE(node, out);
#include "graph/reference/library_references.def"
#undef RG_LIBRARY_REFERENCE
    default: RG_CHECK(false);
  }
}

}  // namespace retrograd
