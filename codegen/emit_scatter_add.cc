#include "codegen/templates.h"
#include "graph/status.h"

namespace retrograd {

GroupKernels EmitScatterAdd(const KernelBody&, Dialect) { RG_CHECK(false); }

}  // namespace retrograd
