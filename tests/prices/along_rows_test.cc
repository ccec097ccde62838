// What walks down columns pay for a tensor whose neighbours are those of the next rows.
#include "fusion/cost/along_rows.h"

#include "fusion/cost/kernel_cost.h"
#include "fusion/kernel/ir/scale.h"
#include "tests/catch.h"
#include "tests/support/kernels/kernel_ir_builder.h"
#include "tests/support/kernels/term_ps.h"

namespace retrograd {
namespace {

constexpr int64_t kRows = 1 << 16, kColumns = 384, kBytes = kRows * kColumns * 2;

// Sums down columns of products in bf16; one factor's rows lie side by side, or its columns.
KernelIr SumsOfProducts(bool along_rows) {
  KernelIrBuilder b({kRows, kColumns});
  const IndexExpr by_columns = A(0) * kColumns + A(1), by_rows = A(1) * kRows + A(0);
  const int x = b.Load(b.In(DType::kBf16, kRows * kColumns), by_columns);
  const int y = b.Load(b.In(DType::kBf16, kRows * kColumns), along_rows ? by_rows : by_columns);
  const int sum = b.Reduce(Op::sum, b.Do(Op::mul, {x, y}), AxisMask{1});
  b.Store(sum, b.Out(DType::kBf16, kColumns), A(1));
  return b.Build();
}

Schedule Columns(int rows_per_block, int rows_per_thread) {
  Schedule s{.kind = Template::kColumnReduction, .threads = 256, .vector_width = 8};
  s.rows_per_block = rows_per_block;
  s.rows_per_thread = rows_per_thread;
  s.split = 88;
  s.blocks = CeilDiv(kColumns, 8 * 256 / rows_per_block) * s.split;
  return s;
}

TEST_CASE("rows that a block loads at once share the sectors that they lie in") {
  const DeviceSpec d = Device("h200");
  const KernelIr along = SumsOfProducts(true), like = SumsOfProducts(false);
  const auto weighted = [&](const KernelIr& ir, const Schedule& s) {
    return KernelWork(ir, ProfileKernel(ir, Classify(ir)), d).Traffic(s).weighted;
  };
  // A sector has 16 rows.
  const Schedule whole = Columns(32, 4), quarter = Columns(4, 1);
  CHECK(weighted(along, whole) == weighted(like, whole));
  CHECK(weighted(along, quarter) == weighted(like, quarter) + 3 * kBytes);
  CHECK(
      KernelWork(like, ProfileKernel(like, Classify(like)), d).Traffic(whole).sectors_along_rows ==
      0);
}

TEST_CASE("rows share sectors as far as they follow one another, and others not") {
  const auto waste = [&](int64_t run) {
    return FetchedAlongRowsPpm(16 * kPpm, {.rows = run, .column_step_bytes = 1 << 10},
                               Columns(32, 4));
  };
  CHECK(waste(2) == 8 * kPpm);
  CHECK(waste(kRows) == kPpm);
  // Images of 2 x 2 places: rows of 4 follow one another, of another image they do not.
  const IndexExpr at = A(0) * 4 * kColumns + A(3) * 4 + A(1) * 2 + A(2);
  KernelIrBuilder b({kRows / 4, 2, 2, kColumns});
  const int y = b.Load(b.In(DType::kBf16, kRows * kColumns), at);
  b.Store(b.Reduce(Op::sum, y, AxisMask{7}), b.Out(DType::kBf16, kColumns), A(3));
  const KernelIr ir = b.Build();
  const KernelProfile profile = ProfileKernel(ir, Classify(ir));
  CHECK(RunAlongRows(ir, profile, at, 4, 2) == AlongRows{.rows = 4, .column_step_bytes = 8});
  CHECK(RunAlongRows(ir, profile, A(0) * 4 * kColumns + A(3) + A(2) * kColumns, 1, 2) ==
        AlongRows{});
}

TEST_CASE("a warp asks for as many sectors as it has columns") {
  const DeviceSpec d = Device("h200");
  const int64_t elements = kRows * kColumns;
  const auto sectors = [&](int64_t bytes, int64_t step, const Schedule& s, const DeviceSpec& of) {
    return SectorsAlongRows(elements, bytes, {.rows = kRows, .column_step_bytes = step}, s, of);
  };
  // Blocks of 8, of 64 and of 2 lanes; a warp has 32 threads.
  CHECK(sectors(2, 1 << 17, Columns(32, 4), d) == elements / 4);
  CHECK(sectors(2, 1 << 17, Columns(4, 4), d) == elements);
  CHECK(sectors(2, 1 << 17, Columns(128, 4), d) == elements / 16);
  CHECK(sectors(4, 1 << 17, Columns(128, 4), d) == elements / 8);  // 64 bytes of each column
  // Two columns in a line of 128 bytes, which is a sector of AMD's devices.
  CHECK(sectors(2, 64, Columns(4, 4), d) == elements / 2);
  const DeviceSpec amd = Device("mi300x");
  CHECK(sectors(2, 128, Columns(4, 4), amd) == elements);
  CHECK(AlongRowsPs(1000, amd) > 2 * AlongRowsPs(1000, d) / 3);
  const int64_t added = TermPs(SumsOfProducts(true), Columns(32, 4), "hbm") -
                        TermPs(SumsOfProducts(false), Columns(32, 4), "hbm");
  CHECK(added == AlongRowsPs(elements / 4, d));
}

TEST_CASE("sums along rows of one factor cost less than its copy, and more than sums along none") {
  const DeviceSpec d = Device("h200");
  const auto price = [&](bool along_rows) {
    const KernelIr ir = SumsOfProducts(along_rows);
    return KernelPricer(ir, ProfileKernel(ir, Classify(ir)), d).Of(Columns(32, 4)).ps;
  };
  const int64_t copy = TransferPs(2 * kBytes, d.hbm_bytes_per_s);
  CHECK(price(true) > price(false));
  CHECK(price(true) < price(false) + copy);
}

}  // namespace
}  // namespace retrograd
