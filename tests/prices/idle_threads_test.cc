// Threads of a warp that have no column take as long as the others, and rows too narrow for a
// warp have blocks of few lanes.
#include "fusion/planner/planner.h"
#include "tests/catch.h"
#include "tests/support/graphs/parsed_graph.h"
#include "tests/support/kernels/kernel_ir_builder.h"
#include "tests/support/kernels/row_schedule.h"
#include "tests/support/kernels/term_ps.h"

namespace retrograd {
namespace {

constexpr int64_t kRows = 1 << 20;

// Of exp(x[r,c]) over one of the axes.
KernelIr Sums(int64_t columns, AxisMask folded) {
  KernelIrBuilder b({kRows, columns});
  const int x = b.Load(b.In(DType::kFp32, kRows * columns), A(0) * columns + A(1));
  const int sum = b.Reduce(Op::sum, b.Do(Op::exp, {x}), folded);
  const bool of_rows = folded == AxisMask{2};
  b.Store(sum, b.Out(DType::kFp32, of_rows ? kRows : columns), of_rows ? A(0) : A(1));
  return b.Build();
}

Schedule Columns(int64_t columns, int thread_rows) {
  constexpr int64_t kSplit = 528;
  Schedule s{.kind = Template::kColumnReduction, .threads = 256, .vector_width = 1};
  s.rows_per_block = thread_rows;
  s.rows_per_thread = 8;
  s.split = kSplit;
  s.blocks = (columns + 256 / thread_rows - 1) / (256 / thread_rows) * kSplit;
  return s;
}

Schedule Rows(int threads_per_row, int width) { return RowSchedule(kRows, threads_per_row, width); }

int64_t ColumnsPs(int64_t columns, int thread_rows, absl::string_view term) {
  return TermPs(Sums(columns, AxisMask{1}), Columns(columns, thread_rows), term);
}

int64_t RowsPs(int64_t columns, int threads_per_row, int width, absl::string_view term) {
  return TermPs(Sums(columns, AxisMask{2}), Rows(threads_per_row, width), term);
}

TEST_CASE("lanes without a column compute beside the others of their warp") {
  // Three columns in 16 lanes and in four.
  CHECK(ColumnsPs(3, 16, "compute") == Approx(4 * ColumnsPs(3, 64, "compute")).epsilon(0.1));
  CHECK(ColumnsPs(16, 16, "compute") == Approx(ColumnsPs(3, 16, "compute")).epsilon(0.1));
}

TEST_CASE("warps without a column compute nothing") {
  CHECK(ColumnsPs(32, 1, "compute") == Approx(ColumnsPs(32, 8, "compute")).epsilon(0.02));
  CHECK(ColumnsPs(33, 1, "compute") == Approx(2 * ColumnsPs(32, 1, "compute")).epsilon(0.02));
}

TEST_CASE("threads of a row without a column compute beside the others of their warp") {
  // Of 16 elements at once one more is a second turn of all eight threads.
  const int64_t one_turn = RowsPs(16, 8, 1, "compute"), another = RowsPs(17, 8, 1, "compute");
  CHECK(another > one_turn * 12 / 10);
  CHECK(RowsPs(24, 8, 1, "compute") < another * 105 / 100);
}

TEST_CASE("threads without a column have no bytes under way") {
  // Of threads that have one row each: three columns in 16 lanes bring in less than 16 do, in
  // nearly the same time.
  const auto in_16_lanes = [](int64_t columns) {
    Schedule s = Columns(columns, 16);
    s.rows_per_thread = 1;
    s.split = kRows / s.rows_per_block;
    s.blocks = s.split;
    return TermPs(Sums(columns, AxisMask{1}), s, "hbm");
  };
  CHECK(in_16_lanes(3) > in_16_lanes(16) / 2);
}

TEST_CASE("rows one behind the other are fetched once, however narrow they are") {
  // A block of four lanes has whole rows of 12 bytes; pieces of wide rows waste their sectors.
  const KernelIr narrow = Sums(3, AxisMask{1}), wide = Sums(300, AxisMask{1});
  const auto of_byte = [&](const KernelIr& ir, int64_t columns) {
    return static_cast<double>(TermPs(ir, Columns(columns, 64), "hbm")) /
           static_cast<double>(columns);
  };
  CHECK(of_byte(narrow, 3) < of_byte(wide, 300));
}

TEST_CASE("sums of three columns have blocks of few lanes") {
  const auto device = LoadDeviceSpec("h200");
  REQUIRE(device.ok());
  const auto planned = PlanFusion(Parse(R"(
%x = input bf16[800000,3]
%w = cast %x dtype=f32
%t = tanh %w
%e = exp %t
%r = mul %e %t
%s = sum %r axes=[0] keep=0
output %s
)"),
                                  *device, {});
  REQUIRE(planned.status().ToString() == "OK");
  REQUIRE(planned->plan.groups.size() == 1);
  const KernelBody* kernel = KernelOf(planned->plan.groups[0]);
  REQUIRE(kernel != nullptr);
  CHECK(kernel->schedule.kind == Template::kColumnReduction);
  CHECK(kernel->schedule.threads / kernel->schedule.rows_per_block <= 4);
}

}  // namespace
}  // namespace retrograd
