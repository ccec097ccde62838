// The launch of a scatter_add that sums.
#ifndef RETROGRAD_CODEGEN_TEMPLATES_SCATTER_SUMS_H_
#define RETROGRAD_CODEGEN_TEMPLATES_SCATTER_SUMS_H_

#include "codegen/templates/scatter_text.h"

namespace retrograd {

Kernel PrintScatterSums(const KernelBody& body, Dialect dialect);

}  // namespace retrograd

#endif  // RETROGRAD_CODEGEN_TEMPLATES_SCATTER_SUMS_H_
