// Elements that take turns in memory are loaded and stored by vectors, a run of them at a time.
// Every schedule with vectors, run on the host with each access checked, against the interpreter.
#include "fusion/kernel/ir/accesses/interleaved.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
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

// Runs the schedules with vectors; how many of them have such a text.
int RunAll(const KernelIr& ir, absl::string_view text = "rg_load_pack(") {
  REQUIRE(ir.Verify().ToString() == "OK");
  std::vector<KernelBody> bodies;
  std::vector<GroupKernels> kernels;
  int runs = 0;
  for (const Schedule& schedule : CandidateSchedules(ir, Classify(ir), kDevice)) {
    if (schedule.vector_width == 1) continue;
    bodies.push_back({.ir = ir, .schedule = schedule});
    kernels.push_back(EmitGroup(bodies.back(), Dialect::kHost));
    runs += absl::StrContains(PrintKernel(kernels.back().launches[0]), text) ? 1 : 0;
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
  CHECK(RunAll(Parts(DType::kBf16, 1024, 4, {0, 2})) == 0);
  CHECK(RunAll(Parts(DType::kBf16, 1024, 4, {1, 3})) == 0);
  CHECK(RunAll(Parts(DType::kBf16, 1024, 4, {0, 1, 2})) > 0);  // 0 and 1, by pairs
  CHECK(RunAll(Parts(DType::kBf16, 1024, 2, {0})) == 0);
  CHECK(RunAll(Parts(DType::kBf16, 1024, 8, {0, 7})) == 0);
}

TEST_CASE("a run begins where an access may begin, or its elements go alone") {
  CHECK(RunAll(Parts(DType::kFp32, 1024, 2, {0, 1}, 8)) > 0);
  CHECK(RunAll(Parts(DType::kFp32, 1024, 2, {0, 1}, 2)) > 0);  // 8 bytes at a time
  CHECK(RunAll(Parts(DType::kFp32, 1024, 2, {0, 1}, 1)) == 0);
  CHECK(RunAll(Parts(DType::kFp32, 1024, 9, {0, 1, 2, 3, 4, 5, 6, 7, 8})) > 0);
}

// Parts that are joined element by element: x[n·points + a / n] at a place a whose remainder by n
// is the part's number, 0 elsewhere. `parts` of them are there.
KernelIr Joined(DType dtype, int64_t points, int64_t n, int64_t parts, int64_t behind = 0) {
  const std::vector<int64_t> extents = {points * n};
  KernelIrBuilder b(extents);
  const int x = b.In(dtype, points * n + behind);
  int sum = -1;
  for (int64_t part = 0; part < parts; ++part) {
    const IndexExpr place = A(0) + IndexExpr::Constant(-part);
    const int value = b.Load(x, FloorDiv(place, n, extents) + IndexExpr::Constant(part * points),
                             {{Mod(place, n, extents), 0, 1}, {place, 0, points * n}});
    sum = sum < 0 ? value : b.Do(Op::add, {sum, value});
  }
  b.Store(sum, b.Out(dtype, points * n), A(0));
  return b.Build();
}

TEST_CASE("what only some lanes need is loaded by vectors of its own") {
  const DType dtype = GENERATE(DType::kFp32, DType::kBf16);
  CHECK(RunAll(Joined(dtype, 512, 2, 2), "rg_lane(") > 0);
  CHECK(RunAll(Joined(dtype, 512, 4, 4), "rg_lane(") > (dtype == DType::kBf16 ? 0 : -1));
  RunAll(Joined(dtype, 510, 2, 2));
  RunAll(Joined(dtype, 512, 2, 1));
  RunAll(Joined(dtype, 512, 3, 3));
  RunAll(Joined(dtype, 511, 4, 3));
}

TEST_CASE("pairs that change places come from vectors, as do rows that are turned around") {
  const std::vector<int64_t> extents = {1024};
  KernelIrBuilder b(extents);
  const int x = b.In(DType::kBf16, 1024);
  const IndexExpr pair = FloorDiv(A(0), 2, extents) * 2;
  const IndexExpr odd = A(0) + IndexExpr::Constant(-1);
  const int left = b.Load(x, pair + IndexExpr::Constant(1), {{Mod(A(0), 2, extents), 0, 1}});
  const int right =
      b.Load(x, FloorDiv(odd, 2, extents) * 2, {{Mod(odd, 2, extents), 0, 1}, {odd, 0, 1024}});
  b.Store(b.Do(Op::sub, {right, left}), b.Out(DType::kBf16, 1024), A(0));
  CHECK(RunAll(b.Build(), "rg_lane(") > 0);

  KernelIrBuilder turned({1024});
  const int y = turned.In(DType::kFp32, 1024);
  turned.Store(turned.Do(Op::neg, {turned.Load(y, A(0) * -1 + IndexExpr::Constant(1023))}),
               turned.Out(DType::kFp32, 1024), A(0));
  CHECK(RunAll(turned.Build(), "rg_lane(") > 0);
}

TEST_CASE("elements that repeat are loaded once, where guards of all lanes hold") {
  const std::vector<int64_t> extents = {8, 256};
  KernelIrBuilder b(extents);
  const int x = b.In(DType::kFp32, 8 * 128);
  const IndexExpr place = A(0) * 128 + FloorDiv(A(1), 2, extents);
  b.Store(b.Load(x, place), b.Out(DType::kFp32, 8 * 256), A(0) * 256 + A(1));
  b.Store(b.Load(x, place, {{A(1), 64, 192}}), b.Out(DType::kFp32, 8 * 256), A(0) * 256 + A(1));
  CHECK(RunAll(b.Build(), "rg_lane(") > 0);
}

// One result of `parts` values that take turns, or of one value whose lanes lie apart.
TEST_CASE("elements that take turns are stored by vectors if nothing lies between them") {
  const DType dtype = GENERATE(DType::kFp32, DType::kBf16, DType::kFp64, DType::kInt8);
  const auto parts_of = [&](int64_t stride, const std::vector<int64_t>& places) {
    KernelIrBuilder b({4096});
    const int out = b.Out(dtype, 4096 * stride);
    for (int64_t p : places) {
      const int x = b.In(dtype, 4096);
      b.Store(b.Do(Op::neg, {b.Load(x, A(0))}), out, A(0) * stride + IndexExpr::Constant(p));
    }
    return b.Build();
  };
  INFO(Name(dtype));
  CHECK(RunAll(parts_of(2, {0, 1}), " q0[") > 0);
  CHECK(RunAll(parts_of(3, {0, 1, 2}), " q0[") > 0);
  CHECK(RunAll(parts_of(4, {0, 1, 2, 3}), " q0[") > 0);
  CHECK(RunAll(parts_of(4, {0, 1}), " q0[") > 0);  // pairs
  CHECK(RunAll(parts_of(2, {0}), " q0[") == 0);
  CHECK(RunAll(parts_of(4, {0, 2}), " q0[") == 0);
  CHECK(RunAll(parts_of(4, {1, 2}), " q0[") == 0);

  const std::vector<int64_t> extents = {4096};
  KernelIrBuilder apart(extents);
  const int x = apart.In(dtype, 4096);
  apart.Store(apart.Do(Op::neg, {apart.Load(x, A(0))}), apart.Out(dtype, 4096),
              FloorDiv(A(0), 2, extents) + Mod(A(0), 2, extents) * 2048);
  CHECK((RunAll(apart.Build(), " q0[") > 0) == (dtype != DType::kFp64));
}

bool HasThirds(const KernelIr& ir) {
  const std::vector<Schedule> schedules = CandidateSchedules(ir, Classify(ir), kDevice);
  return std::any_of(schedules.begin(), schedules.end(),
                     [](const Schedule& s) { return s.vector_width % 3 == 0; });
}

// `rows` lines of pixels with `colours` each, of which the values or the results lie by colours.
KernelIr Colours(DType dtype, int64_t rows, int64_t pixels, int64_t colours, bool of_results) {
  const int64_t line = pixels * colours;
  const std::vector<int64_t> extents = {rows, line};
  KernelIrBuilder b(extents);
  const IndexExpr in_line = A(0) * line + A(1);
  const IndexExpr by_colour =
      A(0) * line + FloorDiv(A(1), colours, extents) + Mod(A(1), colours, extents) * pixels;
  const int value = b.Load(b.In(dtype, rows * line), of_results ? in_line : by_colour);
  b.Store(b.Do(Op::neg, {value}), b.Out(dtype, rows * line), of_results ? by_colour : in_line);
  return b.Build();
}

TEST_CASE("rows of three and six elements go by lanes that are whole turns of them") {
  const DType dtype = GENERATE(DType::kFp32, DType::kBf16, DType::kInt8);
  const bool of_results = GENERATE(false, true);
  const absl::string_view text = of_results ? " q0[" : "rg_lane(";
  INFO(Name(dtype) << (of_results ? " results" : " values"));
  for (const int64_t colours : {3, 6}) {
    const KernelIr ir = Colours(dtype, 5, 16, colours, of_results);
    CHECK(HasThirds(ir));
    CHECK(RunAll(ir, text) > 0);
  }
  CHECK(HasThirds(Colours(dtype, 5, 4, 3, of_results)));         // 12 lanes
  CHECK_FALSE(HasThirds(Colours(dtype, 5, 7, 3, of_results)));   // rows with ends
  CHECK_FALSE(HasThirds(Colours(dtype, 5, 24, 2, of_results)));  // fewer lanes do
}

TEST_CASE("rows that only some lanes look up are loaded lane by lane") {
  const std::vector<int64_t> extents = {6, 16};
  KernelIrBuilder b(extents);
  const int indices = b.In(DType::kInt32, 6);
  const int table = b.In(DType::kBf16, 8 * 16);
  const Guard low{Mod(A(1), 4, extents), 0, 2};
  const int index = b.Load(indices, A(0), {low}, 1);
  b.Store(b.Gather(table, A(1), index, 16, 8), b.Out(DType::kBf16, 96), A(0) * 16 + A(1));
  RunAll(b.Build());
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
