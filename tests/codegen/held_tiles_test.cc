// Tiles held on chip: every schedule of every shape of tiles, run on the host with each access
// checked, against the interpreter; and when the planner takes one.
#include "fusion/kernel/templates/held_tiles/tile_walk.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "codegen/emit.h"
#include "codegen/translation_unit.h"
#include "fusion/kernel/templates/kernel_template.h"
#include "fusion/planner/planner.h"
#include "graph/text/text.h"
#include "runtime/compiler/rtc.h"
#include "runtime/host/host_module.h"
#include "tests/catch.h"
#include "tests/support/kernels/run_kernel.h"
#include "tests/support/kernels/schedule_cases.h"
#include "tests/support/kernels/tiles_to_hold.h"

namespace retrograd {
namespace {

constexpr DType kBf16 = DType::kBf16, kF32 = DType::kFp32, kF8 = DType::kFp8E4M3;

constexpr ScheduleLimits kSmallDevice = {
    .warp = 32, .sms = 3, .shared_bytes = 48 << 10, .shared_bytes_per_sm = 96 << 10};

using Case = ScheduleCase;

std::vector<Schedule> TileSchedules(const KernelIr& ir) {
  std::vector<Schedule> tiles;
  for (const Schedule& s : CandidateSchedules(ir, Classify(ir), kSmallDevice)) {
    if (s.kind == Template::kHeldTiles) tiles.push_back(s);
  }
  return tiles;
}

void AddCases(const std::string& name, const KernelIr& ir, std::vector<Case>& cases) {
  INFO(name);
  REQUIRE(Classify(ir).kind == Template::kHeldTiles);
  AddCases(name, ir, TileSchedules(ir), cases);
}

void RunAll(const std::vector<Case>& cases) { RunAll(cases, /*seed=*/29); }

TEST_CASE("rows and columns of tiles of any size are quantised from one read") {
  std::vector<Case> cases;
  for (int64_t high : {12, 20, 37, 64, 128}) {
    for (int64_t wide : {8, 21, 40, 128}) {
      const BlocksOfMatrix m = {.down = 2, .right = 3, .high = high, .wide = wide};
      AddCases(absl::StrCat(high, " x ", wide), QuantisedBothWays(kBf16, kF8, m), cases);
    }
  }
  const BlocksOfMatrix small = {.down = 2, .right = 1, .high = 32, .wide = 32};
  AddCases("to bf16", QuantisedBothWays(kBf16, kBf16, small), cases);
  AddCases("of fp32", QuantisedBothWays(kF32, kF8, small), cases);
  AddCases("to fp32", QuantisedBothWays(kF32, kF32, small), cases);
  std::set<int> threads;
  int tiles = 0, without = 0;
  for (const Case& c : cases) {
    if (c.body.schedule.persistent) threads.insert(c.body.schedule.threads);
    const bool tile = absl::StrContains(PrintKernel(c.kernels.launches[0]), "rg_store_from");
    (tile ? tiles : without) += 1;
  }
  CHECK(threads == std::set<int>{64, 128, 256, 512});
  CHECK(tiles > 10);
  CHECK(without > 10);
  RunAll(cases);
}

TEST_CASE("squares are folded as a whole and stored across") {
  std::vector<Case> cases;
  for (int64_t high : {16, 48, 128}) {
    for (int64_t wide : {16, 24, 128}) {
      const BlocksOfMatrix m = {.down = 2, .right = 2, .high = high, .wide = wide};
      AddCases(absl::StrCat(high, " x ", wide), QuantisedSquares(kBf16, kF8, m), cases);
    }
  }
  RunAll(cases);
}

TEST_CASE("rounds follow each other: rows, then columns, then the whole tile") {
  std::vector<Case> cases;
  for (DType t : {kBf16, kF32}) {
    AddCases("even", CentredTwice(t, 3, 32, 64), cases);
    AddCases("odd", CentredTwice(t, 2, 12, 13), cases);
    AddCases("some rows idle", CentredTwice(t, 2, 33, 72), cases);
    AddCases("some vectors idle", CentredTwice(t, 2, 60, 72), cases);
  }
  AddCases("no tiles", CentredTwice(kF32, 0, 9, 16), cases);
  RunAll(cases);
}

TEST_CASE("the largest of a row or column with a NaN is NaN, and of no other") {
  const BlocksOfMatrix m = {.down = 1, .right = 2, .high = 40, .wide = 32};
  const KernelIr ir = QuantisedBothWays(kF32, kF32, m);
  std::vector<Case> cases;
  AddCases("NaN", ir, cases);
  const std::shared_ptr<HostModule> module = Compiled(cases);
  const int64_t columns = m.right * m.wide;
  for (const Case& c : cases) {
    BufferValues before = RandomBuffers(c.body.ir, 3);
    before[0][37 * columns + 33] = std::numeric_limits<double>::quiet_NaN();
    const auto after = RunKernels(*module, c.body, c.kernels, before, 3);
    INFO(c.name << ": " << after.status());
    REQUIRE(after.ok());
    const std::vector<double>&of_rows = (*after)[3], &of_columns = (*after)[4];
    for (int64_t i = 0; i < m.high * m.right; ++i) {
      CHECK(std::isnan(of_rows[i]) == (i == 37 * m.right + 1));
    }
    for (int64_t i = 0; i < columns; ++i) CHECK(std::isnan(of_columns[i]) == (i == 33));
  }
}

TEST_CASE("two runs give the same bits, in whatever order threads and blocks run") {
  std::vector<Case> cases;
  AddCases("sums", CentredTwice(kF32, 2, 33, 72), cases);
  const std::shared_ptr<HostModule> module = Compiled(cases);
  for (const Case& c : cases) {
    const BufferValues before = RandomBuffers(c.body.ir, 5);
    const auto first = RunKernels(*module, c.body, c.kernels, before, 1);
    const auto second = RunKernels(*module, c.body, c.kernels, before, 2);
    REQUIRE((first.ok() && second.ok()));
    INFO(c.name);
    CHECK(*first == *second);
  }
}

TEST_CASE("a fold of both axes whose results lie as the loads do is a row reduction") {
  const BlocksOfMatrix m = {.down = 2, .right = 2, .high = 32, .wide = 32};
  KernelIr ir = QuantisedSquares(kBf16, kF8, m);
  CHECK(Classify(ir).kind == Template::kHeldTiles);
  for (Instr& i : ir.instrs) {  // what is loaded lies as the results do
    if (i.kind == InstrKind::kLoad) i.offset = ir.stores[0].offset;
  }
  CHECK(Classify(ir).kind == Template::kRowReduction);
}

TEST_CASE("tiles that no block holds, and a tile that is all there is, have no such schedules") {
  const auto kind = [](BlocksOfMatrix m) {
    const Classification c = Classify(QuantisedBothWays(kBf16, kF8, m));
    return c.feasible && c.kind == Template::kHeldTiles;
  };
  CHECK(kind({.down = 2, .right = 1, .high = 128, .wide = 256}));
  CHECK_FALSE(kind({.down = 2, .right = 1, .high = 256, .wide = 256}));
  CHECK_FALSE(kind({.down = 64, .right = 1, .high = 2, .wide = 196}));  // most threads are idle
  CHECK_FALSE(kind({.down = 1, .right = 1, .high = 64, .wide = 64}));
}

TEST_CASE("kernels that hold tiles compile for sm_90 without spills, and for gfx90a") {
  const BlocksOfMatrix m = {.down = 128, .right = 56, .high = 128, .wide = 128};
  const std::vector<KernelIr> irs = {
      QuantisedBothWays(kBf16, kF8, m), QuantisedBothWays(kF32, kBf16, {64, 56, 64, 64}),
      QuantisedSquares(kBf16, kF8, m), CentredTwice(kF32, 8, 64, 96)};
  std::vector<GroupKernels> cuda, hip;
  for (const KernelIr& ir : irs) {
    for (const Schedule& s : TileSchedules(ir)) {
      cuda.push_back(EmitGroup({.ir = ir, .schedule = s}, Dialect::kCuda));
      hip.push_back(EmitGroup({.ir = ir, .schedule = s}, Dialect::kHip));
    }
  }
  if (CudaCompilerAvailable().ok()) {
    const auto object = CompileKernels(Dialect::kCuda, DistinctKernels(cuda), "sm_90");
    INFO(object.status());
    REQUIRE(object.ok());
    for (const KernelResources& r : object->kernels) CHECK(r.spill_bytes == 0);
    INFO(object->log);
    CHECK_FALSE(absl::StrContains(object->log, "warning"));
  }
  if (HipCompilerAvailable().ok()) {
    const auto object = CompileKernels(Dialect::kHip, DistinctKernels(hip), "gfx90a");
    INFO(object.status());
    CHECK(object.ok());
  }
}

// [rows, columns] quantised by blocks of 1 x 128 and, stored as the transpose, of 128 x 1.
BackwardGraph BothWays(int64_t rows, int64_t columns) {
  const std::string flat = absl::StrCat("[", rows, ",", columns, "]");
  const std::string wide = absl::StrCat("[", rows, ",", columns / 128, ",128]");
  const std::string high = absl::StrCat("[", rows / 128, ",128,", columns, "]");
  auto graph =
      ParseGraph(absl::StrCat("%0 = input name=\"x\" kind=saved alignment=16  bf16", flat, R"(
%1 = input name="dy" kind=tangent alignment=16  bf16[]
%2 = expand %1 shape=)",
                              flat, R"(
%3 = mul %2 %0
%4 = full dtype=f32 shape=[] value=448.0
%5 = full dtype=f32 shape=[] value=1e-12
%6 = reshape %3 shape=)",
                              wide, R"(
%7 = abs %6
%8 = amax %7 axes=[2] keep=1
%9 = cast %8 dtype=f32
%10 = maximum %9 %5
%11 = div %4 %10
%12 = cast %6 dtype=f32
%13 = mul %12 %11
%14 = cast %13 dtype=f8e4m3
%15 = reshape %3 shape=)",
                              high, R"(
%16 = abs %15
%17 = amax %16 axes=[1] keep=1
%18 = cast %17 dtype=f32
%19 = maximum %18 %5
%20 = div %4 %19
%21 = cast %15 dtype=f32
%22 = mul %21 %20
%23 = cast %22 dtype=f8e4m3
%24 = reshape %23 shape=)",
                              flat, R"(
%25 = permute %24 perm=[1,0]
output %14 name="by_rows"
output %11 name="scales_of_rows"
output %25 name="by_columns"
output %20 name="scales_of_columns"
)"));
  INFO(graph.status());
  REQUIRE(graph.ok());
  return *std::move(graph);
}

