// The gradient of attention's scores as a result: what follows it is planned like anything else,
// wherever it lies.
#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "fusion/planner/planner.h"
#include "graph/text/text.h"
#include "tests/catch.h"
#include "tests/support/graphs/random_graph.h"
#include "tests/support/plans/compare_outputs.h"
#include "tests/support/plans/run_plan.h"

namespace retrograd {
namespace {

// Attention of 3 heads with 5 queries and 7 keys, and what is made of its results.
absl::StatusOr<BackwardGraph> Attention(absl::string_view attributes, absl::string_view rest) {
  return ParseGraph(absl::StrCat(R"(
%do = input kind=tangent  f32[2,3,5,4]
%q = input kind=saved  f32[2,3,5,4]
%k = input kind=saved  f32[2,3,7,4]
%v = input kind=saved  f32[2,3,7,4]
%o = input kind=saved  f32[2,3,5,4]
%lse = input kind=saved  f32[2,3,5]
%bias = input kind=saved  f32[3,5,7]
%index = input kind=saved  i64[35]
%g:4 = attention_backward %do %q %k %v %o %lse %bias scale=0.5 score_gradient=1 )",
                                 attributes, "\noutput %g.0\noutput %g.1\noutput %g.2\n", rest));
}

struct Reader {
  const char* name;
  const char* text;
};
constexpr Reader kReaders[] = {
    {"itself", "output %g.3"},
    {"a sum over the batch", "%s = sum %g.3 axes=[0] keep=0\noutput %s"},
    {"a table of relative positions",
     "%s = sum %g.3 axes=[0] keep=0\n%p = permute %s perm=[1,2,0]\n%r = reshape %p shape=[35,3]\n"
     "%t = full dtype=f32 shape=[9,3] value=0\n%d = index_add %t %index %r axis=0\noutput %d"},
    {"a part of a longer value",
     "%b = reshape %bias shape=[1,3,5,7]\n%c = cat %b %g.3 axis=0\noutput %c"},
    {"a product with its transpose",
     "%p = permute %g.3 perm=[0,1,3,2]\n%m = matmul %p %do\noutput %m"},
};

TEST_CASE("whatever reads the gradient of scores gets the reference evaluator's") {
  for (const Reader& reader : kReaders) {
    for (const char* attributes : {"", "causal=1"}) {
      const auto graph = Attention(attributes, reader.text);
      INFO(reader.name << " " << attributes << ": " << graph.status());
      REQUIRE(graph.ok());
      std::vector<Values> inputs = RandomInputs(*graph, 5);
      for (double& lse : inputs[5]) lse = 2;
      inputs[5][3] = -INFINITY;  // a query that sees nothing
      for (size_t i = 0; i < inputs[7].size(); ++i) inputs[7][i] = static_cast<double>(i % 9);
      const auto run = RunOnHost(*graph, inputs, {});
      INFO(run.status());
      REQUIRE(run.ok());
      CHECK(CompareWithReference(*graph, inputs, run->outputs, 1e-4).ToString() == "OK");
    }
  }
}

TEST_CASE("a plan says that attention makes the gradient of scores, and is verified") {
  const auto graph = Attention("", "output %g.3");
  REQUIRE(graph.ok());
  const auto planned = PlanFusion(*graph, *LoadDeviceSpec("h200"));
  REQUIRE(planned.ok());
  CHECK(planned->plan.Verify(planned->graph).ToString() == "OK");
  CHECK_THAT(planned->plan.Print(planned->graph), ContainsSubstring("gradient of scores"));
}

TEST_CASE("there are four results with the attribute, and three without it") {
  const auto lines = [](const char* results, const char* attribute) {
    return ParseGraph(absl::StrCat(R"(
%x = input f32[1,1,2,4]
%lse = input f32[1,1,2]
%g:)",
                                   results, " = attention_backward %x %x %x %x %x %lse scale=1 ",
                                   attribute, "\noutput %g.0\n"))
        .status();
  };
  CHECK(lines("4", "score_gradient=1").ok());
  CHECK(lines("3", "score_gradient=0").ok());
  CHECK_FALSE(lines("3", "score_gradient=1").ok());
  CHECK_FALSE(lines("4", "").ok());
  CHECK_FALSE(lines("4", "score_gradient=2").ok());
}

}  // namespace
}  // namespace retrograd
