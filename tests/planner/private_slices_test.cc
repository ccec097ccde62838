// Tensors of which only slices are read: where each slice is made by itself, and that nothing else
// changes.
#include "fusion/lower/private/private_slices.h"

#include "absl/strings/str_cat.h"
#include "fusion/kernel/templates/kernel_template.h"
#include "fusion/planner/planner.h"
#include "tests/catch.h"
#include "tests/support/plans/same_outputs.h"

namespace retrograd {
namespace {

constexpr int64_t kPoints = 3000;

// Columns of a weight times the loss's gradient, each made into something of its own.
BackwardGraph Columns(int64_t columns, bool reads_whole) {
  GraphBuilder b("columns");
  const ValueId w = b.Input({DType::kFp32, {kPoints, columns}}, {.name = "w"});
  const ValueId dy = b.Input({DType::kFp32, {}}, {.name = "dy"});
  const ValueId x = b.Input({DType::kFp32, {kPoints, 1}}, {.name = "x"});
  const ValueId scaled = b.Add(Op::mul, {w, dy});
  for (int64_t c = 0; c < columns; ++c) {
    const ValueId column =
        b.Add(Op::slice, {scaled},
              {{"axis", int64_t{1}}, {"start", c}, {"stop", c + 1}, {"step", int64_t{1}}});
    b.Output(b.Add(c % 2 == 0 ? Op::mul : Op::sub, {column, x}), absl::StrCat("g", c));
  }
  if (reads_whole) b.Output(b.Add(Op::neg, {scaled}), "all");
  auto graph = b.Build();
  INFO(graph.status());
  REQUIRE(graph.ok());
  return *std::move(graph);
}

int ProductsOf(const BackwardGraph& g, int64_t elements) {
  int products = 0;
  for (uint32_t i = 0; i < g.num_nodes(); ++i) {
    products += g.op(NodeId{i}) == Op::mul && g.type(NodeId{i}).elements() == elements;
  }
  return products;
}

BackwardGraph Sliced(const BackwardGraph& graph) {
  auto sliced = PrivateSlices(graph, {});
  INFO(sliced.status());
  REQUIRE(sliced.ok());
  CHECK(LargestDifference(graph, *sliced) == 0);
  return *std::move(sliced);
}

TEST_CASE("a product of which many columns are read, and nothing else, is made column by column") {
  const BackwardGraph graph = Columns(30, false);
  CHECK(ProductsOf(graph, kPoints * 30) == 1);
  const BackwardGraph sliced = Sliced(graph);
  CHECK(ProductsOf(sliced, kPoints * 30) == 0);
  CHECK(ProductsOf(sliced, kPoints) == 30 + 15);
}

TEST_CASE("it stays whole where all of it is read, or few columns are") {
  CHECK(ProductsOf(Sliced(Columns(30, true)), kPoints * 30) == 1);
  CHECK(ProductsOf(Sliced(Columns(5, false)), kPoints * 5) == 1);
}

TEST_CASE("its readers' kernel copies rows of what it is made of") {
  const auto planned = PlanFusion(Columns(30, false), *LoadDeviceSpec("h200"), {});
  INFO(planned.status());
  REQUIRE(planned.ok());
  CHECK(planned->plan.Verify(planned->graph).ToString() == "OK");
  int staging = 0;
  for (const Group& group : planned->plan.groups) {
    for (ValueId v : group.outputs) CHECK(planned->graph.type(v).elements() == kPoints);
    for (const KernelBody* kernel : KernelsOf(group)) staging += StagesPoints(kernel->schedule);
  }
  CHECK(staging > 0);
}

}  // namespace
}  // namespace retrograd
