// What sums at indices, and sorts for them, are predicted to take, and how such sums are planned.
#include <tuple>
#include <utility>

#include "fusion/planner/planner.h"
#include "tests/catch.h"
#include "tests/support/plans/plan_of.h"

namespace retrograd {
namespace {

// The sum over indices of values, or of as many ones.
int64_t PriceOfSum(bool of_ones) {
  GraphBuilder builder("sum");
  const auto input = [&](DType dtype, Shape shape) {
    return builder.Input({dtype, std::move(shape)}, {.name = "x", .alignment = 256});
  };
  const ValueId zero = builder.Full(0, DType::kFp32, {1 << 18});
  const ValueId values =
      of_ones ? builder.Full(1, DType::kFp32, {24576}) : input(DType::kFp32, {24576});
  builder.Output(builder.Add(Op::index_add, {zero, input(DType::kInt64, {24576}), values},
                             {{"axis", int64_t{0}}}),
                 "y");
  auto graph = builder.Build();
  INFO(graph.status());
  REQUIRE(graph.ok());
  return PlanOf(*graph, Device("h100")).plan.summary.price_ps;
}

TEST_CASE("counts by index cost no more than sums of as many values") {
  CHECK(PriceOfSum(/*of_ones=*/true) <= PriceOfSum(/*of_ones=*/false));
}

// Messages over edges: rows that one end of each edge names, times a number, summed into rows that
// the other end names.
BackwardGraph Messages(DType dtype, int64_t edges, int64_t nodes) {
  GraphBuilder builder("messages");
  const auto input = [&](DType type, Shape shape) {
    return builder.Input({type, std::move(shape)}, {.name = "x", .alignment = 256});
  };
  const ValueId rows =
      builder.Add(Op::index_select, {input(dtype, {nodes, 128}), input(DType::kInt64, {edges})},
                  {{"axis", int64_t{0}}});
  builder.Output(
      builder.Add(Op::index_add,
                  {builder.Full(0, dtype, {nodes, 128}), input(DType::kInt64, {edges}), rows},
                  {{"axis", int64_t{0}}}),
      "y");
  auto graph = builder.Build();
  INFO(graph.status());
  REQUIRE(graph.ok());
  return *std::move(graph);
}

TEST_CASE("sums over many edges load 16 bytes of a row at a time") {
  for (const auto& [dtype, columns] : {std::pair(DType::kBf16, 8), std::pair(DType::kFp32, 4)}) {
    const Planned planned = PlanOf(Messages(dtype, 200'000, 20'000), Device("h100"));
    int sums = 0;
    for (const Group& group : planned.plan.groups) {
      for (const KernelBody* kernel : KernelsOf(group)) {
        if (!kernel->ir.scatter) continue;
        ++sums;
        INFO(Name(dtype));
        CHECK(kernel->schedule.vector_width == columns);
        CHECK(kernel->schedule.staged == 1);
      }
    }
    CHECK(sums == 1);
  }
}

// The price of sorting such indices, and the rest of the sum's plan left out.
int64_t PriceOfSort(int64_t indices, int64_t rows, const DeviceSpec& device) {
  for (const Group& group : PlanOf(Messages(DType::kFp32, indices, rows), device).plan.groups) {
    const Call* call = CallOf(group);
    if (call != nullptr && call->op == Op::sort_indices) return group.price_ps;
  }
  return -1;
}

TEST_CASE("a sort takes the time of its launches, and longer ones that of their passes") {
  const DeviceSpec device = Device("h200");
  DeviceSpec slow = device;
  slow.sort_launch_ps += 1'000'000;
  for (const auto& [indices, rows, launches] :
       {std::tuple(int64_t{4096}, int64_t{30'720}, 1),
        std::tuple(int64_t{200'000}, int64_t{20'000}, 3),
        std::tuple(int64_t{600'000}, int64_t{500}, 2),
        std::tuple(int64_t{1'000'000}, int64_t{50'000}, 5)}) {
    INFO(indices << " indices, " << rows << " rows");
    CHECK(PriceOfSort(indices, rows, slow) - PriceOfSort(indices, rows, device) ==
          launches * 1'000'000);
  }
  CHECK(PriceOfSort(4096, 30'720, device) < PriceOfSort(98'304, 1024, device));
  CHECK(PriceOfSort(98'304, 1024, device) < PriceOfSort(200'000, 20'000, device));
  CHECK(PriceOfSort(200'000, 20'000, device) < PriceOfSort(1'000'000, 50'000, device));
}

}  // namespace
}  // namespace retrograd
