// Retyping to fp64.
#include "graph/passes/retype.h"

#include "graph/passes/simplify.h"
#include "graph/reference/reference.h"
#include "tests/catch.h"
#include "tests/support/graphs/random_graph.h"

namespace retrograd {
namespace {

TEST_CASE("a retyped random graph has the same nodes, fp64 floats and the same fp64 values") {
  for (uint32_t seed = 0; seed < 100; ++seed) {
    INFO("seed " << seed);
    const BackwardGraph g = RandomGraph(seed);
    auto r = RetypeToFloat64(g);
    REQUIRE(r.status().ToString() == "OK");
    REQUIRE(r->Verify().ToString() == "OK");
    REQUIRE(r->num_nodes() == g.num_nodes());
    for (uint32_t i = 0; i < g.num_nodes(); ++i) {
      const TensorType& type = r->type(NodeId{i});
      CHECK(type.shape == g.type(NodeId{i}).shape);
      if (IsFloat(type.dtype)) CHECK(type.dtype == DType::kFp64);
    }
    const std::vector<Values> inputs = RandomInputs(g, seed);
    auto expected = Evaluate(g, inputs);
    ReferenceOptions options;
    options.mode = ReferenceOptions::kRoundEveryOp;  // fp64 rounds nothing
    auto got = Evaluate(*r, inputs, options);
    REQUIRE(expected.ok());
    REQUIRE(got.ok());
    CHECK(*got == *expected);
  }
}

}  // namespace
}  // namespace retrograd
