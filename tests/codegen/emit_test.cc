// Every template, in every schedule that its candidates offer, run on the host and held against an
// evaluator of the IR that shares nothing with the emitters.
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "codegen/emit.h"
#include "codegen/translation_unit.h"
#include "fusion/kernel/templates/column_walks.h"
#include "runtime/host/host_module.h"
#include "tests/catch.h"
#include "tests/support/kernels/kernel_ir_builder.h"
#include "tests/support/kernels/kernel_ir_examples.h"
#include "tests/support/kernels/planted_faults.h"
#include "tests/support/kernels/run_kernel.h"
#include "tests/support/kernels/schedule_cases.h"

namespace retrograd {
namespace {

// Few processors, so that small kernels split and stride over their grids.
constexpr ScheduleLimits kSmallDevice = {.warp = 32,
                                         .sms = 3,
                                         .shared_bytes = 48 << 10,
                                         .staged_bytes = 48 << 10,
                                         .shared_bytes_per_sm = 96 << 10,
                                         .cluster_blocks = 4,
                                         .row_cluster_blocks = 4};

struct Case {
  std::string name;
  KernelBody body;
  GroupKernels kernels;
};

std::vector<Case> CasesOf(const KernelExample& example, const ScheduleLimits& limits) {
  std::vector<Case> cases;
  const Classification shape = Classify(example.ir);
  INFO(example.name << ": " << shape.reason);
  REQUIRE(shape.feasible);
  CHECK(shape.kind == example.kind);
  for (const Schedule& schedule : CandidateSchedules(example.ir, shape, limits)) {
    KernelBody body{.ir = example.ir, .schedule = schedule};
    GroupKernels kernels = EmitGroup(body, Dialect::kHost);
    cases.push_back(
        {absl::StrCat(example.name, ", ", schedule.Print()), std::move(body), std::move(kernels)});
  }
  return cases;
}

void RunAll(std::vector<KernelExample> examples, const HostCompileOptions& options) {
  std::vector<Case> cases;
  std::vector<GroupKernels> all;
  for (const KernelExample& example : examples) {
    INFO(example.name << "\n" << example.ir.Print());
    REQUIRE(example.ir.Verify().ToString() == "OK");
    for (Case& c : CasesOf(example, kSmallDevice)) cases.push_back(std::move(c));
  }
  for (const Case& c : cases) all.push_back(c.kernels);
  auto module = HostModule::Compile(DistinctKernels(all), options);
  INFO(module.status().ToString());
  REQUIRE(module.ok());
  std::set<Template> seen;
  for (const Case& c : cases) {
    seen.insert(c.body.schedule.kind);
    const uint64_t seed = 17;
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
  CHECK(seen.size() >= 5);
}

TEST_CASE("every schedule of every template agrees with the interpreter, in each dtype") {
  const DType dtype =
      GENERATE(DType::kFp32, DType::kBf16, DType::kFp16, DType::kFp64, DType::kFp8E4M3,
               DType::kFp8E5M2, DType::kFp8E4M3Fnuz, DType::kFp8E5M2Fnuz);
  RunAll(KernelExamples(dtype), {});
}

TEST_CASE("the checking build finds nothing in any schedule, in warps of 32 and of 64") {
  const int warp = GENERATE(32, 64);
  RunAll(KernelExamples(DType::kBf16), {.check = true, .warp = warp});
}

// An index beyond 32 bits, which nothing uses, makes the whole kernel number its points in 64.
TEST_CASE("kernels that number their points in 64 bits give the same") {
  std::vector<KernelExample> examples = KernelExamples(DType::kFp32);
  for (KernelExample& example : examples) {
    example.ir.instrs.push_back({.kind = InstrKind::kIndex,
                                 .dtype = DType::kInt64,
                                 .axes = 1,
                                 .offset = IndexExpr::Axis(0) * (int64_t{1} << 33)});
    const Classification shape = Classify(example.ir);
    const Schedule plain = CandidateSchedules(example.ir, shape, kSmallDevice)[0];
    const Kernel kernel =
        EmitGroup({.ir = example.ir, .schedule = plain}, Dialect::kHost).launches.front();
    const std::string source = PrintKernel(kernel);
    INFO(source);
    // The sort of a scatter counts rows alone; where there is no point there is no large number.
    CHECK((plain.kind == Template::kScatterAdd || example.ir.Points(example.ir.all_axes()) == 0 ||
           source.find("int64_t ") != std::string::npos));
  }
  RunAll(std::move(examples), {});
}

TEST_CASE("equal kernels share a name and different ones do not") {
  std::map<std::string, std::string> sources;
  for (DType dtype : {DType::kFp32, DType::kBf16}) {
    for (const KernelExample& example : KernelExamples(dtype)) {
      for (const Case& c : CasesOf(example, kSmallDevice)) {
        for (const Kernel& k : c.kernels.launches) {
          const auto [it, fresh] = sources.emplace(k.name, PrintKernel(k));
          CHECK((fresh || it->second == PrintKernel(k)));
        }
      }
    }
  }
  CHECK(sources.size() > 200);
}

// So many sums and largest elements down the rows, of fp32 and, every fourth one, of fp64.
KernelIr ManyFolds(int count, int64_t rows, int64_t columns) {
  KernelIrBuilder b({rows, columns});
  const int x = b.In(DType::kBf16, rows * columns);
  const int loaded = b.Load(x, A(0) * columns + A(1));
  for (int n = 0; n < count; ++n) {
    const DType type = n % 4 == 3 ? DType::kFp64 : DType::kFp32;
    const int term = b.Do(Op::mul, {b.Cast(loaded, type), b.Constant(1 + 0.25 * n, type)});
    const int folded = b.Reduce(n % 3 == 1 ? Op::amax : Op::sum, term, 1);
    b.Store(folded, b.Out(type, columns), A(1));
  }
  return b.Build();
}

std::vector<Schedule> BlocksThatFold(const KernelIr& ir) {
  std::vector<Schedule> schedules;
  for (const Schedule& s : CandidateSchedules(ir, Classify(ir), kSmallDevice)) {
    if (s.kind == Template::kColumnReduction && s.rows_per_block > 1) schedules.push_back(s);
  }
  return schedules;
}

int64_t Barriers(const Kernel& kernel) {
  const std::string text = PrintKernel(kernel);
  int64_t count = 0;
  for (size_t at = 0; (at = text.find("RG_BARRIER();", at)) != std::string::npos; ++at) ++count;
  return count;
}

TEST_CASE(
    "reductions down columns that fit into shared memory take each step of the fold at once") {
  size_t steps = 0;
  int tried = 0;
  for (const Schedule& s : BlocksThatFold(ManyFolds(2, 999, 40))) {
    const GroupKernels one =
        EmitGroup({.ir = ManyFolds(1, 999, 40), .schedule = s}, Dialect::kHost);
    const GroupKernels two =
        EmitGroup({.ir = ManyFolds(2, 999, 40), .schedule = s}, Dialect::kHost);
    const ColumnFold fold = ColumnFoldOf(s.rows_per_block, s.threads / s.rows_per_block,
                                         s.vector_width, DType::kFp32, 2);
    INFO(s.Print() << "\n" << PrintKernel(two.launches[0]));
    if (fold.together < 2) continue;
    ++tried;
    CHECK(Barriers(one.launches[0]) == static_cast<int64_t>(fold.rows.size()));
    for (size_t l = 0; l < two.launches.size(); ++l) {
      CHECK(Barriers(two.launches[l]) == Barriers(one.launches[l]));
    }
    steps = std::max(steps, fold.rows.size());
  }
  CHECK(steps == 3);
  CHECK(tried > 10);
}

TEST_CASE(
    "any number of reductions down columns, together or in turn, agree with the interpreter") {
  std::vector<ScheduleCase> cases;
  for (const int count : {1, 2, 3, 9}) {
    const KernelIr ir = ManyFolds(count, 999, 40);
    AddCases(absl::StrCat(count, " of them"), ir, BlocksThatFold(ir), cases);
  }
  int in_turn = 0;
  for (const ScheduleCase& c : cases) {
    const Schedule& s = c.body.schedule;
    in_turn += ColumnFoldOf(s.rows_per_block, s.threads / s.rows_per_block, s.vector_width,
                            DType::kFp32, 7)
                   .together < 7;
    CHECK(c.kernels.launches[0].shared_bytes <= 48 << 10);
  }
  CHECK(cases.size() > 20);
  CHECK(in_turn > 0);
  RunAll(cases, /*seed=*/23);
}

}  // namespace
}  // namespace retrograd
