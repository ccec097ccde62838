// Rows of any length: vectors lie on memory's grid, and what is left at both ends of a row goes
// element by element. Every schedule of that kind, run on the host with each access checked,
// against the interpreter.
#include "absl/strings/str_cat.h"
#include "codegen/emit.h"
#include "codegen/translation_unit.h"
#include "fusion/kernel/ir/vector_grid.h"
#include "runtime/host/host_module.h"
#include "tests/catch.h"
#include "tests/support/kernels/kernel_ir_builder.h"
#include "tests/support/kernels/run_kernel.h"

namespace retrograd {
namespace {

constexpr int64_t kRows = 5;

// Few processors, so that short rows are split, too.
constexpr ScheduleLimits kSmallDevice = {.warp = 32, .sms = 11, .shared_bytes = 48 << 10};

struct Case {
  std::string name;
  KernelBody body;
  GroupKernels kernels;
};

// The schedules whose vectors leave ends of rows.
std::vector<Case> CasesOf(absl::string_view name, const KernelIr& ir) {
  INFO(name << "\n" << ir.Print());
  REQUIRE(ir.Verify().ToString() == "OK");
  const Classification shape = Classify(ir);
  REQUIRE(shape.feasible);
  std::vector<Case> cases;
  for (const Schedule& schedule : CandidateSchedules(ir, shape, kSmallDevice)) {
    if (!HasEnds(ir, schedule.vector_width)) continue;
    KernelBody body{.ir = ir, .schedule = schedule};
    GroupKernels kernels = EmitGroup(body, Dialect::kHost);
    cases.push_back(
        {absl::StrCat(name, ", ", schedule.Print()), std::move(body), std::move(kernels)});
  }
  return cases;
}

void RunAll(const std::vector<Case>& cases, const HostCompileOptions& options) {
  std::vector<GroupKernels> all;
  for (const Case& c : cases) all.push_back(c.kernels);
  auto module = HostModule::Compile(DistinctKernels(all), options);
  INFO(module.status().ToString());
  REQUIRE(module.ok());
  for (const Case& c : cases) {
    const uint64_t seed = 29;
    const BufferValues before = RandomBuffers(c.body.ir, seed);
    auto after = RunKernels(**module, c.body, c.kernels, before, seed);
    std::string wrong =
        after.ok() ? CompareToInterpreter(c.body.ir, before, *after) : after.status().ToString();
    if (!wrong.empty()) {
      for (const Kernel& k : c.kernels.launches) absl::StrAppend(&wrong, "\n", PrintKernel(k));
    }
    INFO(c.name << ", seed " << seed << "\n" << wrong);
    CHECK(wrong.empty());
  }
}

void Append(std::vector<Case> more, std::vector<Case>* cases) {
  for (Case& c : more) cases->push_back(std::move(c));
}

// Two rounds over rows: what the second reads for the first time, an operand of each row and one of
// each column, results of two widths, one of them added to what stands there, and one of each row.
KernelIr TwoRounds(DType dtype, int64_t columns) {
  KernelIrBuilder b({kRows, columns});
  const int64_t all = kRows * columns;
  const IndexExpr at = A(0) * columns + A(1);
  const int dy = b.Load(b.In(dtype, all), at), y = b.Load(b.In(dtype, all), at);
  const int scale = b.Load(b.In(dtype, kRows), A(0));
  const int weight = b.Load(b.In(dtype, columns), A(1));
  const int sum = b.Reduce(Op::sum, b.Do(Op::mul, {dy, weight}), 2);
  const int z = b.Load(b.In(dtype, all, SizeBytes(dtype)), at);  // at any address
  const int v = b.Do(Op::add, {b.Do(Op::mul, {dy, sum}), b.Do(Op::mul, {y, scale})});
  b.Store(v, b.Out(dtype, all), at);
  b.Store(b.Do(Op::mul, {v, z}), b.Out(dtype, all), at, StoreMode::kAdd);
  b.Store(sum, b.Out(dtype, kRows), A(0));
  return b.Build();
}

// One round, which pieces of a row can share.
KernelIr OneRound(DType dtype, int64_t columns) {
  KernelIrBuilder b({kRows, columns});
  const int x = b.Load(b.In(dtype, kRows * columns), A(0) * columns + A(1));
  b.Store(b.Reduce(Op::sum, b.Do(Op::mul, {x, x}), 2), b.Out(dtype, kRows), A(0));
  return b.Build();
}

// Rows of one tensor at another pitch, behind a few elements and above a guard; a table's rows; a
// result that does not vary along the row.
KernelIr Pass(DType dtype, int64_t columns) {
  KernelIrBuilder b({kRows, columns});
  const int64_t pitch = columns + 3;
  const int x = b.Load(b.In(dtype, kRows * columns), A(0) * columns + A(1));
  const int z = b.Load(b.In(dtype, kRows * pitch), A(0) * pitch + A(1) + IndexExpr::Constant(3));
  const int part = b.Load(b.In(dtype, kRows * columns), A(0) * columns + A(1),
                          {{A(1), columns / 3, columns}}, 2);
  const int index = b.Load(b.In(DType::kInt64, kRows), A(0));
  const int row = b.Gather(b.In(dtype, 4 * columns), A(1), index, columns, 4);
  const int scale = b.Load(b.In(dtype, kRows), A(0));
  const int looked_up = b.Do(Op::add, {b.Do(Op::add, {part, row}), scale});
  const int v = b.Do(Op::add, {b.Do(Op::add, {x, z}), looked_up});
  b.Store(v, b.Out(dtype, kRows * columns), A(0) * columns + A(1));
  b.Store(b.Do(Op::sub, {z, x}), b.Out(dtype, kRows * pitch),
          A(0) * pitch + A(1) + IndexExpr::Constant(1));
  b.Store(b.Do(Op::neg, {scale}), b.Out(dtype, kRows), A(0));
  return b.Build();
}

// All elements of a tensor, whatever their number.
KernelIr Flat(DType dtype, int64_t elements) {
  KernelIrBuilder b({elements});
  const int x = b.Load(b.In(dtype, elements), A(0));
  b.Store(b.Do(Op::add, {x, b.Load(b.In(dtype, elements), A(0))}), b.Out(dtype, elements), A(0));
  return b.Build();
}

std::vector<int64_t> Lengths() {
  std::vector<int64_t> lengths;
  for (int64_t n = 1; n <= 70; ++n) lengths.push_back(n);
  for (int64_t n = 128; n <= 2048; n *= 4) {
    lengths.push_back(n - 1);
    lengths.push_back(n + 1);
  }
  return lengths;
}

TEST_CASE("rows of any length are reduced and stored in vectors on memory's grid") {
  const DType dtype = GENERATE(DType::kFp32, DType::kBf16, DType::kFp64);
  std::vector<Case> cases;
  for (int64_t n : Lengths()) {
    Append(CasesOf(absl::StrCat("two rounds of ", n), TwoRounds(dtype, n)), &cases);
    Append(CasesOf(absl::StrCat("one round of ", n), OneRound(dtype, n)), &cases);
  }
  CHECK(cases.size() > 200);
  RunAll(cases, {.check = true});
}

TEST_CASE("passes over rows of any length, and over any number of elements, take vectors") {
  const DType dtype = GENERATE(DType::kFp32, DType::kBf16, DType::kInt8, DType::kInt64);
  std::vector<Case> cases;
  for (int64_t n : Lengths()) {
    Append(CasesOf(absl::StrCat("rows of ", n), Pass(dtype, n)), &cases);
    Append(CasesOf(absl::StrCat(n, " elements"), Flat(dtype, n)), &cases);
  }
  CHECK(cases.size() > 60);
  RunAll(cases, {.check = true});
}

TEST_CASE("accesses of one phase are whole vectors wherever a row begins") {
  const KernelIr ir = TwoRounds(DType::kBf16, 1001);
  const Vectors vectors = VectorsOf(ir, 8);
  for (size_t i = 0; i < ir.instrs.size(); ++i) {
    const Instr& load = ir.instrs[i];
    if (load.kind != InstrKind::kLoad || ir.buffers[load.buffer].elements != kRows * 1001) continue;
    if (ir.buffers[load.buffer].alignment < 16) continue;
    CHECK(LoadWidth(ir, static_cast<int>(i), vectors) == 8);
  }
  for (const Store& s : ir.stores) {
    if (ir.buffers[s.buffer].elements == kRows * 1001) CHECK(StoreWidth(ir, s, vectors) == 8);
  }
}

}  // namespace
}  // namespace retrograd
