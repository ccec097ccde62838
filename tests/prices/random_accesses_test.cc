// What accesses in any order take beside their bytes: rows that are looked up, and what a sum at
// unsorted indices reads at its positions.
#include "fusion/cost/kernel_cost.h"
#include "fusion/kernel/ir/scale.h"
#include "tests/catch.h"
#include "tests/support/kernels/kernel_ir_builder.h"
#include "tests/support/kernels/term_ps.h"
#include "tests/support/plans/plan_of.h"

namespace retrograd {
namespace {

constexpr int64_t kLookups = 1 << 21;

// Rows of a table, each `columns` numbers, that indices pick.
KernelIr LookUps(int64_t rows, int64_t columns) {
  KernelIrBuilder b({kLookups, columns});
  const int index = b.Load(b.In(DType::kInt64, kLookups), A(0));
  const int x = b.Gather(b.In(DType::kFp32, rows * columns), A(1), index, columns, rows);
  b.Store(b.Do(Op::neg, {x}), b.Out(DType::kFp32, kLookups * columns), A(0) * columns + A(1));
  return b.Build();
}

int64_t HbmOf(const KernelIr& ir) {
  const Schedule s{.kind = Template::kPointwise,
                   .threads = 256,
                   .vector_width = 1,
                   .blocks = ir.Points(ir.all_axes()) / 256};
  return TermPs(ir, s, "hbm");
}

int64_t Streamed(int64_t bytes) { return TransferPs(bytes, Device("h200").hbm_bytes_per_s); }

// The same without an index: as many rows, one behind the other.
KernelIr InOrder(int64_t columns) {
  KernelIrBuilder b({kLookups, columns});
  const int index = b.Load(b.In(DType::kInt64, kLookups), A(0));
  const IndexExpr at = A(0) * columns + A(1);
  const int x = b.Load(b.In(DType::kFp32, kLookups * columns), at);
  const int y = b.Do(Op::add, {x, b.Cast(index, DType::kFp32)});
  b.Store(y, b.Out(DType::kFp32, kLookups * columns), at);
  return b.Build();
}

TEST_CASE("rows of a table that caches do not keep come in whole bursts") {
  // 16 bytes of each burst of 64 are wanted, and a table of 1 MB is kept.
  const int64_t bare = HbmOf(InOrder(4)), kept = HbmOf(LookUps(1 << 16, 4));
  const int64_t large = HbmOf(LookUps(1 << 24, 4));
  CHECK(kept < bare);
  CHECK(large > 2 * bare);
  CHECK(large < 5 * bare);
}

TEST_CASE("long rows are looked up at the memory's rate") {
  const int64_t columns = 1024;  // 4 KiB
  CHECK(HbmOf(LookUps(kLookups, columns)) < HbmOf(InOrder(columns)) * 11 / 10);
}

TEST_CASE("tables that are looked up more often stay in the caches before others") {
  // Of two tables one is small; both together are as large as one of the others.
  const auto two_tables = [](int64_t first, int64_t second) {
    KernelIrBuilder b({kLookups, 4});
    const int index = b.Load(b.In(DType::kInt64, kLookups), A(0));
    const int other = b.Load(b.In(DType::kInt64, kLookups), A(0));
    const int x = b.Gather(b.In(DType::kFp32, first * 4), A(1), index, 4, first);
    const int y = b.Gather(b.In(DType::kFp32, second * 4), A(1), other, 4, second);
    b.Store(b.Do(Op::add, {x, y}), b.Out(DType::kFp32, kLookups * 4), A(0) * 4 + A(1));
    return HbmOf(b.Build());
  };
  CHECK(two_tables(1 << 18, 15 << 18) < two_tables(1 << 21, 1 << 21) * 9 / 10);
  CHECK(two_tables(1 << 18, 15 << 18) == two_tables(15 << 18, 1 << 18));
}

TEST_CASE("what an index picks out of a known row is near") {
  // One of the 16 numbers of each row of 64 bytes.
  KernelIrBuilder b({kLookups});
  const int index = b.Load(b.In(DType::kInt64, kLookups), A(0));
  const int x = b.Gather(b.In(DType::kFp32, kLookups * 16), A(0) * 16, index, 1, 16);
  b.Store(x, b.Out(DType::kFp32, kLookups), A(0));
  const int64_t near = HbmOf(b.Build());
  CHECK(near < HbmOf(LookUps(kLookups * 16, 1)) / 2);
}

// Numbers of edges, `columns` each, added up at the rows that unsorted indices name.
Planned SumOf(int64_t edges, int64_t columns) {
  GraphBuilder builder("sum");
  const auto input = [&](DType type, Shape shape) {
    return builder.Input({type, std::move(shape)}, {.name = "x", .alignment = 256});
  };
  builder.Output(builder.Add(Op::index_add,
                             {builder.Full(0, DType::kFp32, {100'000, columns}),
                              input(DType::kInt64, {edges}), input(DType::kFp32, {edges, columns})},
                             {{"axis", int64_t{0}}}),
                 "y");
  auto graph = builder.Build();
  REQUIRE(graph.ok());
  return PlanOf(*graph, Device("h200"));
}

TEST_CASE("a sum at unsorted indices reads narrow rows burst by burst") {
  const auto hbm = [](const Planned& planned) {
    int64_t ps = 0;
    for (const Group& group : planned.plan.groups) {
      for (const Term& term : group.terms) {
        const bool sums = KernelsOf(group).size() == 1 && KernelsOf(group)[0]->ir.scatter;
        if (sums && term.name == "hbm") ps += term.ps;
      }
    }
    return ps;
  };
  const int64_t edges = 1 << 22;  // 64 MB of 16 bytes each
  CHECK(hbm(SumOf(edges, 4)) > Streamed(edges * 64 / 2));
}

}  // namespace
}  // namespace retrograd
