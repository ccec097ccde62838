// Every template, in every schedule that its candidates offer, run on the host and held against an
// evaluator of the IR that shares nothing with the emitters.
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "codegen/emit.h"
#include "codegen/translation_unit.h"
#include "runtime/host/host_module.h"
#include "tests/catch.h"
#include "tests/support/kernels/kernel_ir_examples.h"
#include "tests/support/kernels/planted_faults.h"
#include "tests/support/kernels/run_kernel.h"

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

}  // namespace
}  // namespace retrograd
