// Graphs whose ops read an operand at many places: a kernel of all stages of a fast transform would
// make each element of the first stage once for each element of the last one.
#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "fusion/planner/planner.h"
#include "graph/text/text.h"
#include "tests/catch.h"
#include "tests/support/graphs/random_graph.h"
#include "tests/support/plans/run_plan.h"

namespace retrograd {
namespace {

BackwardGraph Parsed(const std::string& text) {
  auto graph = ParseGraph(text);
  INFO(text << "\n" << graph.status());
  REQUIRE(graph.ok());
  return *std::move(graph);
}

// The Walsh-Hadamard transform of rows of 2^stages elements: stage h adds and subtracts elements
// that lie 2^h apart.
BackwardGraph WalshHadamard(int rows, int stages) {
  const int columns = 1 << stages;
  std::string text =
      absl::StrCat("%0 = input name=\"x\" kind=saved f32[", rows, ",", columns, "]\n");
  int last = 0, next = 1;
  for (int stage = 0; stage < stages; ++stage) {
    const int apart = 1 << stage;
    const std::string slice = " axis=2 step=1 start=";
    absl::StrAppend(&text, "%", next, " = reshape %", last, " shape=[", rows, ",",
                    columns / apart / 2, ",2,", apart, "]\n", "%", next + 1, " = slice %", next,
                    slice, "0 stop=1\n", "%", next + 2, " = slice %", next, slice, "1 stop=2\n");
    absl::StrAppend(&text, "%", next + 3, " = add %", next + 1, " %", next + 2, "\n%", next + 4,
                    " = sub %", next + 1, " %", next + 2, "\n%", next + 5, " = cat %", next + 3,
                    " %", next + 4, " axis=2\n%", next + 6, " = reshape %", next + 5, " shape=[",
                    rows, ",", columns, "]\n");
    last = next + 6;
    next += 7;
  }
  return Parsed(absl::StrCat(text, "output %", last, " name=\"y\"\n"));
}

// x = x * permute(x), once for each pair of neighbouring dims of `rank` dims of 2.
BackwardGraph PermutedProducts(int rank) {
  std::string dims = "2";
  for (int i = 1; i < rank; ++i) absl::StrAppend(&dims, ",2");
  std::string text = absl::StrCat("%0 = input name=\"x\" kind=saved f32[", dims, "]\n");
  int last = 0;
  for (int step = 0; step + 1 < rank; ++step) {
    std::string order;
    for (int d = 0; d < rank; ++d) {
      const int from = d == step ? step + 1 : d == step + 1 ? step : d;
      absl::StrAppend(&order, d == 0 ? "" : ",", from);
    }
    absl::StrAppend(&text, "%", last + 1, " = permute %", last, " perm=[", order, "]\n%", last + 2,
                    " = mul %", last, " %", last + 1, "\n");
    last += 2;
  }
  return Parsed(absl::StrCat(text, "output %", last, " name=\"y\"\n"));
}

DeviceSpec H200() {
  auto spec = LoadDeviceSpec("h200");
  REQUIRE(spec.ok());
  return *spec;
}

size_t LargestKernel(const FusionPlan& plan) {
  size_t most = 0;
  for (const Group& group : plan.groups) {
    if (const auto* launch = std::get_if<KernelLaunch>(&group.body)) {
      for (const auto& member : launch->members)
        most = std::max(most, member.kernel.ir.instrs.size());
    }
  }
  return most;
}

TEST_CASE("a transform of 2^12 elements becomes kernels of a few stages each") {
  for (const int stages : {7, 10, 12}) {
    INFO(stages << " stages");
    const auto planned = PlanFusion(WalshHadamard(64, stages), H200());
    REQUIRE(planned.status().ToString() == "OK");
    CHECK(planned->plan.Verify(planned->graph).ToString() == "OK");
    CHECK(static_cast<int>(planned->plan.groups.size()) <= stages);
    CHECK(LargestKernel(planned->plan) <= 1024);
  }
}

TEST_CASE("products of permuted operands plan at any rank") {
  for (const int rank : {6, 9, 12}) {
    INFO("rank " << rank);
    const auto planned = PlanFusion(PermutedProducts(rank), H200());
    REQUIRE(planned.status().ToString() == "OK");
    CHECK(planned->plan.Verify(planned->graph).ToString() == "OK");
    CHECK(LargestKernel(planned->plan) <= 1024);
  }
}

TEST_CASE("a transform's kernels give the reference's values") {
  for (const BackwardGraph& graph : {WalshHadamard(3, 7), PermutedProducts(8)}) {
    const std::vector<Values> inputs = RandomInputs(graph, 5);
    const auto run = RunOnHost(graph, inputs, {});
    INFO(run.status());
    REQUIRE(run.ok());
    const auto expected = Evaluate(graph, inputs, {.mode = ReferenceOptions::kFloat64});
    REQUIRE(expected.ok());
    const Values& want = (*expected)[graph.value_index(*graph.outputs()[0].value)];
    double largest = 0;
    for (const double v : want) largest = std::max(largest, std::fabs(v));
    REQUIRE(run->outputs[0].size() == want.size());
    for (size_t i = 0; i < want.size(); ++i) {
      REQUIRE(std::fabs(run->outputs[0][i] - want[i]) <= 1e-5 * largest);
    }
  }
}

}  // namespace
}  // namespace retrograd
