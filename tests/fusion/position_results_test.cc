// Sums at indices that also fold the columns of each position and store what it has: all schedules
// give the same table and the same results, positions whose index names no row included.
#include <algorithm>
#include <array>
#include <random>

#include "absl/strings/str_cat.h"
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

constexpr int64_t kGathered = 30;  // rows of the table that positions read

struct Shape {
  int64_t outer, rows, heads, features, table_rows;
};

enum class Stored : uint8_t {
  kFold,     // the fold of each head
  kAfter,    // a value made of it and of another gathered one
  kColumns,  // a value of each column, and one of each position
  kSummed,   // the fold, which is a factor of the source, too
  kTwice,    // a fold of what a fold is a factor of
  kRow,      // a value of each column, and no fold: of a line of a cache and more
};
constexpr Stored kAllStored[] = {Stored::kFold, Stored::kAfter, Stored::kColumns, Stored::kSummed,
                                 Stored::kTwice};

// The gradients of a sum of rows at edges by weights: rows of `gathered` at an index, times a
// weight, are summed at the sorted one; their products with rows of the positions' own are folded.
KernelIr Edges(const Shape& s, Stored stored, DType type, DType table_type) {
  KernelIrBuilder b({s.outer, s.rows, s.heads, s.features});
  const int64_t inner = s.heads * s.features;
  const int index = b.Load(b.In(DType::kInt64, s.rows), A(1));
  const auto gather = [&](int64_t heads, int64_t features) {
    IndexExpr at = A(0) * (kGathered * heads * features);
    if (heads > 1) at = at + A(2) * features;
    return b.Gather(b.In(type, s.outer * kGathered * heads * features),
                    features > 1 ? at + A(3) : at, index, heads * features, kGathered);
  };
  const int row = gather(s.heads, s.features);
  const int own = b.Load(b.In(type, s.outer * s.rows * inner),
                         A(0) * (s.rows * inner) + A(1) * inner + A(2) * s.features + A(3));
  const int weight = b.Load(b.In(DType::kFp32, s.outer * s.rows * s.heads),
                            A(0) * (s.rows * s.heads) + A(1) * s.heads + A(2));
  const int product = b.Widen(b.Do(Op::mul, {row, own}), 0b1111);
  int source = b.Do(Op::mul, {row, weight});
  const SortedIndices order{.rows = s.table_rows, .indices = s.rows};
  const int sorted = b.In(DType::kInt32, order.elements());
  const IndexExpr of_head = A(0) * (s.rows * s.heads) + A(1) * s.heads + A(2);
  const auto store = [&](int instr, DType dtype, int64_t columns, const IndexExpr& at) {
    b.Store(instr, b.Out(dtype, s.outer * s.rows * columns), at);
  };
  if (stored == Stored::kColumns) {
    store(b.Widen(b.Do(Op::neg, {product}), 0b1111), type, inner,
          A(0) * (s.rows * inner) + A(1) * inner + A(2) * s.features + A(3));
    const int position = b.Load(b.In(DType::kFp32, s.rows), A(1));
    store(b.Widen(position, 0b0011), DType::kFp32, 1, A(0) * s.rows + A(1));
    store(b.Reduce(Op::sum, product, 0b1000), type, s.heads, of_head);
  } else if (stored == Stored::kRow) {
    store(b.Widen(b.Do(Op::neg, {product}), 0b1111), type, inner,
          A(0) * (s.rows * inner) + A(1) * inner + A(2) * s.features + A(3));
  } else {
    const int fold = b.Reduce(stored == Stored::kTwice ? Op::amax : Op::sum, product, 0b1000);
    int last = fold;
    if (stored == Stored::kAfter) last = b.Do(Op::add, {fold, gather(s.heads, 1)});
    if (stored == Stored::kTwice) {
      last = b.Reduce(Op::sum, b.Widen(b.Do(Op::mul, {product, fold}), 0b1111), 0b1000);
    }
    if (stored == Stored::kSummed) source = b.Do(Op::mul, {source, fold});
    store(last, type, s.heads, of_head);
  }
  const int table = b.Out(table_type, s.outer * s.table_rows * inner);
  if (table_type != type) source = b.Cast(source, table_type);
  b.Scatter({.sorted = sorted,
             .src_instr = b.Widen(source, 0b1111),
             .buffer = table,
             .row_axes = 0b0010,
             .table_rows = s.table_rows});
  return b.Build();
}

