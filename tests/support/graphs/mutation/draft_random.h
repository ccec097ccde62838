// What edits of a draft draw: numbers, extents, dtypes, values; and the nodes that they append.
#ifndef RETROGRAD_TESTS_SUPPORT_GRAPHS_MUTATION_DRAFT_RANDOM_H_
#define RETROGRAD_TESTS_SUPPORT_GRAPHS_MUTATION_DRAFT_RANDOM_H_

#include <cstdint>
#include <random>
#include <vector>

#include "tests/support/graphs/mutation/graph_draft.h"

namespace retrograd {

class DraftRandom {
 public:
  DraftRandom(Draft& draft, std::mt19937& rng) : d_(draft), rng_(rng) {}

 protected:
  int64_t Int(int64_t low, int64_t high);  // both of them included
  bool Chance(int percent);
  size_t AnyNode();
  const Shape& ShapeOf(ValueId v) const;
  // Zero and odd ones among them; one in five may be huge.
  int64_t Extent();
  DType AnyDType();
  DType FloatDType();
  std::vector<int64_t> Permutation(size_t n);
  // `illegal`: its type where the op is not legal.
  ValueId AppendOp(Op op, std::vector<ValueId> operands, Attrs attrs, TensorType illegal = {});
  ValueId Append(DraftNode node);
  ValueId NewInput(DType dtype, Shape shape);
  // A value of the draft, more often than not one of its last.
  ValueId Recent();
  DType DTypeOf(ValueId v) const;
  // A value of the shape, or a new input of it.
  ValueId OfShape(const Shape& shape, DType dtype);

  Draft& d_;
  std::mt19937& rng_;
};

}  // namespace retrograd

#endif  // RETROGRAD_TESTS_SUPPORT_GRAPHS_MUTATION_DRAFT_RANDOM_H_
