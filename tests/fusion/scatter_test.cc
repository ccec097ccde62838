// Scatters of sizes that take another way than the small ones: segments that go through many
// chunks, tables of which most rows stay zero.
#include <cmath>
#include <random>

#include "codegen/emit.h"
#include "codegen/translation_unit.h"
#include "fusion/kernel/templates/scatter_workspace.h"
#include "runtime/host/host_module.h"
#include "tests/catch.h"
#include "tests/support/kernels/kernel_ir_builder.h"
#include "tests/support/kernels/run_kernel.h"
#include "tests/support/kernels/sorted_list.h"

namespace retrograd {
namespace {

struct Shape {
  int64_t outer, rows, inner, table_rows;
};

KernelIr Scattered(const Shape& s) {
  KernelIrBuilder b({s.outer, s.rows, s.inner});
  const SortedIndices order{.rows = s.table_rows, .indices = s.rows};
  const int src = b.In(DType::kFp32, s.outer * s.rows * s.inner);
  const int sorted = b.In(DType::kInt32, order.elements());
  const int table = b.Out(DType::kFp32, s.outer * s.table_rows * s.inner);
  const int v = b.Load(src, A(0) * (s.rows * s.inner) + A(1) * s.inner + A(2));
  b.Scatter({.sorted = sorted,
             .src_instr = b.Widen(v, 0b111),
             .buffer = table,
             .row_axes = 0b010,
             .table_rows = s.table_rows});
  return b.Build();
}

// Sums in the order of the rows.
std::vector<double> Wanted(const Shape& s, const BufferValues& before,
                           const std::vector<double>& indices) {
  std::vector<double> table(s.outer * s.table_rows * s.inner, 0);
  for (int64_t r = 0; r < s.rows; ++r) {
    int64_t to = static_cast<int64_t>(indices[r]);
    if (to < 0) to += s.table_rows;
    if (to < 0 || to >= s.table_rows) continue;
    for (int64_t o = 0; o < s.outer; ++o) {
      for (int64_t i = 0; i < s.inner; ++i) {
        table[(o * s.table_rows + to) * s.inner + i] += before[0][(o * s.rows + r) * s.inner + i];
      }
    }
  }
  return table;
}

// Every schedule gives what is wanted, and the same bits whatever the order of its threads.
void Check(const Shape& s, const std::vector<double>& indices) {
  const KernelIr ir = Scattered(s);
  REQUIRE(ir.Verify().ToString() == "OK");
  BufferValues before = RandomBuffers(ir, 5);
  before[1] = SortedList(indices, s.table_rows);
  const std::vector<double> want = Wanted(s, before, indices);
  std::vector<KernelBody> bodies;
  std::vector<GroupKernels> kernels;
  for (const Schedule& schedule : CandidateSchedules(ir, Classify(ir), {})) {
    bodies.push_back({.ir = ir, .schedule = schedule});
    kernels.push_back(EmitGroup(bodies.back(), Dialect::kHost));
    CHECK(static_cast<int>(kernels.back().launches.size()) ==
          ScatterLaunches(ScatterWorkspaceOf(ir)));
  }
  CHECK(bodies.size() == (s.inner % 4 == 0 ? 2 : 1));
  const auto module = HostModule::Compile(DistinctKernels(kernels), {});
  REQUIRE(module.status().ToString() == "OK");
  for (size_t k = 0; k < bodies.size(); ++k) {
    INFO(bodies[k].schedule.Print());
    const auto after = RunKernels(**module, bodies[k], kernels[k], before, 1);
    const auto again = RunKernels(**module, bodies[k], kernels[k], before, 2);
    REQUIRE(after.ok());
    REQUIRE(again.ok());
    CHECK((*after)[2] == (*again)[2]);
    double worst = 0;
    for (size_t e = 0; e < want.size(); ++e)
      worst = std::max(worst, std::fabs((*after)[2][e] - want[e]));
    CHECK(worst <= 1e-6 * std::sqrt(static_cast<double>(s.rows)) * 8);
  }
}

// From a little below the table's rows to a little above, some of them negative.
std::vector<double> Drawn(const Shape& s, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<double> indices;
  for (int64_t r = 0; r < s.rows; ++r) {
    const int64_t wide =
        static_cast<int64_t>(random() % static_cast<uint64_t>(2 * s.table_rows + 4));
    indices.push_back(static_cast<double>(wide - s.table_rows - 2));
  }
  return indices;
}

TEST_CASE("few indices name rows of a large table") {
  const Shape s{1, 9000, 1, 120'000};
  Check(s, Drawn(s, 3));
}

TEST_CASE("rows that most indices name are summed over many chunks") {
  const Shape s{2, 3000, 8, 5};
  std::vector<double> indices(s.rows, 3);
  for (int64_t r = 0; r < s.rows; r += 97) indices[r] = 1;
  Check(s, indices);
  Check(s, std::vector<double>(s.rows, 4));
}

TEST_CASE("where no index is valid the table is zero") {
  const Shape s{1, 700, 12, 40};
  Check(s, std::vector<double>(s.rows, 40));
  Check(s, Drawn({1, 700, 12, 3}, 7));
}

TEST_CASE("with no index at all the table is written in one launch") {
  const Shape s{1, 0, 12, 40};
  CHECK(ScatterLaunches(ScatterWorkspaceOf(Scattered(s))) == 1);
  Check(s, {});
}

}  // namespace
}  // namespace retrograd