// By seed: some indices name no row, none does, one does.
enum class Lost { kSome, kNone, kOne };
Lost LostOf(uint64_t seed) { return static_cast<Lost>(seed % 3); }

void Lose(Lost lost, int64_t rows, std::mt19937_64& random, std::vector<double>& indices) {
  if (lost == Lost::kSome) return;
  for (double& index : indices) {
    const auto row = static_cast<int64_t>(index);
    if (row < -rows || row >= rows) index = static_cast<double>((row % rows + rows) % rows);
  }
  if (lost == Lost::kOne) indices[random() % indices.size()] = static_cast<double>(rows);
}

// Some name no row, some are negative, and some rows have many.
std::vector<double> DrawnIndices(const Shape& s, std::mt19937_64& random) {
  std::vector<double> indices;
  const int kind = static_cast<int>(random() % 4);
  for (int64_t r = 0; r < s.rows; ++r) {
    const auto wide = static_cast<int64_t>(random() % static_cast<uint64_t>(2 * s.table_rows + 4));
    int64_t index = wide - s.table_rows - 2;
    if (kind == 1 && random() % 3 != 0) index = s.table_rows / 2;
    if (kind == 2) index = s.table_rows + 3;
    indices.push_back(static_cast<double>(index));
  }
  if (kind == 3) std::sort(indices.begin(), indices.end());
  return indices;
}

// Every schedule, in two orders of its threads, in a build that checks its accesses.
void CheckOrder(const KernelIr& ir, const Shape& s, uint64_t seed) {
  REQUIRE(ir.Verify().ToString() == "OK");
  const Classification shape = Classify(ir);
  REQUIRE(shape.reason == "");
  std::mt19937_64 random(seed);
  BufferValues before = RandomBuffers(ir, seed);
  for (double& index : before[0])
    index = static_cast<double>(static_cast<int64_t>(random() % 70) - 35);
  Lose(LostOf(seed), kGathered, random, before[0]);
  std::vector<double> rows = DrawnIndices(s, random);
  Lose(LostOf(seed), s.table_rows, random, rows);
  before[ir.scatter->sorted] = SortedList(rows, s.table_rows);
  std::vector<KernelBody> bodies;
  std::vector<GroupKernels> kernels;
  for (const Schedule& schedule : CandidateSchedules(ir, shape, {})) {
    bodies.push_back({.ir = ir, .schedule = schedule});
    kernels.push_back(EmitGroup(bodies.back(), Dialect::kHost));
  }
  const auto module = HostModule::Compile(DistinctKernels(kernels), {});
  REQUIRE(module.status().ToString() == "OK");
  for (size_t k = 0; k < bodies.size(); ++k) {
    INFO(bodies[k].schedule.Print());
    std::vector<BufferValues> runs;
    for (uint64_t turn = 1; turn <= 2; ++turn) {
      const auto after = RunKernels(**module, bodies[k], kernels[k], before, turn);
      REQUIRE(after.status().ToString() == "OK");
      CHECK(CompareToInterpreter(ir, before, *after) == "");
      runs.push_back(*after);
    }
    CHECK(runs[0] == runs[1]);
  }
}

// With what stands at positions where the index stood, and in the order of the sorted list.
void CheckAll(KernelIr ir, const Shape& s, uint64_t seed) {
  for (bool in_order : {false, true}) {
    INFO((in_order ? "in order" : "anywhere"));
    ir.scatter->in_order = in_order;
    CheckOrder(ir, s, seed);
  }
}

TEST_CASE("each position's folds and values are stored beside the sums, whatever its shape") {
  const Stored stored = GENERATE(from_range(std::begin(kAllStored), std::end(kAllStored)));
  uint64_t seed = 1;
  for (const Shape& s :
       {Shape{1, 300, 4, 32, 40}, Shape{1, 210, 1, 64, 30}, Shape{1, 170, 3, 5, 12},
        Shape{2, 260, 2, 12, 50}, Shape{1, 90, 8, 2, 9}, Shape{1, 140, 1, 24, 5},
        Shape{1, 60, 2, 128, 7}, Shape{1, 33, 1, 3, 40}, Shape{3, 130, 5, 8, 3}}) {
    INFO("stored " << static_cast<int>(stored) << ", " << s.outer << " x " << s.rows << " x "
                   << s.heads << " x " << s.features << ", seed " << seed);
    CheckAll(Edges(s, stored, DType::kFp32, DType::kFp32), s, seed++);
  }
}

