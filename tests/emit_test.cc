// Every template, in every schedule that its candidates offer, run on the host and held against an
// evaluator of the IR that shares nothing with the emitters.
#include <set>

#include "absl/strings/str_cat.h"
#include "codegen/kernel.h"
#include "runtime/host_module.h"
#include "tests/catch.h"
#include "tests/support/kernel_ir_examples.h"
#include "tests/support/planted_faults.h"
#include "tests/support/run_kernel.h"

namespace retrograd {
namespace {

// Few processors, so that small kernels split and stride over their grids.
constexpr ScheduleLimits kSmallDevice = {.warp = 32, .sms = 3, .shared_bytes = 48 << 10};

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
    cases.push_back({absl::StrCat(example.name, ", ", schedule.Print()), std::move(body),
                     std::move(kernels)});
  }
  return cases;
}

void RunAll(DType dtype, const HostCompileOptions& options) {
  std::vector<Case> cases;
  std::vector<GroupKernels> all;
  for (const KernelExample& example : KernelExamples(dtype)) {
    INFO(example.name << "\n" << example.ir.Print());
    REQUIRE(example.ir.Verify().ToString() == "OK");
    for (Case& c : CasesOf(example, kSmallDevice)) cases.push_back(std::move(c));
  }
  for (const Case& c : cases) all.push_back(c.kernels);
  auto module = HostModule::Compile(EmitTranslationUnit(all, Dialect::kHost), options);
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
      for (const Kernel& k : c.kernels.launches) absl::StrAppend(&wrong, "\n", k.source);
    }
    INFO(c.name << ", seed " << seed << "\n" << wrong);
    CHECK(wrong.empty());
  }
  CHECK(seen.size() >= 5);
}

TEST_CASE("every schedule of every template agrees with the interpreter, in each dtype") {
  const DType dtype = GENERATE(DType::kFp32, DType::kBf16, DType::kFp16, DType::kFp64);
  RunAll(dtype, {});
}

TEST_CASE("the checking build finds nothing in any schedule, in warps of 32 and of 64") {
  const int warp = GENERATE(32, 64);
  RunAll(DType::kBf16, {.check = true, .warp = warp});
}

}  // namespace
}  // namespace retrograd
