// Sums at known indices of several axes, an axis at a time: fewer terms than all places of a row at
// once, where each axis has many.
#ifndef RETROGRAD_FUSION_LOWER_INDEXED_NESTED_SUMS_H_
#define RETROGRAD_FUSION_LOWER_INDEXED_NESTED_SUMS_H_

#include <cstdint>
#include <map>
#include <vector>

#include "fusion/lower/indexed/axis_views.h"
#include "fusion/lower/indexed/index_lines.h"
#include "graph/ir/backward_graph.h"
#include "graph/passes/rewriter.h"

namespace retrograd {

// An index that is known when the plan is made, as lines of each of its factors.
struct KnownSum {
  std::vector<IndexFactor> factors;
  std::vector<std::vector<IndexLine>> lines;  // of each factor
};

// Of one graph that is rewritten.
class NestedSums {
 public:
  explicit NestedSums(Rewriter& rewriter)
      : g_(rewriter.graph()), rewriter_(rewriter), b_(rewriter.builder()) {}

  // What is added up along the last factor's axis, in the type `wide`: views of sums along the
  // axes before. `source`, of the graph that is rewritten, has the first factor's axes at `axis`.
  // If it is another value times what does not vary along the first axis, such as the gradient of
  // an image times the weights of its columns, that value is summed, once for all sources that
  // scale it: an interpolation has one for each corner.
  std::vector<ValueId> Terms(const KnownSum& sum, int64_t axis, ValueId source, DType wide);

 private:
  // The first factor's sum.
  struct First {
    const KnownSum& sum;
    int64_t axis = 0;
    DType wide{};
  };

  ValueId ScaledBy(const First& first, ValueId value, int depth) const;
  bool VariesAlong(const First& first, ValueId operand, ValueId result) const;
  ValueId Summed(const First& first, ValueId value, ValueId scaled);
  ValueId Added(const std::vector<ValueId>& terms);

  const BackwardGraph& g_;
  Rewriter& rewriter_;
  GraphBuilder& b_;
  std::map<std::vector<int64_t>, ValueId> summed_;  // by value, what it is a multiple of, and lines
};

}  // namespace retrograd

#endif  // RETROGRAD_FUSION_LOWER_INDEXED_NESTED_SUMS_H_
