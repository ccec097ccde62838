// Sums down columns whose rows lie at no multiple of a sector, so that threads load element by
// element: what a block has of a row is priced by the sectors that it lies in.
#include "fusion/cost/kernel_cost.h"
#include "fusion/device/device_numbers.h"
#include "tests/catch.h"
#include "tests/support/kernels/kernel_ir_builder.h"

namespace retrograd {
namespace {

KernelIr ColumnSum(int64_t rows, int64_t columns) {
  KernelIrBuilder b({rows, columns});
  const int x = b.Load(b.In(DType::kBf16, rows * columns), A(0) * columns + A(1));
  const int sum = b.Reduce(Op::sum, b.Cast(x, DType::kFp32), AxisMask{1});
  b.Store(sum, b.Out(DType::kFp32, columns), A(1));
  return b.Build();
}

// Of the bytes over the efficiency of each access.
int64_t MemoryPs(const KernelPricer& pricer, const Schedule& schedule) {
  for (const Term& term : pricer.Of(schedule, /*explain=*/true).terms) {
    if (term.name == "hbm") return term.ps;
  }
  return 0;
}

TEST_CASE("pieces of a row that are shorter than a sector cost whole sectors") {
  const auto device = LoadDeviceSpec("h100");
  REQUIRE(device.ok());
  for (int64_t columns : {2401, 28'813, 100'003}) {
    const KernelIr ir = ColumnSum(4096, columns);
    const KernelProfile profile = ProfileKernel(ir, Classify(ir));
    const KernelPricer pricer(ir, profile, *device);
    const auto piece = [&](int thread_rows) {
      Schedule s{.kind = Template::kColumnReduction, .threads = 256};
      s.rows_per_block = thread_rows;
      s.rows_per_thread = 4096 / thread_rows;  // all at once: no waits between batches
      s.blocks = (columns + 256 / thread_rows - 1) / (256 / thread_rows);
      return MemoryPs(pricer, s);
    };
    INFO(columns);
    CHECK(piece(8) == piece(16));            // 64 and 32 bytes
    CHECK(piece(32) > piece(16) * 19 / 10);  // 16 bytes of 32
    CHECK(piece(64) > piece(32) * 19 / 10);  // 8
  }
}

TEST_CASE("of a sum down odd rows no block has less than a sector of a row") {
  const auto device = LoadDeviceSpec("h100");
  REQUIRE(device.ok());
  for (int64_t columns : {28'813, 28'815, 50'001}) {
    const KernelIr ir = ColumnSum(128, columns);
    const KernelProfile profile = ProfileKernel(ir, Classify(ir));
    const KernelPricer pricer(ir, profile, *device);
    const Schedule* best = nullptr;
    int64_t least = 0;
    const std::vector<Schedule> all = CandidateSchedules(ir, profile, ScheduleLimitsOf(*device));
    for (const Schedule& s : all) {
      const int64_t ps = pricer.Of(s).ps;
      if (best == nullptr || ps < least) best = &s, least = ps;
    }
    REQUIRE(best != nullptr);
    INFO(columns << ": " << best->Print());
    CHECK(best->threads / best->rows_per_block * best->vector_width * 2 >= 32);
  }
}

}  // namespace
}  // namespace retrograd
