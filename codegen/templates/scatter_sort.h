// The launches of a scatter that put its indices in order.
#ifndef RETROGRAD_CODEGEN_TEMPLATES_SCATTER_SORT_H_
#define RETROGRAD_CODEGEN_TEMPLATES_SCATTER_SORT_H_

#include <vector>

#include "codegen/print/kernel.h"
#include "fusion/kernel/templates/scatter_workspace.h"

namespace retrograd {

// Fills `keys`, `order` and `starts` of the workspace:
//   keys     the (wrapped) indices, dealt to the threads of a block
//   place    a pass of a stable counting sort
//   starts   where each table row begins; a sort of one pass knows it itself
std::vector<Kernel> EmitScatterSort(const ScatterWorkspace& workspace, const KernelBody& body,
                                    Dialect dialect);

}  // namespace retrograd

#endif  // RETROGRAD_CODEGEN_TEMPLATES_SCATTER_SORT_H_
