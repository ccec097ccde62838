// What passes over points take beside the bytes that they must move: a last wave that is not full,
// rows with ends, stores of parts of sectors, and the places and addresses of threads.
#include <set>
#include <vector>

#include "fusion/cost/kernel_cost.h"
#include "fusion/cost/last_wave.h"
#include "fusion/kernel/ir/scale.h"
#include "fusion/planner/planner.h"
#include "graph/ir/sorted_indices.h"
#include "tests/catch.h"
#include "tests/support/kernels/kernel_ir_builder.h"
#include "tests/support/plans/plan_of.h"

namespace retrograd {
namespace {

Price PriceOf(const KernelIr& ir, int width, int64_t blocks) {
  const DeviceSpec device = Device("h200");
  const KernelProfile profile = ProfileKernel(ir, Classify(ir));
  const KernelPricer pricer(ir, profile, device);
  return pricer.Of(
      {.kind = Template::kPointwise, .threads = 256, .vector_width = width, .blocks = blocks},
      /*explain=*/true);
}

int64_t TermPs(const Price& price, absl::string_view name) {
  for (const Term& term : price.terms) {
    if (term.name == name) return term.ps;
  }
  return 0;
}

// Twice x[r,c], stored where `to` says.
KernelIr Doubled(int64_t rows, int64_t columns, const IndexExpr& to) {
  KernelIrBuilder b({rows, columns});
  const int x = b.Load(b.In(DType::kBf16, rows * columns), A(0) * columns + A(1));
  b.Store(b.Do(Op::add, {x, x}), b.Out(DType::kBf16, rows * columns), to);
  return b.Build();
}

TEST_CASE("few blocks behind a full wave take less than a wave of their own") {
  const DeviceSpec device = Device("h200");
  const int64_t wave = device.sms * device.max_threads_per_sm / 256;
  const auto price_of = [&](int64_t blocks) {
    return PriceOf(Doubled(blocks, 2048, A(0) * 2048 + A(1)), 8, blocks);
  };
  const int64_t one = price_of(wave).ps, two = price_of(2 * wave).ps;
  const int64_t more = price_of(wave + device.sms).ps;
  CHECK(more > one);
  CHECK(more - one < (two - one) * 2 / 3);
  // But they are not as fast as their share of full waves: an SM with one block waits more.
  CHECK(more - one > 2 * (two - one) * device.sms / wave);
}

TEST_CASE("waves never take less for having more blocks") {
  for (const int64_t resident : {1, 2, 8}) {
    const int64_t wave = 132 * resident;
    for (const SharedBySm& shared :
         {SharedBySm{256, 1024}, SharedBySm{4096, 16800}, SharedBySm{512, 16800}, SharedBySm{0, 1},
          SharedBySm{40000, 16800}}) {
      int64_t before = 0;
      for (int64_t blocks = 0; blocks <= 3 * wave + 1; ++blocks) {
        const Placing placing{.blocks = blocks, .blocks_per_sm = resident, .sms = 132};
        const int64_t soft = LastWavePpm(placing, shared), whole = LastWavePpm(placing, {});
        INFO(blocks << " blocks, " << resident << " of an SM, each " << shared.of_block << " of "
                    << shared.enough);
        const bool within = kPpm <= soft && soft <= whole;
        const int64_t time = blocks * soft;
        const bool grows = time + 2 * blocks >= before;  // but for rounding
        if (!within || !grows) FAIL(soft << ", " << whole << ", " << time << " after " << before);
        before = time;
        if (blocks <= wave || blocks % wave == 0) CHECK(soft == kPpm);
      }
    }
  }
}

TEST_CASE("short rows with ends go by narrower vectors that have none") {
  constexpr int64_t kRows = 25088, kColumns = 180;
  const KernelIr ir = Doubled(kRows, kColumns, A(0) * kColumns + A(1));
  const int64_t wide = PriceOf(ir, 8, kRows * 34 / 256).ps;
  const int64_t narrow = PriceOf(ir, 4, kRows * 45 / 256).ps;
  CHECK(narrow < wide);
  // Of long rows the ends hardly count.
  constexpr int64_t kLong = 50257;
  const KernelIr long_rows = Doubled(1024, kLong, A(0) * kLong + A(1));
  const int64_t by_vectors = PriceOf(long_rows, 8, 1024 * 6297 / 256).ps;
  const int64_t alone = PriceOf(long_rows, 1, 1024 * kLong / 256).ps;
  CHECK(by_vectors < alone);
}

TEST_CASE("stores of elements a vector apart write each sector in parts") {
  // Columns as threes, each of which is stored elsewhere: a pixel shuffle by 3.
  constexpr int64_t kRows = 8192, kColumns = 384, kThird = kRows * kColumns / 3;
  const std::vector<int64_t> extents = {kRows, kColumns};
  const IndexExpr apart =
      A(0) * (kColumns / 3) + FloorDiv(A(1), 3, extents) + Mod(A(1), 3, extents) * kThird;
  const auto stores = [&](const IndexExpr& to, int width) {
    const int64_t blocks = kRows * kColumns / 256 / width;
    return TermPs(PriceOf(Doubled(kRows, kColumns, to), width, blocks), "stores");
  };
  CHECK(stores(apart, 1) == 0);  // neighbours are other threads'
  CHECK(stores(apart, 2) > 0);
  CHECK(stores(apart, 8) == Approx(4 * stores(apart, 2)));
  CHECK(stores(A(0) * kColumns + A(1), 8) == 0);
}

// A sum at indices of rows of 32 columns, whose folds are stored: four bytes a position.
KernelIr FoldedRows(bool in_order) {
  constexpr int64_t kRows = 65536, kColumns = 32, kTable = 1024;
  KernelIrBuilder b({kRows, kColumns});
  const int x = b.Load(b.In(DType::kFp32, kRows * kColumns), A(0) * kColumns + A(1));
  const SortedIndices order{.rows = kTable, .indices = kRows};
  const int sorted = b.In(DType::kInt32, order.elements());
  b.Store(b.Reduce(Op::sum, x, 0b10), b.Out(DType::kFp32, kRows), A(0));
  b.Scatter({.sorted = sorted,
             .src_instr = x,
             .buffer = b.Out(DType::kFp32, kTable * kColumns),
             .row_axes = 0b01,
             .table_rows = kTable,
             .in_order = in_order});
  return b.Build();
}

TEST_CASE("what is stored at positions that stand anywhere writes a sector of each") {
  const DeviceSpec device = Device("h200");
  const auto stores = [&](bool in_order) {
    const KernelIr ir = FoldedRows(in_order);
    const Classification shape = Classify(ir);
    REQUIRE(shape.reason == "");
    const KernelProfile profile = ProfileKernel(ir, shape);
    const KernelPricer pricer(ir, profile, device);
    std::set<int64_t> stores;
    for (const Schedule& s : CandidateSchedules(ir, shape, {})) {
      stores.insert(TermPs(pricer.Of(s, /*explain=*/true), "stores"));
    }
    return stores;
  };
  const int64_t parts = TransferPs(65536 * device.sector_bytes, device.part_sector_bytes_per_s);
  CHECK(stores(false) == std::set<int64_t>{parts});
}

TEST_CASE("whole accesses of a vector write no parts of sectors") {
  KernelIrBuilder b({4096, 4096});
  const int x = b.Load(b.In(DType::kFp32, 4096 * 4096), A(0) * 4096 + A(1));
  b.Store(b.Cast(x, DType::kFp64), b.Out(DType::kFp64, 4096 * 4096), A(0) * 4096 + A(1));
  CHECK(TermPs(PriceOf(b.Build(), 4, 4096 * 4), "stores") == 0);
}

TEST_CASE("a thread's place and addresses take instructions") {
  constexpr int64_t kRows = 4096, kColumns = 4096;
  const std::vector<int64_t> extents = {kRows, kColumns};
  const int64_t blocks = kRows * kColumns / 256;
  const auto compute = [&](const IndexExpr& to) {
    return TermPs(PriceOf(Doubled(kRows, kColumns, to), 1, blocks), "compute");
  };
  const int64_t plain = compute(A(0) * kColumns + A(1));
  // Rows rolled by two.
  const IndexExpr rolled = Mod(A(0) + IndexExpr::Constant(2), kRows, extents);
  CHECK(compute(rolled * kColumns + A(1)) > plain);
}

}  // namespace
}  // namespace retrograd
