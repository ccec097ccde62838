// Scatters of sizes that take another way than the small ones: segments that go through many
// chunks or end in another one than they begin in, tables of which most rows stay zero, blocks that
// share what all columns of their positions read.
#include <algorithm>
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

// What every schedule of the kernel gives: each the same bits whatever the order of its threads,
// and all of them the same.
std::vector<double> Table(const KernelIr& ir, const BufferValues& before) {
  REQUIRE(ir.Verify().ToString() == "OK");
  std::vector<KernelBody> bodies;
  std::vector<GroupKernels> kernels;
  for (const Schedule& schedule : CandidateSchedules(ir, Classify(ir), {})) {
    bodies.push_back({.ir = ir, .schedule = schedule});
    kernels.push_back(EmitGroup(bodies.back(), Dialect::kHost));
    CHECK(static_cast<int>(kernels.back().launches.size()) ==
          ScatterLaunches(ScatterWorkspaceOf(ir)));
  }
  const auto module = HostModule::Compile(DistinctKernels(kernels), {});
  REQUIRE(module.status().ToString() == "OK");
  std::vector<double> table;
  for (size_t k = 0; k < bodies.size(); ++k) {
    INFO(bodies[k].schedule.Print());
    for (uint64_t seed = 1; seed <= 2; ++seed) {
      const auto after = RunKernels(**module, bodies[k], kernels[k], before, seed);
      REQUIRE(after.status().ToString() == "OK");
      if (table.empty()) table = (*after)[ir.scatter->buffer];
      CHECK((*after)[ir.scatter->buffer] == table);
    }
  }
  return table;
}

// Schedules: plain, with vectors, with vectors and shared positions.
size_t Schedules(const KernelIr& ir) { return CandidateSchedules(ir, Classify(ir), {}).size(); }