// Rows of a few columns by few destinations: chunks of 16 to 64 positions.
KernelIr LongSums(int64_t rows, int64_t columns, int64_t table_rows, bool gathers) {
  KernelIrBuilder b({rows, columns});
  const int index = b.Load(b.In(DType::kInt64, rows), A(0));
  const int weight = b.Load(b.In(DType::kFp32, rows), A(0));
  const int own =
      gathers ? b.Gather(b.In(DType::kFp32, kGathered * columns), A(1), index, columns, kGathered)
              : b.Load(b.In(DType::kFp32, rows * columns), A(0) * columns + A(1));
  const SortedIndices order{.rows = table_rows, .indices = rows};
  const int sorted = b.In(DType::kInt32, order.elements());
  const int source = b.Widen(b.Do(Op::mul, {own, weight}), 0b11);
  b.Scatter({.sorted = sorted,
             .src_instr = source,
             .buffer = b.Out(DType::kFp32, table_rows * columns),
             .row_axes = 0b01,
             .table_rows = table_rows});
  return b.Build();
}

TEST_CASE("chunks of several whole batches are summed in every schedule") {
  const bool gathers = GENERATE(true, false);
  uint64_t seed = 300;
  for (const auto& [rows, columns, table_rows] :
       {std::array<int64_t, 3>{1100, 32, 3}, {770, 20, 1}, {2300, 7, 4}, {4200, 16, 1}}) {
    const KernelIr ir = LongSums(rows, columns, table_rows, gathers);
    CHECK(ScatterWorkspaceOf(ir).chunk >= 2 * PositionsAtOnce(false));
    for (int turn = 0; turn < 3; ++turn) {
      INFO(rows << " x " << columns << " into " << table_rows << ", seed " << seed);
      CheckAll(ir, {1, rows, 1, columns, table_rows}, seed++);
    }
  }
}

TEST_CASE("rows of a line and more are stored beside their sum without a fold") {
  const DType type = GENERATE(DType::kFp32, DType::kBf16);
  uint64_t seed = 70;
  for (const Shape& s : {Shape{1, 300, 1, 64, 40}, Shape{2, 130, 4, 32, 7}, Shape{1, 90, 1, 67, 3},
                         Shape{1, 210, 3, 50, 20}, Shape{1, 1100, 1, 64, 3}}) {
    INFO(Name(type) << ", " << s.outer << " x " << s.rows << " x " << s.heads << " x " << s.features
                    << ", seed " << seed);
    CheckAll(Edges(s, Stored::kRow, type, DType::kFp32), s, seed++);
    CheckAll(Edges(s, Stored::kRow, type, DType::kBf16), s, seed++);
  }
}

TEST_CASE("narrow and wide floats are folded in the accumulator's type") {
  const DType type = GENERATE(DType::kBf16, DType::kFp16, DType::kFp64);
  uint64_t seed = 40;
  for (const Shape& s : {Shape{1, 300, 4, 32, 40}, Shape{1, 120, 2, 20, 30}}) {
    INFO(Name(type) << ", seed " << seed);
    CheckAll(Edges(s, Stored::kFold, type, type), s, seed++);
  }
  const Shape s{1, 300, 4, 32, 40};
  CheckAll(Edges(s, Stored::kFold, DType::kFp32, DType::kBf16), s, seed);
}

TEST_CASE("random shapes, indices and results") {
  for (uint64_t seed = 100; seed < 130; ++seed) {
    std::mt19937_64 random(seed);
    const auto draw = [&](int64_t most) { return 1 + static_cast<int64_t>(random() % most); };
    const Shape s{draw(2), draw(400), draw(5), draw(3) == 1 ? 32 : 1 + draw(31), draw(60)};
    const Stored stored = kAllStored[random() % std::size(kAllStored)];
    INFO("seed " << seed << ": " << s.outer << " x " << s.rows << " x " << s.heads << " x "
                 << s.features << " into " << s.table_rows << ", stored "
                 << static_cast<int>(stored));
    CheckAll(Edges(s, stored, DType::kFp32, DType::kFp32), s, seed);
  }
}

