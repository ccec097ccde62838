// Sums over indices as the planner sees them: sorted once, gathered by each sum itself, narrowed as
// they are stored.
#include "fusion/lower/indexed/sort_indices.h"

#include <cmath>

#include "fusion/lower/private/private_gathers.h"
#include "graph/reference/reference.h"
#include "graph/text/text.h"
#include "tests/catch.h"
#include "tests/support/graphs/parsed_graph.h"
#include "tests/support/graphs/random_graph.h"
#include "tests/support/plans/run_plan.h"

namespace retrograd {
namespace {

int Count(const BackwardGraph& g, Op op) {
  int count = 0;
  for (uint32_t i = 0; i < g.num_nodes(); ++i) count += g.op(NodeId{i}) == op;
  return count;
}

BackwardGraph Sorted(const BackwardGraph& graph) {
  auto sorted = SortIndices(graph);
  REQUIRE(sorted.status().ToString() == "OK");
  REQUIRE(sorted->Verify().ToString() == "OK");
  return *sorted;
}

// What the planned graph computes on the host, checked, against the reference of the graph itself.
void CheckRun(const BackwardGraph& g, double tolerance) {
  for (uint32_t seed = 1; seed <= 3; ++seed) {
    INFO("seed " << seed);
    const std::vector<Values> inputs = RandomInputs(g, seed);
    RunSetup setup;
    setup.host.compile.check = true;
    auto run = RunOnHost(g, inputs, setup);
    REQUIRE(run.status().ToString() == "OK");
    auto wanted = Evaluate(g, inputs, {.mode = ReferenceOptions::kFloat64});
    REQUIRE(wanted.status().ToString() == "OK");
    REQUIRE(run->outputs.size() == g.outputs().size());
    for (size_t o = 0; o < g.outputs().size(); ++o) {
      const Values& want = (*wanted)[g.value_index(*g.outputs()[o].value)];
      REQUIRE(run->outputs[o].size() == want.size());
      for (size_t i = 0; i < want.size(); ++i) {
        CHECK(std::fabs(run->outputs[o][i] - want[i]) <=
              tolerance * std::max(1.0, std::fabs(want[i])));
      }
    }
  }
}

TEST_CASE("sums over one index share one sort, whatever the shape of the index") {
  const BackwardGraph g = Parse(R"(
%i = input i64[6,5]
%x = input f32[6,5,4]
%y = input f32[2,6,5]
%zx = full dtype=f32 shape=[7,4] value=0.0
%zy = full dtype=f32 shape=[2,7] value=0.0
%zz = full dtype=f32 shape=[9,4] value=0.0
%a = index_add %zx %i %x axis=0
%b = index_add %zy %i %y axis=1
%c = index_add %zz %i %x axis=0
output %a
output %b
output %c
)");
  const BackwardGraph sorted = Sorted(g);
  CHECK(Count(sorted, Op::index_add) == 0);
  CHECK(Count(sorted, Op::segment_add) == 3);
  CHECK(Count(sorted, Op::sort_indices) == 2);  // into 7 rows and into 9
  CheckRun(g, 1e-5);
}

TEST_CASE("a sum onto a base is accumulated, and a single index is a list of one") {
  const BackwardGraph g = Parse(R"(
%i = input i64[]
%x = input f32[4]
%base = input f32[7,4]
%a = index_add %base %i %x axis=0
output %a
)");
  const BackwardGraph sorted = Sorted(g);
  CHECK(Count(sorted, Op::accumulate) == 1);
  CheckRun(g, 1e-5);
}

TEST_CASE("zeros with a border of ones are no zeros") {
  CheckRun(Parse(R"(
%i = input i64[20]
%x = input f32[20,4]
%zero = full dtype=f32 shape=[5,4] value=0.0
%base = pad %zero low=[1,0] high=[1,0] value=1.0
%a = index_add %base %i %x axis=0
output %a
)"),
           1e-5);
}

TEST_CASE("a table that is narrowed next is stored narrow") {
  const BackwardGraph g = Parse(R"(
%i = input i64[40]
%x = input bf16[40,16]
%zero = full dtype=f32 shape=[7,16] value=0.0
%wide = cast %x dtype=f32
%sum = index_add %zero %i %wide axis=0
%narrow = cast %sum dtype=bf16
output %narrow
)");
  const BackwardGraph sorted = Sorted(g);
  CHECK(Count(sorted, Op::cast) == 1);
  CheckRun(g, 0x1p-8);
}

TEST_CASE("a table that others read, too, or that fp64 is summed in, stays wide") {
  for (const char* text : {R"(
%i = input i64[9]
%x = input f32[9,4]
%zero = full dtype=f32 shape=[7,4] value=0.0
%sum = index_add %zero %i %x axis=0
%narrow = cast %sum dtype=bf16
output %narrow
output %sum
)",
                           R"(
%i = input i64[9]
%x = input f64[9,4]
%zero = full dtype=f64 shape=[7,4] value=0.0
%sum = index_add %zero %i %x axis=0
%narrow = cast %sum dtype=bf16
output %narrow
)"}) {
    const BackwardGraph g = Parse(text);
    CHECK(Count(Sorted(g), Op::cast) == 1);
    CheckRun(g, 0x1p-8);
  }
}

TEST_CASE("a sum gathers its rows itself where others read them, too") {
  const BackwardGraph g = Parse(R"(
%to = input i64[30]
%from = input i64[30]
%dy = input f32[7,4]
%w = input f32[30,1]
%rows = index_select %dy %to axis=0
%scaled = mul %rows %w
%zero = full dtype=f32 shape=[7,4] value=0.0
%dx = index_add %zero %from %scaled axis=0
%dw = sum %rows axes=[1] keep=1
output %dx
output %dw
)");
  const BackwardGraph sorted = Sorted(g);
  const auto own = PrivateGathers(sorted);
  REQUIRE(own.status().ToString() == "OK");
  CHECK(Count(*own, Op::index_select) == 2);
  CheckRun(g, 1e-5);
}

TEST_CASE("a sort of what is no list is refused") {
  const auto sort = ParseGraph(R"(
%i = input i64[4,5]
%s = sort_indices %i rows=6
output %s
)");
  CHECK_THAT(std::string(sort.status().message()), Catch::Contains("RG-G018"));
}

TEST_CASE("a segment_add of what is not sorted, or of other rows, is refused") {
  const auto list = ParseGraph(R"(
%s = input i32[16]
%x = input f32[4,4]
%zero = full dtype=f32 shape=[7,4] value=0.0
%a = segment_add %zero %s %x axis=0
output %a
)");
  CHECK_THAT(std::string(list.status().message()), Catch::Contains("RG-G054"));
  const auto rows = ParseGraph(R"(
%i = input i64[4]
%x = input f32[4,4]
%s = sort_indices %i rows=6
%zero = full dtype=f32 shape=[7,4] value=0.0
%a = segment_add %zero %s %x axis=0
output %a
)");
  CHECK_THAT(std::string(rows.status().message()), Catch::Contains("RG-G054"));
}

}  // namespace
}  // namespace retrograd
