// What waves of blocks, rows that are copied ahead, loads out of phase and second launches add to
// the prices of walks along rows and down columns.
#include "fusion/cost/kernel_cost.h"
#include "fusion/kernel/ir/scale.h"
#include "fusion/kernel/templates/column_walks.h"
#include "tests/catch.h"
#include "tests/support/kernels/kernel_ir_builder.h"
#include "tests/support/kernels/row_schedule.h"
#include "tests/support/kernels/term_ps.h"

namespace retrograd {
namespace {

constexpr int64_t kRows = 1 << 16;

// x less the sum of its row, in bf16.
KernelIr RowsLessSums(int64_t columns, int64_t alignment = 16) {
  KernelIrBuilder b({kRows, columns});
  const IndexExpr at = A(0) * columns + A(1);
  const int x = b.Load(b.In(DType::kBf16, kRows * columns, alignment), at);
  const int sum = b.Reduce(Op::sum, x, AxisMask{2});
  b.Store(b.Do(Op::sub, {x, sum}), b.Out(DType::kBf16, kRows * columns, alignment), at);
  return b.Build();
}

KernelIr ColumnSums(int64_t columns) {
  KernelIrBuilder b({kRows, columns});
  const int x = b.Load(b.In(DType::kFp32, kRows * columns), A(0) * columns + A(1));
  b.Store(b.Reduce(Op::sum, x, AxisMask{1}), b.Out(DType::kFp32, columns), A(1));
  return b.Build();
}

Schedule Rows(int threads_per_row, int width) { return RowSchedule(kRows, threads_per_row, width); }

Schedule Columns(int64_t columns, int64_t split) {
  Schedule s{.kind = Template::kColumnReduction, .threads = 256, .vector_width = 4};
  s.rows_per_block = 16;
  s.rows_per_thread = 4;
  s.split = split;
  s.blocks = CeilDiv(columns, 64) * split;
  return s;
}

TEST_CASE("each later wave of blocks that go down columns adds to the price") {
  const DeviceSpec d = Device("h200");
  const KernelIr ir = ColumnSums(64);
  const int64_t blocks = TermPs(ir, Columns(64, 132), "blocks");
  CHECK(blocks == d.block_ps);
  const Schedule many = Columns(64, 132 * 32);
  const int64_t added = TermPs(ir, many, "blocks") - blocks;
  const KernelProfile profile = ProfileKernel(ir, Classify(ir));
  const int64_t at_once = 132 * PredictFootprint(ir, profile, many, d).blocks_per_sm;
  REQUIRE(at_once < many.blocks);
  CHECK(added >= MulDiv(d.next_column_block_ps, many.blocks - at_once, at_once));
}

TEST_CASE("a wave of rows takes at least as long as a block, and longer where their warps meet") {
  const KernelIr ir = RowsLessSums(1024);
  const KernelProfile profile = ProfileKernel(ir, Classify(ir));
  const DeviceSpec h200 = Device("h200");
  CHECK(h200.next_meeting_block_ps > h200.next_row_block_ps);
  DeviceSpec slow_blocks = h200, slow_meetings = h200;
  slow_blocks.next_row_block_ps *= 8;
  slow_meetings.next_meeting_block_ps *= 8;
  const auto price = [&](const DeviceSpec& d, int threads_per_row) {
    return KernelPricer(ir, profile, d).Of(Rows(threads_per_row, 8)).ps;
  };
  CHECK(price(slow_blocks, 32) > price(h200, 32));
  CHECK(price(slow_blocks, 128) == price(h200, 128));
  CHECK(price(slow_meetings, 32) == price(h200, 32));
  CHECK(price(slow_meetings, 128) > price(h200, 128));
}

TEST_CASE("rows that are copied ahead wait for the first of them") {
  const DeviceSpec d = Device("h200");
  Schedule s = Rows(256, 8);
  s.blocks = d.sms;
  const KernelIr ir = RowsLessSums(8192);
  const int64_t kept = TermPs(ir, s, "latency");
  s.staged = 2;
  CHECK(TermPs(ir, s, "latency") >= kept + d.staged_start_ps / 2);
}

TEST_CASE("vectors that are put together from two aligned loads take longer than single elements") {
  // Rows of 301 elements begin anywhere.
  const KernelIr odd = RowsLessSums(301, 2);
  const int64_t shifted = TermPs(odd, Rows(32, 8), "hbm"), single = TermPs(odd, Rows(32, 1), "hbm");
  const int64_t whole = TermPs(RowsLessSums(304), Rows(32, 8), "hbm");
  CHECK(shifted > whole * 11 / 10);
  CHECK(single < shifted);
}

TEST_CASE("a second launch takes as long as its blocks bring in their partial results") {
  const DeviceSpec d = Device("h200");
  const KernelIr ir = ColumnSums(64);
  const int64_t few = TermPs(ir, Columns(64, 132), "finalize");
  const int64_t many = TermPs(ir, Columns(64, 1056), "finalize");
  const int64_t bytes = (1056 - 132) * 64 * 4;
  CHECK(many > few + TransferPs(bytes / 4, d.sm_bytes_per_s) / 2);
  // Of the many, a block has fewer columns.
  CHECK(FinalizeLanes(1056) < FinalizeLanes(132));
  CHECK(FinalizeLanes(1056) * FinalizeThreadRows(1056) == 512);
}

}  // namespace
}  // namespace retrograd
