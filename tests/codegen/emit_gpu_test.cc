// Every schedule of every template in the GPU dialects, through the vendors' run-time compilers.
// Compiling needs no GPU; that HIP code compiled does not mean that it has run.
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "codegen/emit.h"
#include "codegen/translation_unit.h"
#include "runtime/compiler/rtc.h"
#include "tests/catch.h"
#include "tests/support/kernels/kernel_ir_examples.h"

namespace retrograd {
namespace {

std::vector<Kernel> KernelsOf(DType dtype, Dialect dialect, int warp) {
  std::vector<GroupKernels> all;
  std::vector<KernelExample> examples = KernelExamples(dtype);
  for (KernelExample& example : examples) {
    const ScheduleLimits limits = {.warp = warp,
                                   .sms = 3,
                                   .shared_bytes = 48 << 10,
                                   .staged_bytes = 48 << 10,
                                   .shared_bytes_per_sm = 96 << 10,
                                   .cluster_blocks = dialect == Dialect::kCuda ? 8 : 1,
                                   .row_cluster_blocks = dialect == Dialect::kCuda ? 8 : 1};
    for (const Schedule& s : CandidateSchedules(example.ir, Classify(example.ir), limits)) {
      all.push_back(EmitGroup({.ir = example.ir, .schedule = s}, dialect));
    }
    // The plain one again, its points numbered in 64 bits.
    const Schedule plain = CandidateSchedules(example.ir, Classify(example.ir), limits)[0];
    example.ir.instrs.push_back({.kind = InstrKind::kIndex,
                                 .dtype = DType::kInt64,
                                 .axes = 1,
                                 .offset = IndexExpr::Axis(0) * (int64_t{1} << 33)});
    all.push_back(EmitGroup({.ir = example.ir, .schedule = plain}, dialect));
  }
  return DistinctKernels(all);
}

TEST_CASE("every schedule of every template compiles for sm_90") {
  RG_NEEDS_COMPILER(CudaCompilerAvailable());
  const std::vector<Kernel> kernels = KernelsOf(DType::kBf16, Dialect::kCuda, 32);
  const auto object = CompileKernels(Dialect::kCuda, kernels, "sm_90");
  INFO(object.status().ToString());
  REQUIRE(object.ok());
  CHECK(kernels.size() > 100);
  CHECK(object->kernels.size() == kernels.size());
  // Warnings would mean that the text says something other than what was meant.
  INFO(object->log);
  CHECK_FALSE(absl::StrContains(object->log, "warning"));
}

TEST_CASE("every schedule of every template compiles for gfx90a") {
  RG_NEEDS_COMPILER(HipCompilerAvailable());
  const std::vector<Kernel> kernels = KernelsOf(DType::kFp16, Dialect::kHip, 64);
  const auto object = CompileKernels(Dialect::kHip, kernels, "gfx90a");
  INFO(object.status().ToString());
  REQUIRE(object.ok());
  CHECK(kernels.size() > 100);
}

}  // namespace
}  // namespace retrograd
