// Rows of any length: vectors lie on memory's grid, and what is left at both ends of a row goes
// element by element. Every schedule of that kind, run on the host with each access checked,
// against the interpreter.
#include "tests/support/kernels/odd_rows.h"
#include "absl/strings/str_cat.h"
#include "codegen/emit.h"
#include "codegen/translation_unit.h"
#include "fusion/kernel/ir/accesses/vector_grid.h"
#include "fusion/planner/planner.h"
#include "graph/text/text.h"
#include "runtime/host/host_module.h"
#include "tests/catch.h"
#include "tests/support/kernels/run_kernel.h"

namespace retrograd {
namespace {

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
    Append(CasesOf(absl::StrCat("rows of ", n), PassOverRows(dtype, n)), &cases);
    Append(CasesOf(absl::StrCat(n, " elements"), PassOverAll(dtype, n)), &cases);
  }
  CHECK(cases.size() > 60);
  RunAll(cases, {.check = true});
}

// Of softmax's backward with so many columns.
int64_t PriceOf(int64_t columns, absl::string_view alignment) {
  const std::string type = absl::StrCat(" bf16[4096,", columns, "]\n");
  auto graph =
      ParseGraph(absl::StrCat("%dy = input name=\"dy\"", alignment, type, "%y = input name=\"y\"",
                              alignment, type, "%dx = softmax_backward %dy %y\noutput %dx"));
  REQUIRE(graph.status().ToString() == "OK");
  auto planned = PlanFusion(*graph, *LoadDeviceSpec("h200"), {});
  REQUIRE(planned.status().ToString() == "OK");
  REQUIRE(planned->plan.groups.size() == 1);
  CHECK(KernelOf(planned->plan.groups[0])->schedule.vector_width == 8);
  return planned->plan.groups[0].price_ps;
}

TEST_CASE("a vocabulary of any size is priced as the next aligned one") {
  const int64_t aligned = PriceOf(50304, " alignment=16");
  CHECK(PriceOf(50257, " alignment=16") <= aligned + aligned / 50);
  CHECK(PriceOf(50257, "") <= aligned + aligned / 10);  // shifted: at any address
}

TEST_CASE("accesses of one phase are whole vectors wherever a row begins") {
  const KernelIr ir = TwoRounds(DType::kBf16, 1001);
  const Vectors vectors = VectorsOf(ir, 8);
  for (size_t i = 0; i < ir.instrs.size(); ++i) {
    const Instr& load = ir.instrs[i];
    if (load.kind != InstrKind::kLoad || ir.buffers[load.buffer].elements != kOddRows * 1001)
      continue;
    if (ir.buffers[load.buffer].alignment < 16) continue;
    CHECK(LoadWidth(ir, static_cast<int>(i), vectors) == 8);
  }
  for (const Store& s : ir.stores) {
    if (ir.buffers[s.buffer].elements == kOddRows * 1001) CHECK(StoreWidth(ir, s, vectors) == 8);
  }
}

}  // namespace
}  // namespace retrograd
