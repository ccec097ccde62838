// A random graph while it grows: its builder, its values with bounds on their magnitude, and how
// operands are picked among them.
#ifndef RETROGRAD_TESTS_SUPPORT_GRAPHS_RANDOM_GRAPH_GROWING_GRAPH_H_
#define RETROGRAD_TESTS_SUPPORT_GRAPHS_RANDOM_GRAPH_GROWING_GRAPH_H_

#include <optional>
#include <vector>

#include "graph/ir/backward_graph.h"
#include "tests/support/graphs/random_graph/random_draws.h"
#include "tests/support/graphs/random_graph/random_graph_options.h"

namespace retrograd {

// How large |value| may be: ops are chosen by it so that products and exponentials stay tame.
inline constexpr double kTame = 1e4;

// A float value and a bound on its magnitude.
struct KnownValue {
  ValueId id;
  double bound = 2;
  int uses = 0;
};

class GrowingGraph {
 public:
  GrowingGraph(uint32_t seed, const RandomGraphOptions& options);

  // The first inputs: most graphs work on a few shapes, so that values meet.
  void AddInputs();
  ValueId AddInput(DType dtype, Shape shape);
  // An input of int32 or int64.
  ValueId AddIndexInput(Shape shape);
  // The framework op that the nodes from here on come from.
  void NextOrigin();
  // What nobody reads becomes an output, and a few others: inputs, values listed twice.
  void AddOutputs();

  // A value, unread ones first: graphs should be connected.
  KnownValue Pick();
  // Another value of the dtype (cast if need be) that broadcasts with the shape and keeps the size.
  std::optional<KnownValue> PickMate(const TensorType& with);
  // Makes the value one that later ops may pick. True, for those who try ops.
  bool Emit(ValueId v, double bound);

  bool TooLarge(const Shape& shape) const { return Elements(shape) > options_.max_elements; }
  const TensorType& Type(const KnownValue& k) const { return builder_.type(k.id); }
  const RandomGraphOptions& options() const { return options_; }
  const Shape& base() const { return base_; }  // of the first input
  const std::vector<KnownValue>& known() const { return known_; }
  RandomDraws& draws() { return draws_; }
  GraphBuilder& builder() { return builder_; }

 private:
  DType FloatDType();
  Shape RandomShape();
  std::vector<int64_t> RandomStrides(const Shape& shape, bool may_repeat);

  const RandomGraphOptions& options_;
  RandomDraws draws_;
  GraphBuilder builder_;
  Shape base_;
  std::vector<KnownValue> known_;
};

}  // namespace retrograd

#endif  // RETROGRAD_TESTS_SUPPORT_GRAPHS_RANDOM_GRAPH_GROWING_GRAPH_H_