TEST_CASE("wide folds take wider vectors, and those that no warp has room for are refused") {
  CHECK(Classify(Edges({1, 50, 1, 512, 9}, Stored::kFold, DType::kFp32, DType::kFp32)).feasible);
  for (const int64_t features : {33, 1024}) {
    const Classification c =
        Classify(Edges({1, 50, 2, features, 9}, Stored::kFold, DType::kFp32, DType::kFp32));
    CHECK_FALSE(c.feasible);
    CHECK_THAT(c.reason, ContainsSubstring(absl::StrCat("folds ", features, " columns")));
  }
}

KernelIr Folding(AxisMask reduced, AxisMask second = 0) {
  KernelIrBuilder b({40, 4, 8});
  const int x = b.Load(b.In(DType::kFp32, 40 * 32), A(0) * 32 + A(1) * 8 + A(2));
  const int sorted = b.In(DType::kInt32, SortedIndices{.rows = 9, .indices = 40}.elements());
  int64_t next = 1;
  for (const AxisMask mask : {reduced, second}) {
    if (mask == 0) continue;
    const int fold = b.Reduce(Op::sum, x, mask);
    IndexExpr at;
    next = 1;
    for (int a = 2; a >= 0; --a) {
      if (mask >> a & 1) continue;
      at = at + A(a) * next;
      next *= std::vector<int64_t>{40, 4, 8}[a];
    }
    b.Store(fold, b.Out(DType::kFp32, next), at);
  }
  b.Scatter({.sorted = sorted,
             .src_instr = x,
             .buffer = b.Out(DType::kFp32, 9 * 32),
             .row_axes = 0b001,
             .table_rows = 9});
  return b.Build();
}

TEST_CASE("what the threads of a position do not fold is refused with a reason") {
  CHECK(Classify(Folding(0b100)).reason == "");
  CHECK(Classify(Folding(0b110)).reason == "");
  CHECK_THAT(Classify(Folding(0b010)).reason, ContainsSubstring("other axes than the last"));
  CHECK_THAT(Classify(Folding(0b001)).reason, ContainsSubstring("other axes than the last"));
  CHECK_THAT(Classify(Folding(0b100, 0b110)).reason, ContainsSubstring("fold different axes"));
}

// Elements of positions that are summed and stored as they are, there where `to` says.
KernelIr StoredAsTheyAre(int64_t columns, const IndexExpr& to) {
  KernelIrBuilder b({40, columns});
  const int x = b.Load(b.In(DType::kFp32, 40 * columns), A(0) * columns + A(1));
  const int sorted = b.In(DType::kInt32, SortedIndices{.rows = 9, .indices = 40}.elements());
  b.Store(x, b.Out(DType::kFp32, 40 * columns), to);
  b.Scatter({.sorted = sorted,
             .src_instr = x,
             .buffer = b.Out(DType::kFp32, 9 * columns),
             .row_axes = 0b01,
             .table_rows = 9});
  const KernelIr ir = b.Build();
  CHECK(ir.Verify().ok());
  return ir;
}

TEST_CASE("short rows of which nothing is folded are stored by another kernel") {
  CHECK(Classify(StoredAsTheyAre(32, A(0) * 32 + A(1))).feasible);
  CHECK_THAT(Classify(StoredAsTheyAre(31, A(0) * 31 + A(1))).reason,
             ContainsSubstring("less than 128 bytes of it"));
  // Of a transpose a position has one element here and one there.
  CHECK_THAT(Classify(StoredAsTheyAre(64, A(1) * 40 + A(0))).reason,
             ContainsSubstring("less than 128 bytes of it"));
}

TEST_CASE("K4: a store beside a scatter is of each position") {
  KernelIrBuilder b({40, 8});
  const int x = b.Load(b.In(DType::kFp32, 320), A(0) * 8 + A(1));
  const int column = b.Load(b.In(DType::kFp32, 8), A(1));
  const int sorted = b.In(DType::kInt32, SortedIndices{.rows = 9, .indices = 40}.elements());
  b.Store(column, b.Out(DType::kFp32, 8), A(1));
  b.Scatter({.sorted = sorted,
             .src_instr = x,
             .buffer = b.Out(DType::kFp32, 72),
             .row_axes = 0b01,
             .table_rows = 9});
  CHECK_THAT(b.Build().Verify().ToString(), ContainsSubstring("K4: store 0 beside a scatter"));
  CHECK_THAT(Classify(b.Build()).reason, ContainsSubstring("no value of each position"));
}

}  // namespace
}  // namespace retrograd
