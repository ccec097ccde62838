// Elements that take turns in memory are loaded by vectors, a run of them at a time. Every schedule
// with vectors, run on the host with each access checked, against the interpreter.
#include "fusion/kernel/ir/accesses/interleaved_loads.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "codegen/emit.h"
#include "codegen/translation_unit.h"
#include "fusion/kernel/templates/kernel_template.h"
#include "fusion/planner/planner.h"
#include "graph/text/text.h"
#include "runtime/host/host_module.h"
#include "tests/catch.h"
#include "tests/support/kernels/kernel_ir_builder.h"
#include "tests/support/kernels/run_kernel.h"

namespace retrograd {
namespace {

constexpr ScheduleLimits kDevice = {.warp = 32, .sms = 3, .shared_bytes = 48 << 10};

// One result for each of these places among `stride` tensors that take turns, and the sum of all.
// `ahead`: elements in front of the first run.
KernelIr Parts(DType dtype, int64_t points, int64_t stride, const std::vector<int64_t>& places,
               int64_t ahead = 0) {
  KernelIrBuilder b({points});
  const int x = b.In(dtype, points * stride + ahead);
  int sum = -1;
  for (int64_t place : places) {
    const int value = b.Load(x, A(0) * stride + IndexExpr::Constant(place + ahead));
    b.Store(b.Do(Op::neg, {value}), b.Out(dtype, points), A(0));
    sum = sum < 0 ? value : b.Do(Op::add, {sum, value});
  }
  b.Store(sum, b.Out(dtype, points), A(0));
  return b.Build();
}

// Runs the schedules with vectors; how many of them load runs.
int RunAll(const KernelIr& ir) {
  REQUIRE(ir.Verify().ToString() == "OK");
  std::vector<KernelBody> bodies;
  std::vector<GroupKernels> kernels;
  int runs = 0;
  for (const Schedule& schedule : CandidateSchedules(ir, Classify(ir), kDevice)) {
    if (schedule.vector_width == 1) continue;
    bodies.push_back({.ir = ir, .schedule = schedule});
    kernels.push_back(EmitGroup(bodies.back(), Dialect::kHost));
    runs += absl::StrContains(PrintKernel(kernels.back().launches[0]), "rg_load_pack(") ? 1 : 0;
  }
  if (bodies.empty()) return 0;
  auto module = HostModule::Compile(DistinctKernels(kernels), {.check = true});
  REQUIRE(module.status().ToString() == "OK");
  for (size_t i = 0; i < bodies.size(); ++i) {
    const BufferValues before = RandomBuffers(ir, 11);
    auto after = RunKernels(**module, bodies[i], kernels[i], before, 11);
    REQUIRE(after.status().ToString() == "OK");
    INFO(PrintKernel(kernels[i].launches[0]));
    CHECK(CompareToInterpreter(ir, before, *after) == "");
  }
  return runs;
}

TEST_CASE("elements that take turns are loaded by vectors and come out each in its place") {
  const DType dtype = GENERATE(DType::kFp32, DType::kBf16, DType::kFp64, DType::kInt8);
  const int64_t stride = GENERATE(2, 3, 4, 8);
  std::vector<int64_t> places(stride);
  for (int64_t p = 0; p < stride; ++p) places[p] = p;
  INFO(stride << " tensors of " << Name(dtype));
  CHECK(RunAll(Parts(dtype, 4096, stride, places)) > 0);
}

TEST_CASE("half of a run is enough, if its ends are among that") {
  CHECK(RunAll(Parts(DType::kBf16, 1024, 4, {0, 3})) > 0);
  CHECK(RunAll(Parts(DType::kBf16, 1024, 8, {0, 2, 5, 7})) > 0);
  // Behind the last element of the buffer lies nothing that may be read.
  CHECK(RunAll(Parts(DType::kBf16, 1024, 4, {0, 1, 2})) == 0);
  CHECK(RunAll(Parts(DType::kBf16, 1024, 4, {1, 2, 3})) == 0);
  CHECK(RunAll(Parts(DType::kBf16, 1024, 2, {0})) == 0);
  CHECK(RunAll(Parts(DType::kBf16, 1024, 8, {0, 7})) == 0);
}

TEST_CASE("a run begins where an access may begin, or its elements go alone") {
  CHECK(RunAll(Parts(DType::kFp32, 1024, 2, {0, 1}, 8)) > 0);
  CHECK(RunAll(Parts(DType::kFp32, 1024, 2, {0, 1}, 2)) > 0);  // 8 bytes at a time
  CHECK(RunAll(Parts(DType::kFp32, 1024, 4, {0, 1, 2, 3}, 1)) == 0);
  CHECK(RunAll(Parts(DType::kFp32, 1024, 9, {0, 1, 2, 3, 4, 5, 6, 7, 8})) == 0);
}

// Gradients of tensors that were stacked along their last axis.
std::string Unstacked(int64_t rows, int64_t columns, int tensors) {
  std::string text = absl::StrCat("%dy = input name=\"dy\" alignment=16  bf16[", rows, ",", columns,
                                  ",", tensors, "]\n%g = tanh %dy\n");
  for (int t = 0; t < tensors; ++t) {
    absl::StrAppend(&text, "%s", t, " = slice %g axis=2 start=", t, " stop=", t + 1, " step=1\n%r",
                    t, " = reshape %s", t, " shape=[", rows, ",", columns, "]\n");
  }
  for (int t = 0; t < tensors; ++t) absl::StrAppend(&text, "output %r", t, "\n");
  return text;
}

TEST_CASE("tensors that were stacked get their gradients from one kernel that reads once") {
  auto graph = ParseGraph(Unstacked(512, 256, 4));
  REQUIRE(graph.status().ToString() == "OK");
  auto planned = PlanFusion(*graph, *LoadDeviceSpec("h200"), {});
  REQUIRE(planned.status().ToString() == "OK");
  CHECK(planned->plan.groups.size() == 1);
  CHECK(planned->plan.groups[0].read_bytes == 512 * 256 * 4 * 2);
}

TEST_CASE("slices of whole rows are read as well by kernels of their own") {
  auto graph = ParseGraph(
      "%x = input name=\"x\" alignment=16  bf16[2048,4096]\n"
      "%a = slice %x axis=0 start=0 stop=1024 step=1\n%b = slice %x axis=0 start=1024 stop=2048 "
      "step=1\n%c = tanh %a\n%d = exp %b\noutput %c\noutput %d\n");
  REQUIRE(graph.status().ToString() == "OK");
  auto planned = PlanFusion(*graph, *LoadDeviceSpec("h200"), {});
  REQUIRE(planned.status().ToString() == "OK");
  CHECK(planned->plan.groups.size() == 2);
}

}  // namespace
}  // namespace retrograd
