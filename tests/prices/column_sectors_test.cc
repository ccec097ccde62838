// What a block has of a row is priced by the sectors that it lies in: sums down columns whose rows
// lie at no multiple of a sector, so that threads load element by element, tiles whose elements lie
// beside those of other tiles, and loads that go along rows with equal steps.
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

// Of each of `tiles`: sums of rows and of columns of x * y, where y lies along rows, and x either
// does or has the elements of all tiles side by side.
KernelIr TileSums(int64_t rows, int64_t columns, int64_t tiles, bool side_by_side) {
  KernelIrBuilder b({rows, columns, tiles});
  const int64_t all = rows * columns * tiles;
  const IndexExpr along = A(2) * (rows * columns) + A(0) * columns + A(1);
  const IndexExpr beside = A(0) * (columns * tiles) + A(1) * tiles + A(2);
  const int x = b.Load(b.In(DType::kFp32, all), side_by_side ? beside : along);
  const int product = b.Do(Op::mul, {x, b.Load(b.In(DType::kFp32, all), along)});
  b.Store(b.Reduce(Op::sum, product, AxisMask{2}), b.Out(DType::kFp32, tiles * rows),
          A(2) * rows + A(0));
  b.Store(b.Reduce(Op::sum, product, AxisMask{1}), b.Out(DType::kFp32, tiles * columns),
          A(2) * columns + A(1));
  return b.Build();
}

TEST_CASE("elements of tiles that lie beside those of other tiles cost whole sectors") {
  const auto device = LoadDeviceSpec("h200");
  REQUIRE(device.ok());
  const auto memory_ps = [&](const KernelIr& ir) {
    REQUIRE(Classify(ir).kind == Template::kHeldTiles);
    const KernelProfile profile = ProfileKernel(ir, Classify(ir));
    const KernelPricer pricer(ir, profile, *device);
    int64_t least = 0;
    for (const Schedule& s : CandidateSchedules(ir, profile, ScheduleLimitsOf(*device))) {
      const int64_t ps = MemoryPs(pricer, s);
      if (least == 0 || ps < least) least = ps;
    }
    return least;
  };
  for (int64_t tiles : {512, 768}) {
    INFO(tiles);
    const int64_t along = memory_ps(TileSums(32, 256, tiles, false));
    // One of two tensors takes 8 times its bytes.
    CHECK(memory_ps(TileSums(32, 256, tiles, true)) > along * 3);
  }
}

// Sums of every fourth element of rows, from places that lie `apart`.
KernelIr Phases(int64_t rows, int64_t columns, int loads, int64_t apart) {
  KernelIrBuilder b({rows, columns});
  const int64_t pitch = columns * 4 + loads * apart;
  const int buffer = b.In(DType::kFp32, rows * pitch);
  int sum = b.Load(buffer, A(0) * pitch + A(1) * 4);
  for (int n = 1; n < loads; ++n) {
    const int next = b.Load(buffer, A(0) * pitch + A(1) * 4 + IndexExpr::Constant(n * apart));
    sum = b.Do(Op::add, {sum, next});
  }
  b.Store(sum, b.Out(DType::kFp32, rows * columns), A(0) * columns + A(1));
  return b.Build();
}

TEST_CASE("loads that find their elements in the same sectors fetch them once") {
  const auto device = LoadDeviceSpec("h200");
  REQUIRE(device.ok());
  const auto memory_ps = [&](const KernelIr& ir) {
    const KernelProfile profile = ProfileKernel(ir, Classify(ir));
    Schedule s{.kind = Template::kPointwise, .threads = 256};
    s.blocks = ir.extents[0] * ir.extents[1] / 256;
    return MemoryPs(KernelPricer(ir, profile, *device), s);
  };
  // The sectors of one load hold the elements of all four.
  const int64_t shared = memory_ps(Phases(4096, 1024, 4, 1));
  CHECK(shared < memory_ps(Phases(4096, 1024, 1, 1)) * 11 / 10);
  // Loads that begin a multiple of the step apart fetch sectors of their own.
  CHECK(memory_ps(Phases(4096, 1024, 4, 1024)) > shared * 3 / 2);
  // So do those that reach the same place of a step far away.
  CHECK(memory_ps(Phases(4096, 1024, 4, 1025)) > shared * 3 / 2);
}

}  // namespace
}  // namespace retrograd
