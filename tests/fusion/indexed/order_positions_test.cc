// What several sums at the same indices read of positions is put in their order once: when, and
// that the sums are the same, bit by bit.
#include "fusion/lower/indexed/order_positions.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "fusion/device/device_spec.h"
#include "fusion/lower/indexed/sort_indices.h"
#include "fusion/lower/lower.h"
#include "fusion/planner/planner.h"
#include "graph/reference/reference.h"
#include "graph/text/text.h"
#include "tests/catch.h"
#include "tests/support/graphs/parsed_graph.h"
#include "tests/support/graphs/random_graph.h"
#include "tests/support/plans/run_plan.h"

namespace retrograd {
namespace {

int SumsInOrder(const BackwardGraph& g) {
  int sums = 0;
  for (uint32_t i = 0; i < g.num_nodes(); ++i) {
    sums += g.op(NodeId{i}) == Op::segment_add && g.node(NodeId{i}).attrs.Int("in_order") == 1;
  }
  return sums;
}

BackwardGraph Sorted(const BackwardGraph& graph) {
  auto sorted = SortIndices(graph);
  REQUIRE(sorted.status().ToString() == "OK");
  return *sorted;
}

BackwardGraph Ordered(const BackwardGraph& graph) {
  auto ordered = OrderPositions(Sorted(graph));
  REQUIRE(ordered.status().ToString() == "OK");
  REQUIRE(ordered->Verify().ToString() == "OK");
  return *ordered;
}

// The reference of the ordered graph, and the kernels of its plan in a build that checks accesses,
// against the reference of the graph itself.
void CheckSame(const BackwardGraph& g) {
  const BackwardGraph ordered = Ordered(g);
  for (uint32_t seed = 1; seed <= 3; ++seed) {
    INFO("seed " << seed);
    const std::vector<Values> inputs = RandomInputs(g, seed);
    const auto wanted = Evaluate(g, inputs, {.mode = ReferenceOptions::kFloat64});
    const auto given = Evaluate(Sorted(g), inputs, {.mode = ReferenceOptions::kFloat64});
    const auto found = Evaluate(ordered, inputs, {.mode = ReferenceOptions::kFloat64});
    REQUIRE(found.status().ToString() == "OK");
    RunSetup setup;
    setup.host.compile.check = true;
    const auto run = RunOnHost(ordered, inputs, setup);
    REQUIRE(run.status().ToString() == "OK");
    for (size_t o = 0; o < g.outputs().size(); ++o) {
      const Values& want = (*wanted)[g.value_index(*g.outputs()[o].value)];
      const BackwardGraph sorted = Sorted(g);
      CHECK((*found)[ordered.value_index(*ordered.outputs()[o].value)] ==
            (*given)[sorted.value_index(*sorted.outputs()[o].value)]);
      REQUIRE(run->outputs[o].size() == want.size());
      for (size_t i = 0; i < want.size(); ++i) {
        CHECK(run->outputs[o][i] == Approx(want[i]).epsilon(1e-4).margin(1e-4));
      }
    }
  }
}

// Two layers of a graph network: rows of the far ends of edges, by a weight of each edge that is
// made of both ends' degrees, are summed at the near ends.
constexpr absl::string_view kLayers = R"(
%near = input i64[30]
%far = input i64[30]
%degrees = input f32[9]
%x = input f32[9,4]
%y = input f32[9,8]
%one = full dtype=f32 shape=[] value=1.0
%least = maximum %degrees %one
%root = rsqrt %least
%a = index_select %root %near axis=0
%b = index_select %root %far axis=0
%norm = mul %a %b
%column = reshape %norm shape=[30,1]
%zx = full dtype=f32 shape=[9,4] value=0.0
%zy = full dtype=f32 shape=[9,8] value=0.0
%rx = index_select %x %far axis=0
%mx = mul %rx %column
%sx = index_add %zx %near %mx axis=0
%ry = index_select %y %far axis=0
%my = mul %ry %column
%sy = index_add %zy %near %my axis=0
output %sx
output %sy
)";

TEST_CASE("sums that share the other ends of their edges go through them in order") {
  const BackwardGraph g = Parse(kLayers);
  const BackwardGraph ordered = Ordered(g);
  CHECK(SumsInOrder(ordered) == 2);
  // The far ends are gathered once; the near ones, of which the list tells, are not.
  int gathers = 0;
  for (uint32_t i = 0; i < ordered.num_nodes(); ++i) {
    const NodeId id{i};
    if (ordered.op(id) != Op::index_select) continue;
    gathers += ordered.op(ordered.operands(id)[1].node) == Op::slice &&
               ordered.op(ordered.operands(id)[0].node) == Op::input;
  }
  CHECK(gathers == 1);
  CheckSame(g);
}

TEST_CASE("views, folds, joins of whole operands and repeated values keep the order") {
  CheckSame(Parse(R"(
%near = input i64[24]
%far = input i32[24]
%w = input f32[24,2]
%x = input f32[7,2,3]
%v = input f32[1,3]
%none = full dtype=f32 shape=[24,1] value=0.5
%r = index_select %x %far axis=0
%wc = reshape %w shape=[24,2,1]
%we = expand %wc shape=[24,2,3]
%m = mul %r %we
%ve = expand %v shape=[24,3]
%s = sum %m axes=[1]
%t = accumulate %s %ve shape=[24,3] starts=[0,0,0,0]
%u = mul %t %none
%z2 = full dtype=f32 shape=[5,2,3] value=0.0
%z1 = full dtype=f32 shape=[5,3] value=0.0
%a = index_add %z2 %near %m axis=0
%b = index_add %z1 %near %u axis=0
output %a
output %b
)"));
}

TEST_CASE("weights of edges in a column are gathered once") {
  const auto g = Lower(Parse(R"(
%near = input i64[30]
%far = input i64[30]
%w = input f32[30,1]
%x = input f32[9,4]
%y = input f32[9,4]
%z = full dtype=f32 shape=[9,4] value=0.0
%rx = index_select %x %far axis=0
%mx = mul %rx %w
%sx = index_add %z %near %mx axis=0
%ry = index_select %y %far axis=0
%my = mul %ry %w
%sy = index_add %z %near %my axis=0
output %sx
output %sy
)"));
  REQUIRE(g.status().ToString() == "OK");
  CHECK(SumsInOrder(*g) == 2);
  int gathers = 0;
  for (uint32_t i = 0; i < g->num_nodes(); ++i) {
    gathers += g->op(NodeId{i}) == Op::index_select;
  }
  CHECK(gathers == 4);  // the weights, the far ends, and a row of each layer at these
}

TEST_CASE("a table of other length than the sums' is gathered by the indices, put in order") {
  const BackwardGraph g = Parse(R"(
%near = input i64[20]
%x = input f32[6,4]
%w = input f32[20]
%r = index_select %x %near axis=0
%c = reshape %w shape=[20,1]
%m = mul %r %c
%n = neg %m
%z = full dtype=f32 shape=[9,4] value=0.0
%a = index_add %z %near %m axis=0
%b = index_add %z %near %n axis=0
output %a
output %b
)");
  CHECK(SumsInOrder(Ordered(g)) == 2);
  CheckSame(g);
}

TEST_CASE("nothing is put in order that no two sums of a list share, or that others read") {
  const auto with = [](absl::string_view rest) {
    return Parse(absl::StrCat(R"(
%near = input i64[20]
%other = input i64[20]
%w = input f32[20,4]
%v = input f32[20,4]
%z = full dtype=f32 shape=[6,4] value=0.0
)",
                              rest));
  };
  const BackwardGraph one = with("%a = index_add %z %near %w axis=0\noutput %a\n");
  CHECK(SumsInOrder(Ordered(one)) == 0);
  // Each sum has a source of its own.
  const BackwardGraph apart = with(R"(
%a = index_add %z %near %w axis=0
%b = index_add %z %near %v axis=0
output %a
output %b
)");
  CHECK(SumsInOrder(Ordered(apart)) == 0);
  // What is made of the shared one is an output, or is summed by another list.
  for (absl::string_view reader :
       {"output %m\n", "%c = index_add %z %other %m axis=0\noutput %c\n"}) {
    const BackwardGraph read = with(absl::StrCat(R"(
%m = mul %w %v
%n = neg %m
%a = index_add %z %near %m axis=0
%b = index_add %z %near %n axis=0
output %a
output %b
)",
                                                 reader));
    CHECK(SumsInOrder(Ordered(read)) == 0);
  }
}

TEST_CASE("prices of whole plans decide, and the feature leaves it out") {
  const auto device = LoadDeviceSpec("h100");
  REQUIRE(device.ok());
  const BackwardGraph large =
      Parse(absl::StrReplaceAll(kLayers, {{"[30", "[2000000"}, {"[9", "[100000"}}));
  const auto sums_of = [&](const PlanOptions& options) {
    const auto planned = PlanFusion(large, *device, options);
    REQUIRE(planned.status().ToString() == "OK");
    return std::pair(SumsInOrder(planned->graph), planned->plan.summary.price_ps);
  };
  const auto [chosen, chosen_ps] = sums_of({});
  const auto [left, left_ps] = sums_of({.disable = {"position_order"}});
  CHECK(chosen == 2);
  CHECK(left == 0);
  CHECK(chosen_ps < left_ps);
}

// Equal indices are one after lowering: whether sums go in order is asked of what lowering gives.
TEST_CASE("sums at indices that are made twice are decided by prices, too") {
  const auto device = LoadDeviceSpec("h100");
  REQUIRE(device.ok());
  const BackwardGraph g = Parse(R"(
%given = input i64[2000]
%far = input i64[2000]
%x = input f32[500,32]
%y = input f32[500,32]
%none = full dtype=i64 shape=[2000] value=0
%n1 = add %given %none
%n2 = add %given %none
%z = full dtype=f32 shape=[500,32] value=0.0
%rx = index_select %x %far axis=0
%sx = index_add %z %n1 %rx axis=0
%ry = index_select %y %far axis=0
%sy = index_add %z %n2 %ry axis=0
output %sx
output %sy
)");
  const auto chosen = PlanFusion(g, *device, {});
  const auto without = PlanFusion(g, *device, {.disable = {"position_order"}});
  REQUIRE(chosen.status().ToString() == "OK");
  REQUIRE(without.status().ToString() == "OK");
  CHECK(chosen->plan.summary.price_ps <= without->plan.summary.price_ps);
}

}  // namespace
}  // namespace retrograd
