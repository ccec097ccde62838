// Which template walks an IR: the one that takes most of what its reductions fold, its scatter and
// the order of its loads into account.
#include "fusion/kernel/templates/kernel_template.h"
#include "graph/base/status.h"

namespace retrograd {

Classification Classify(const KernelIr& ir) {
  const Folds folds = ReadFolds(ir);
  const absl::Span<const KernelTemplate* const> templates = KernelTemplates();
  for (size_t t = templates.size(); t-- > 0;) {
    if (std::optional<Classification> c = templates[t]->recognise(ir, folds)) return *std::move(c);
  }
  RG_CHECK(false && "row reductions and passes take what no other template does");
  return {};
}

}  // namespace retrograd
