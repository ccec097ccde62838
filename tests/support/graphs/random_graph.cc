#include "tests/support/graphs/random_graph.h"

#include <cstdio>
#include <utility>

#include "graph/base/status.h"
#include "tests/support/graphs/random_graph/contraction_tries.h"
#include "tests/support/graphs/random_graph/fold_tries.h"
#include "tests/support/graphs/random_graph/group_tries.h"
#include "tests/support/graphs/random_graph/growing_graph.h"
#include "tests/support/graphs/random_graph/indexed_tries.h"
#include "tests/support/graphs/random_graph/join_tries.h"
#include "tests/support/graphs/random_graph/pointwise_tries.h"
#include "tests/support/graphs/random_graph/transform_tries.h"
#include "tests/support/graphs/random_graph/view_tries.h"
#include "tests/support/graphs/random_graph/window_tries.h"

namespace retrograd {
namespace {

// Adds ops of a kind drawn by weight; false where it found no operands that fit.
bool TryOp(GrowingGraph& g) {
  const RandomGraphOptions& options = g.options();
  struct Kind {
    bool (*make)(GrowingGraph&);
    int weight;
  };
  const Kind kinds[] = {
      {TryUnary, 4},
      {TryBinary, 8},
      {TrySelect, 2},
      {TryFma, 1},
      {TryConstant, 2},
      {TryCast, options.dtypes == RandomGraphOptions::kMixed ? 2 : 0},
      {TryReduce, 4},
      {TryReshape, 2},
      {TryPermute, 2},
      {TryExpand, 2},
      {TrySlice, 2},
      {TryFlip, 1},
      {TryPad, 2},
      {TryCat, 2},
      {TrySliceScatter, options.accumulates ? 2 : 0},
      {TryMatMul, options.contractions ? 2 : 0},
      {TryIndexSelect, options.indexed ? 1 : 0},
      {TryGather, options.indexed ? 1 : 0},
      {TryIndexAdd, options.indexed ? 1 : 0},
      {TryScatterLines, options.indexed ? 1 : 0},
      {TryAccumulate, options.accumulates ? 2 : 0},
      {TryScan, 1},
      {TryConvolution, options.contractions ? 2 : 0},
      {TryWindows, 1},
      {TryStrided, options.indexed ? 1 : 0},
      {TryTransform, options.transforms ? 1 : 0},
      {TryPermutedProducts, options.transforms ? 1 : 0},
      {TryGroupedMatMul, options.contractions ? 1 : 0},
      {TrySegmentAmax, options.indexed ? 1 : 0},
  };
  int total = 0;
  for (const Kind& kind : kinds) total += kind.weight;
  int64_t at = g.draws().Int(0, total - 1);
  for (const Kind& kind : kinds) {
    at -= kind.weight;
    if (at < 0) return kind.make(g);
  }
  return false;
}

}  // namespace

BackwardGraph RandomGraph(uint32_t seed, const RandomGraphOptions& options) {
  GrowingGraph g(seed, options);
  g.AddInputs();
  const int64_t ops = g.draws().Int(options.min_ops, options.max_ops);
  for (int64_t i = 0; i < ops; ++i) {
    if (g.draws().Chance(0.15)) g.NextOrigin();
    // An attempt may find no operands that fit; another kind is tried then.
    for (int attempt = 0; attempt < 20 && !TryOp(g); ++attempt) {
    }
  }
  g.AddOutputs();
  absl::StatusOr<BackwardGraph> graph = g.builder().Build();
  if (!graph.ok()) std::fprintf(stderr, "%s\n", graph.status().ToString().c_str());
  RG_CHECK(graph.ok());
  return *std::move(graph);
}

}  // namespace retrograd
