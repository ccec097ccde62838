#include "fusion/kernel/templates/schedule.h"

#include <algorithm>
#include <set>
#include <utility>

#include "tests/catch.h"
#include "tests/support/kernels/kernel_ir_builder.h"
#include "tests/support/kernels/kernel_ir_examples.h"

namespace retrograd {
namespace {

constexpr DType kF32 = DType::kFp32;
constexpr AxisMask kA0 = 1, kA1 = 2, kA2 = 4;

// Sums of x over each of these sets of axes, x over [6, 8, 32].
KernelIr Sums(const std::vector<AxisMask>& folded) {
  KernelIrBuilder b({6, 8, 32});
  const int x = b.In(kF32, 6 * 8 * 32);
  const int v = b.Load(x, A(0) * 256 + A(1) * 32 + A(2));
  for (AxisMask mask : folded) {
    IndexExpr at;
    int64_t elements = 1;
    for (int a = 2; a >= 0; --a) {
      if (mask >> a & 1) continue;
      at = at + A(a) * elements;
      elements *= std::vector<int64_t>{6, 8, 32}[a];
    }
    b.Store(b.Reduce(Op::sum, v, mask), b.Out(kF32, elements), at);
  }
  return b.Build();
}

Template KindOf(const std::vector<AxisMask>& folded) {
  const Classification c = Classify(Sums(folded));
  INFO(c.reason);
  REQUIRE(c.feasible);
  return c.kind;
}

TEST_CASE("the template follows from the axes that the reductions fold") {
  CHECK(KindOf({}) == Template::kPointwise);
  CHECK(KindOf({kA2}) == Template::kRowReduction);
  CHECK(KindOf({kA0 | kA2}) == Template::kRowReduction);
  CHECK(KindOf({kA0}) == Template::kColumnReduction);
  CHECK(KindOf({kA0 | kA1}) == Template::kColumnReduction);
  CHECK(KindOf({kA0 | kA1, kA2}) == Template::kRowColumn);
  CHECK(KindOf({kA1 | kA2, kA0}) == Template::kRowColumn);
  CHECK(KindOf({kA1, kA2}) == Template::kHeldTiles);
  CHECK(KindOf({kA1, kA1 | kA2}) == Template::kHeldTiles);
}

TEST_CASE("rows and columns are the kept and the folded axes") {
  const Classification c = Classify(Sums({kA0 | kA2}));
  CHECK(c.shape.rows == 8);
  CHECK(c.shape.columns == 192);
  const Classification d = Classify(Sums({kA0}));
  CHECK(d.shape.rows == 6);
  CHECK(d.shape.columns == 256);
}

TEST_CASE("sums over axes that are no rows and columns of each other are refused with the axes") {
  const Classification overlap = Classify(Sums({kA0 | kA1, kA1 | kA2}));
  CHECK_FALSE(overlap.feasible);
  CHECK_THAT(overlap.reason, ContainsSubstring("fold a1,a2 and a0,a1"));
  CHECK_FALSE(Classify(Sums({kA0, kA1, kA2})).feasible);
}

TEST_CASE(
    "columns whose sums are spread over the rows again are held, as rows of a row reduction") {
  KernelIrBuilder b({16, 32});
  const int x = b.In(kF32, 512), y = b.Out(kF32, 512);
  const int v = b.Load(x, A(0) * 32 + A(1));
  b.Store(b.Do(Op::sub, {v, b.Reduce(Op::amax, v, kA0)}), y, A(0) * 32 + A(1));
  const KernelIr ir = b.Build();
  const Classification c = Classify(ir);
  REQUIRE(c.feasible);
  CHECK(c.kind == Template::kHeldColumns);
  CHECK(c.shape.rows == 32);
  CHECK(c.shape.columns == 16);
  // Without shared memory for them the rows are read again.
  for (const Schedule& s : CandidateSchedules(ir, c, {})) CHECK_FALSE(s.persistent);
}

// (column sums of x minus its row's sum) + (column sums of x, or the total of all of x).
KernelIr TwoSumsAdded(bool total) {
  KernelIrBuilder b({16, 32});
  const int x = b.In(kF32, 512), y = b.Out(kF32, 32);
  const int v = b.Load(x, A(0) * 32 + A(1));
  const int row = b.Reduce(Op::sum, v, kA1);
  const int centred = b.Reduce(Op::sum, b.Do(Op::sub, {v, row}), kA0);
  const int other = b.Reduce(Op::sum, total ? row : v, kA0);
  b.Store(b.Do(Op::add, {centred, other}), y, A(1));
  return b.Build();
}

TEST_CASE(
    "column sums are worked on further though row sums went into them, but not with a total") {
  const Classification c = Classify(TwoSumsAdded(/*total=*/false));
  CHECK(c.feasible);
  CHECK(c.kind == Template::kRowColumn);
  CHECK_THAT(Classify(TwoSumsAdded(/*total=*/true)).reason, ContainsSubstring("joins a row sum"));
}

TEST_CASE("a row too wide for a block's column sums is refused with its width") {
  KernelIrBuilder b({4, 100000});
  const int x = b.In(kF32, 400000), y = b.Out(kF32, 4), z = b.Out(kF32, 100000);
  const int v = b.Load(x, A(0) * 100000 + A(1));
  b.Store(b.Reduce(Op::sum, v, kA1), y, A(0));
  b.Store(b.Reduce(Op::sum, v, kA0), z, A(1));
  CHECK_THAT(Classify(b.Build()).reason, ContainsSubstring("100000"));
}

TEST_CASE("a reduction over axes of one position folds nothing") {
  KernelIrBuilder b({4, 1, 32});
  const int x = b.In(kF32, 128), y = b.Out(kF32, 128);
  b.Store(b.Reduce(Op::sum, b.Load(x, A(0) * 32 + A(2)), kA1), y, A(0) * 32 + A(2));
  CHECK(Classify(b.Build()).kind == Template::kPointwise);
}

TEST_CASE("each round of row reductions is a stage, and what follows column sums comes last") {
  for (const KernelExample& example : KernelExamples(kF32)) {
    const Classification shape = Classify(example.ir);
    const Stages stages = AssignStages(example.ir, shape);
    INFO(example.name);
    if (example.name == "log softmax") CHECK(stages.row_stages == 2);
    if (example.name == "norm backward") CHECK(stages.row_stages == 1);
    for (size_t i = 0; i < example.ir.instrs.size(); ++i) {
      const Instr& instr = example.ir.instrs[i];
      const AxisMask folded = FoldedAxes(example.ir, instr);
      for (int o : instr.operands) CHECK(stages.stage[i] >= stages.stage[o]);
      if (folded == 0) continue;
      const bool across = (folded & shape.shape.column_axes) != 0;
      CHECK(stages.finalize[i] == !across);
      if (across) CHECK(stages.stage[i] == stages.stage[instr.operands[0]] + 1);
    }
  }
}

TEST_CASE("candidates are few, distinct, and begin with one that needs no optimisation") {
  for (const KernelExample& example : KernelExamples(DType::kBf16)) {
    const Classification shape = Classify(example.ir);
    const std::vector<Schedule> list =
        CandidateSchedules(example.ir, shape, {.shared_bytes = 48 << 10});
    INFO(example.name);
    REQUIRE(!list.empty());
    CHECK(list.size() <= 48);
    CHECK(list[0].vector_width == 1);
    CHECK_FALSE(list[0].persistent);
    for (size_t i = 0; i < list.size(); ++i) {
      INFO(list[i].Print());
      CHECK(std::count(list.begin(), list.end(), list[i]) == 1);
      CHECK(list[i].threads <= 1024);
      CHECK(list[i].blocks >= 1);
    }
  }
}

TEST_CASE("an optimisation switched off is in no candidate, and some candidate is left") {
  for (const KernelExample& example : KernelExamples(DType::kBf16)) {
    const Classification shape = Classify(example.ir);
    INFO(example.name);
    ScheduleLimits limits{.shared_bytes = 48 << 10};
    limits.vectorize = limits.split = limits.persistent = false;
    const std::vector<Schedule> list = CandidateSchedules(example.ir, shape, limits);
    REQUIRE(!list.empty());
    for (const Schedule& s : list) {
      INFO(s.Print());
      CHECK(s.vector_width == 1);
      CHECK(s.split == 1);
      CHECK_FALSE(s.persistent);
    }
  }
}

TEST_CASE("few rows are split until the device is full; many are not") {
  auto widest_split = [](int64_t rows, int64_t columns) {
    KernelIrBuilder b({rows, columns});
    const int x = b.In(kF32, rows * columns), y = b.Out(kF32, rows);
    b.Store(b.Reduce(Op::sum, b.Load(x, A(0) * columns + A(1)), kA1), y, A(0));
    int64_t split = 1;
    const KernelIr ir = b.Build();
    for (const Schedule& s : CandidateSchedules(ir, Classify(ir), {})) {
      split = std::max(split, s.split);
    }
    return split;
  };
  CHECK(widest_split(1, 1 << 22) >= 132);
  CHECK(widest_split(8, 1 << 20) >= 132 / 8);
  CHECK(widest_split(100000, 4096) == 1);
}

TEST_CASE("a column reduction has no thread rows without a row, and loads several rows at once") {
  const auto schedules = [](int64_t rows) {
    KernelIrBuilder b({rows, 4096});
    const int x = b.In(kF32, rows * 4096), y = b.Out(kF32, 4096);
    b.Store(b.Reduce(Op::sum, b.Load(x, A(0) * 4096 + A(1)), kA0), y, A(1));
    const KernelIr ir = b.Build();
    return CandidateSchedules(ir, Classify(ir), {});
  };
  for (const Schedule& s : schedules(2)) {
    INFO(s.Print());
    CHECK(s.rows_per_block <= 2);
    CHECK(s.rows_per_thread <= 2);
  }
  int at_once = 0;
  for (const Schedule& s : schedules(4096)) at_once = std::max(at_once, s.rows_per_thread);
  CHECK(at_once > 1);
}

TEST_CASE("fewer than eight threads share a row only where one vector of each holds it") {
  const auto teams = [](int64_t columns) {
    KernelIrBuilder b({5000, columns});
    const int x = b.In(kF32, 5000 * columns), y = b.Out(kF32, 5000);
    b.Store(b.Reduce(Op::sum, b.Load(x, A(0) * columns + A(1)), kA1), y, A(0));
    const KernelIr ir = b.Build();
    std::set<std::pair<int, int>> few;  // threads of a row, vector width
    for (const Schedule& s : CandidateSchedules(ir, Classify(ir), {})) {
      if (s.threads_per_row < 8) few.insert({s.threads_per_row, s.vector_width});
    }
    return few;
  };
  CHECK(teams(4096).empty());
  CHECK(teams(3) == std::set<std::pair<int, int>>{{4, 1}});
  const auto sixteen = teams(16);
  CHECK(sixteen.contains({4, 4}));
  for (const auto& [threads, width] : sixteen) CHECK(threads * width >= 16);
}

TEST_CASE("the workspace holds one accumulator a sum, split and column") {
  const KernelIr ir = Sums({kA0 | kA1});
  Schedule s{.kind = Template::kColumnReduction, .threads = 256};
  s.split = 1;
  CHECK(WorkspaceBytes(ir, s) == 0);
  s.split = 5;
  CHECK(WorkspaceBytes(ir, s) == 5 * 32 * 4);
}

TEST_CASE("the partial results of each sum begin at a multiple of 16 bytes") {
  KernelIrBuilder b({6, 3});
  const int x = b.In(kF32, 18);
  const int v = b.Load(x, A(0) * 3 + A(1));
  for (int i = 0; i < 2; ++i) b.Store(b.Reduce(Op::sum, v, kA0), b.Out(kF32, 3), A(1));
  Schedule s{.kind = Template::kColumnReduction, .threads = 256};
  s.split = 5;
  CHECK(WorkspaceBytes(b.Build(), s) == 64 + 60);  // 5 * 3 * 4 bytes each
}

// y[i, j] = x[j, i], of lines that are `gap` longer than they need be.
KernelIr Turned(DType from, DType to, int64_t gap) {
  KernelIrBuilder b({96, 160});
  const int x = b.In(from, 160 * (96 + gap)), y = b.Out(to, 96 * (160 + gap));
  b.Store(b.Cast(b.Load(x, A(1) * (96 + gap) + A(0)), to), y, A(0) * (160 + gap) + A(1));
  return b.Build();
}

std::set<int> WidthsOfTiles(const KernelIr& ir, const ScheduleLimits& limits) {
  std::set<int> widths;
  for (const Schedule& s : CandidateSchedules(ir, Classify(ir), limits)) {
    if (s.kind == Template::kTranspose) widths.insert(s.vector_width);
  }
  return widths;
}

TEST_CASE("tiles are wide where loads and stores are of several elements, square otherwise") {
  const ScheduleLimits limits = {.shared_bytes = 48 << 10};
  const DType bf16 = DType::kBf16, f8 = DType::kFp8E4M3;
  using Widths = std::set<int>;
  CHECK(WidthsOfTiles(Turned(bf16, f8, 0), limits) == Widths{1, 8});
  CHECK(WidthsOfTiles(Turned(bf16, bf16, 8), limits) == Widths{1, 8});
  CHECK(WidthsOfTiles(Turned(kF32, kF32, 4), limits) == Widths{1, 4});
  CHECK(WidthsOfTiles(Turned(bf16, f8, 1), limits) == Widths{1});
  CHECK(WidthsOfTiles(Turned(DType::kFp64, DType::kFp64, 0), limits) == Widths{1});
  ScheduleLimits scalar = limits;
  scalar.vectorize = false;
  CHECK(WidthsOfTiles(Turned(bf16, f8, 0), scalar) == Widths{1});
}

TEST_CASE("rows that fill no block have one all the same") {
  constexpr int64_t kRows = 1001;
  KernelIrBuilder b({kRows, 96});
  const int x = b.In(kF32, kRows * 96), y = b.Out(kF32, kRows);
  b.Store(b.Reduce(Op::sum, b.Load(x, A(0) * 96 + A(1)), kA1), y, A(0));
  const KernelIr ir = b.Build();
  int several = 0;
  for (const Schedule& s : CandidateSchedules(ir, Classify(ir), {})) {
    INFO(s.Print());
    if (s.kind != Template::kRowReduction || s.split > 1) continue;
    CHECK(s.blocks * s.rows_per_block * std::max(s.rows_per_thread, 1) >= kRows);
    several += s.rows_per_block > 1 ? 1 : 0;
  }
  CHECK(several > 0);
}

}  // namespace
}  // namespace retrograd
