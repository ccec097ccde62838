// Edits of a draft, one at a time. What becomes illegal stays so: mend_draft.h.
#ifndef RETROGRAD_TESTS_SUPPORT_GRAPHS_MUTATION_DRAFT_EDITS_H_
#define RETROGRAD_TESTS_SUPPORT_GRAPHS_MUTATION_DRAFT_EDITS_H_

#include "tests/support/graphs/mutation/new_nodes.h"

namespace retrograd {

class DraftEdits : public NewNodes {
 public:
  using NewNodes::NewNodes;

  // One of the edits below.
  void Edit();

 private:
  // Another op that takes as many operands; attributes are made anew where it needs others.
  void ChangeOp();
  // Prefers a value of the same shape.
  void ChangeOperand();
  DraftNode* AnyInput();
  // An extent everywhere it occurs, or in one input.
  void ChangeExtent();
  void ChangeDType();
  void ChangeAttr();
  void EditList(std::vector<int64_t>& list);
  std::vector<int64_t> Strides(const Shape& shape, bool may_repeat);
  void ChangeInput();
  void RemoveNode();
  void ChangeOutputs();
  // Nodes [from, to) once more behind them, each reading the copies of what it read: a layer twice.
  void RepeatRange();
  // Some value as rows of so many columns, or a new input.
  ValueId RowsOf(int64_t columns);
  // Stages of a fast transform or a sorting network: each reads its operand at two places.
  void StackStages();
  // x = x * permute(x), for neighbouring dims of 2.
  void StackProducts();
};

}  // namespace retrograd

#endif  // RETROGRAD_TESTS_SUPPORT_GRAPHS_MUTATION_DRAFT_EDITS_H_
