// New nodes of a draft, of any op: operands that suit it and attributes that often do.
#ifndef RETROGRAD_TESTS_SUPPORT_GRAPHS_MUTATION_NEW_NODES_H_
#define RETROGRAD_TESTS_SUPPORT_GRAPHS_MUTATION_NEW_NODES_H_

#include <vector>

#include "tests/support/graphs/mutation/draft_random.h"

namespace retrograd {

class NewNodes : public DraftRandom {
 public:
  using DraftRandom::DraftRandom;

 protected:
  // The appended node stands last; an earlier node's operand is often moved behind it, so that new
  // nodes do not only grow at the end.
  void InsertNode();
  std::vector<ValueId> Operands(const OpInfo& info, ValueId x, DType dtype, Shape shape);
  std::vector<ValueId> MatMulOperands(ValueId x, DType dtype, Shape shape);
  std::vector<ValueId> GroupedMatMulOperands();
  // The index may lack the first axes of the source.
  std::vector<ValueId> ScatterLinesOperands(ValueId x, Shape shape);
  std::vector<ValueId> AttentionOperands();
  // With stride and dilation 1 and no padding a gradient's attributes give back its shapes.
  std::vector<ValueId> ConvolutionOperands(Op op, DType dtype);
  // The shape that a gradient of ConvolutionOperands has.
  Shape GradientShape(Op op, const std::vector<ValueId>& operands);
  std::vector<ValueId> CompositeOperands(const OpInfo& info, ValueId x, DType dtype,
                                         const Shape& shape);
  Attrs MakeAttrs(Op op, const std::vector<ValueId>& operands);
  // For reshape: the same elements in other dims; for expand: repeats; else: any.
  Shape NewShape(Op op, Shape shape);
};

}  // namespace retrograd

#endif  // RETROGRAD_TESTS_SUPPORT_GRAPHS_MUTATION_NEW_NODES_H_