std::vector<Template> KindsOf(const BackwardGraph& graph, const std::string& spec,
                              const PlanOptions& options = {}) {
  const auto device = LoadDeviceSpec(spec);
  REQUIRE(device.ok());
  const auto planned = PlanFusion(graph, *device, options);
  INFO(planned.status());
  REQUIRE(planned.ok());
  CHECK(planned->plan.Verify(planned->graph).ToString() == "OK");
  std::vector<Template> kinds;
  for (const Group& group : planned->plan.groups) {
    for (const KernelBody* body : KernelsOf(group)) kinds.push_back(body->schedule.kind);
  }
  return kinds;
}

TEST_CASE("a matrix and its transpose are quantised by one kernel that holds tiles") {
  for (const char* spec : {"h100", "h200"}) {
    INFO(spec);
    const BackwardGraph large = BothWays(16384, 7168);
    CHECK(KindsOf(large, spec) == std::vector<Template>{Template::kHeldTiles});
    CHECK(KindsOf(BothWays(1024, 2048), spec) == std::vector<Template>{Template::kHeldTiles});
    const PlanOptions off{.disable = {"held_tiles"}};
    const std::vector<Template> apart = KindsOf(large, spec, off);
    CHECK(apart.size() == 2);
    CHECK(std::count(apart.begin(), apart.end(), Template::kHeldTiles) == 0);
  }
}

}  // namespace
}  // namespace retrograd