void Check(const Shape& s, const std::vector<double>& indices) {
  const KernelIr ir = Scattered(s);
  BufferValues before = RandomBuffers(ir, 5);
  before[1] = SortedList(indices, s.table_rows);
  const std::vector<double> want = Wanted(s, before, indices);
  const std::vector<double> table = Table(ir, before);
  REQUIRE(table.size() == want.size());
  double worst = 0;
  for (size_t e = 0; e < want.size(); ++e) worst = std::max(worst, std::fabs(table[e] - want[e]));
  CHECK(worst <= 1e-6 * std::sqrt(static_cast<double>(s.rows)) * 8);
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

// Indices whose segments are as long as given, in turns, and stand in any order.
std::vector<double> OfLengths(const Shape& s, const std::vector<int64_t>& lengths, uint64_t seed) {
  std::vector<double> indices;
  for (int64_t row = 0; static_cast<int64_t>(indices.size()) < s.rows; ++row) {
    const int64_t length = lengths[row % lengths.size()];
    for (int64_t i = 0; i < length && static_cast<int64_t>(indices.size()) < s.rows; ++i) {
      indices.push_back(static_cast<double>(row % (s.table_rows + 1)));
    }
  }
  std::shuffle(indices.begin(), indices.end(), std::mt19937_64(seed));
  return indices;
}

TEST_CASE("segments of about as many parts as one thread adds up") {
  for (const int64_t inner : {1, 3, 8, 40}) {
    const Shape s{1, 6000, inner, 50};
    const ScatterWorkspace w = ScatterWorkspaceOf(Scattered(s));
    const int64_t most = (w.few_parts + 1) * w.chunk;
    INFO(inner << " columns, " << w.few_parts << " parts");
    REQUIRE(2 * most < s.rows);
    Check(s, OfLengths(s, {most - w.chunk, most, 1, most + 1, most + w.chunk, 2}, 11));
  }
}

// More vectors than a block that adds up parts has.
TEST_CASE("long segments of wide rows") {
  for (const Shape& s : {Shape{1, 300, 2100, 20}, Shape{2, 300, 513, 20}}) {
    INFO(s.inner << " columns");
    const int64_t c = ScatterWorkspaceOf(Scattered(s)).chunk;
    REQUIRE(13 * c < s.rows);
    Check(s, OfLengths(s, {3 * c + 1, 1, 2 * c, 5 * c, c}, 7));
  }
}

TEST_CASE("segments that end at borders of chunks, before and behind them") {
  for (const Shape& s : {Shape{1, 1100, 12, 90}, Shape{1, 700, 5, 70}, Shape{3, 2100, 64, 260}}) {
    INFO(s.rows << " x " << s.inner);
    const int64_t c = ScatterWorkspaceOf(Scattered(s)).chunk;
    REQUIRE(8 * c < s.rows);
    Check(s, OfLengths(s, {c}, 1));
    Check(s, OfLengths(s, {c - 1, c, c + 1}, 2));
    Check(s, OfLengths(s, {1, 2 * c - 1, 2 * c, 2 * c + 1, 3}, 3));
    Check(s, OfLengths(s, {c / 2, c, 3 * c, c, 1}, 4));
    Check(s, OfLengths(s, {4 * c - 1, 4 * c, 4 * c + 1, 5, 5 * c - 1, 5 * c, 5 * c + 1}, 5));
    Check(s, OfLengths(s, {8 * c - 1, 8 * c, 8 * c + 1, 3, 9}, 6));
  }
}

// Rows of features by an index of each position, times a factor and, if asked for, beside a row of
// its own, times a factor of each column. Rows and table are of one type.
KernelIr Gathered(const Shape& s, int64_t features, DType type = DType::kFp32,
                  bool with_own = true) {
  KernelIrBuilder b({s.outer, s.rows, s.inner});
  const SortedIndices order{.rows = s.table_rows, .indices = s.rows};
  const int index = b.Load(b.In(DType::kInt64, s.rows), A(1));
  const int row = b.Gather(b.In(type, s.outer * features * s.inner),
                           A(0) * (features * s.inner) + A(2), index, s.inner, features);
  const int factor = b.Load(b.In(DType::kFp32, s.outer * s.rows), A(0) * s.rows + A(1));
  int sum = b.Do(Op::mul, {row, factor});
  if (with_own) {
    const int own = b.Load(b.In(type, s.outer * s.rows * s.inner),
                           A(0) * (s.rows * s.inner) + A(1) * s.inner + A(2));
    sum = b.Do(Op::add, {sum, own});
  }
  const int column = b.Load(b.In(type, s.inner), A(2));
  const int source = b.Do(Op::mul, {sum, column});
  const int sorted = b.In(DType::kInt32, order.elements());
  const int table = b.Out(type, s.outer * s.table_rows * s.inner);
  b.Scatter({.sorted = sorted,
             .src_instr = b.Widen(source, 0b111),
             .buffer = table,
             .row_axes = 0b010,
             .table_rows = s.table_rows});
  return b.Build();
}

void CheckGathered(const Shape& s, const std::vector<double>& indices, DType type, bool with_own) {
  const int64_t features = 50;
  KernelIr ir = Gathered(s, features, type, with_own);
  BufferValues before = RandomBuffers(ir, 9);
  std::mt19937_64 random(s.rows);
  for (double& index : before[0]) {
    index = static_cast<double>(static_cast<int64_t>(random() % 110) - features - 5);
  }
  before[ir.scatter->sorted] = SortedList(indices, s.table_rows);
  for (bool in_order : {false, true}) {
    INFO((in_order ? "in order" : "anywhere") << (with_own ? ", with rows of positions" : ""));
    ir.scatter->in_order = in_order;
    BufferValues after = before;
    after[ir.scatter->buffer] = Table(ir, before);
    CHECK(CompareToInterpreter(ir, before, after) == "");
  }
}

void CheckGathered(const Shape& s, const std::vector<double>& indices, DType type = DType::kFp32) {
  for (bool with_own : {true, false}) CheckGathered(s, indices, type, with_own);
}

// The same where the gathered rows are those that the sums are made for: the list says which.
TEST_CASE("a gather at the indices that are sorted loads none of them") {
  for (const Shape& s : {Shape{1, 900, 16, 60}, Shape{1, 700, 3, 50}, Shape{1, 400, 1, 8},
                         Shape{3, 600, 64, 70}, Shape{1, 300, 100, 40}}) {
    INFO(s.rows << " x " << s.inner);
    KernelIr ir = Gathered(s, s.table_rows);
    const size_t loaded = SharedPositionsOf(ir, 1).values.size();
    REQUIRE(SharedPositionsOf(ir, 1).keys.empty());
    ir.buffers[0].sorted_by_list = true;
    CHECK(SharedPositionsOf(ir, 1).keys.size() == 1);
    CHECK(SharedPositionsOf(ir, 1).values.size() + 1 == loaded);
    for (const Schedule& schedule : CandidateSchedules(ir, Classify(ir), {})) {
      const KernelBody body{.ir = ir, .schedule = schedule};
      for (const Kernel& kernel : EmitGroup(body, Dialect::kHost).launches) {
        CHECK(kernel.function.statements.find("rg_load(p0,") == std::string::npos);
      }
    }
    for (const std::vector<double>& indices :
         {Drawn(s, 21), std::vector<double>(s.rows, 3), std::vector<double>(s.rows, -1),
          std::vector<double>(s.rows, static_cast<double>(s.table_rows))}) {
      BufferValues before = RandomBuffers(ir, 9);
      before[0] = indices;
      before[ir.scatter->sorted] = SortedList(indices, s.table_rows);
      BufferValues after = before;
      after[ir.scatter->buffer] = Table(ir, before);
      CHECK(CompareToInterpreter(ir, before, after) == "");
    }
  }
}

TEST_CASE("a gather from a table of other length loads its indices") {
  KernelIr ir = Gathered({1, 900, 16, 60}, 61);
  ir.buffers[0].sorted_by_list = true;
  CHECK(SharedPositionsOf(ir, 1).keys.empty());
}

TEST_CASE("chunks leave enough threads, and longer ones are no longer than blocks can share") {
  const auto chunk = [](const Shape& s) { return ScatterWorkspaceOf(Scattered(s)).chunk; };
  CHECK(chunk({1, 30000, 64, 5000}) == 8);
  CHECK(chunk({1, 60000, 512, 3000}) == 32);
  CHECK(chunk({1, 2000000, 32, 100000}) == 120);
  CHECK(chunk({1, 2000000, 64, 100000}) == 128);
  for (const int64_t inner : {44, 64, 100, 128}) {
    const Shape s{1, 2000000, inner, 100000};
    INFO(inner << " columns");
    const KernelIr ir = Gathered(s, 50);
    const int64_t longer = ScatterWorkspaceOf(ir).chunk;
    CHECK(longer > 64);
    CHECK(longer % 8 == 0);
    CHECK(CanSharePositions(ir, 4));
  }
}

TEST_CASE("blocks share what all columns of a position read, whatever the width of rows") {
  for (const Shape& s : {Shape{1, 900, 16, 60}, Shape{1, 300, 100, 40}, Shape{1, 130, 1028, 11},
                         Shape{1, 70, 1024, 9}, Shape{3, 2100, 20, 200}, Shape{1, 2600, 64, 2}}) {
    INFO(s.rows << " x " << s.inner);
    const KernelIr ir = Gathered(s, 50);
    CHECK(CanSharePositions(ir, 4));
    CHECK(Schedules(ir) == 3);
    CHECK(SharedPositionsOf(ir, 4).values.size() == 2);  // the index and the factor
    CheckGathered(s, Drawn(s, 11));
    CheckGathered(s, OfLengths(s, {5, 9}, 12));
    CheckGathered(s, std::vector<double>(s.rows, 1));
  }
}

// Of narrow rows a block goes through more positions than its threads load at once.
TEST_CASE("blocks share many positions of narrow rows, some at a time") {
  for (const Shape& s : {Shape{1, 9000, 16, 12}, Shape{1, 5000, 16, 9}, Shape{2, 4900, 16, 7}}) {
    INFO(s.rows << " x " << s.inner);
    const KernelIr ir = Gathered(s, 50);
    REQUIRE(CanSharePositions(ir, 4));
    CHECK(SharedPositionsOf(ir, 4).rounds() > 1);
    CHECK(Schedules(ir) == 3);
    CheckGathered(s, Drawn(s, 31));
    CheckGathered(s, OfLengths(s, {63, 64, 65, 3, 9}, 32));
    CheckGathered(s, std::vector<double>(s.rows, -1));
  }
}

// The list ends with a whole segment, behind which nothing stands.
TEST_CASE("the last row is stored where all positions name rows") {
  const DType type = GENERATE(DType::kBf16, DType::kFp32);
  for (const Shape& s : {Shape{1, 900, 16, 300}, Shape{1, 256, 100, 64}, Shape{3, 2100, 40, 700},
                         Shape{1, 9000, 16, 1500}, Shape{1, 2048, 128, 400}}) {
    INFO(s.rows << " x " << s.inner);
    std::vector<double> indices;
    for (int64_t r = 0; r < s.rows; ++r) indices.push_back(static_cast<double>(r % s.table_rows));
    CheckGathered(s, indices, type);
  }
}

// A thread's vector of 8 columns is one access of 16-bit rows and two of their sums.
TEST_CASE("rows of 16-bit floats are summed eight columns at a time") {
  const DType type = GENERATE(DType::kBf16, DType::kFp16);
  for (const Shape& s : {Shape{1, 900, 128, 60}, Shape{1, 300, 200, 40}, Shape{3, 2100, 40, 200},
                         Shape{1, 2600, 64, 2}, Shape{2, 500, 16, 30}}) {
    INFO(s.rows << " x " << s.inner);
    const KernelIr ir = Gathered(s, 50, type);
    const std::vector<Schedule> schedules = CandidateSchedules(ir, Classify(ir), {});
    CHECK(std::any_of(schedules.begin(), schedules.end(),
                      [](const Schedule& made) { return made.vector_width == 8; }));
    CheckGathered(s, Drawn(s, 15), type);
    CheckGathered(s, OfLengths(s, {8, 24, 1}, 16), type);
    CheckGathered(s, std::vector<double>(s.rows, 1), type);
  }
}

TEST_CASE("rows that eight columns do not divide, or beside wider ones, take four at a time") {
  for (const KernelIr& ir : {Gathered({1, 900, 12, 60}, 50, DType::kBf16),
                             Gathered({1, 900, 64, 60}, 50, DType::kFp32)}) {
    for (const Schedule& made : CandidateSchedules(ir, Classify(ir), {})) {
      CHECK(made.vector_width <= 4);
    }
  }
}

TEST_CASE("positions that few threads read, or of slices of few positions, are not shared") {
  CHECK_FALSE(CanSharePositions(Gathered({1, 900, 12, 60}, 50), 4));
  CHECK_FALSE(CanSharePositions(Gathered({4, 60, 64, 60}, 50), 4));
  CHECK(CanSharePositions(Gathered({1, 60, 64, 60}, 50), 4));
  for (const Shape& s : {Shape{1, 900, 3, 60}, Shape{1, 900, 1, 60}, Shape{4, 60, 7, 20}}) {
    CheckGathered(s, Drawn(s, 13));
    std::vector<double> sorted = OfLengths(s, {1, 2, 12}, 14);
    std::sort(sorted.begin(), sorted.end());
    CheckGathered(s, sorted);
  }
}

}  // namespace
}  // namespace retrograd
