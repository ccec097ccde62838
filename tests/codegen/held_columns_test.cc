// Columns held on chip: every schedule that holds them, in clusters of any size, run on the host
// with each access checked, against the interpreter; and when the planner takes one.
#include "fusion/kernel/templates/held_columns/column_slabs.h"

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
#include "tests/support/kernels/columns_to_hold.h"
#include "tests/support/kernels/run_kernel.h"
#include "tests/support/kernels/schedule_cases.h"

namespace retrograd {
namespace {

constexpr DType kBf16 = DType::kBf16, kF32 = DType::kFp32, kF8 = DType::kFp8E4M3;

constexpr ScheduleLimits kSmallDevice = {.warp = 32,
                                         .sms = 3,
                                         .shared_bytes = 48 << 10,
                                         .staged_bytes = 64 << 10,
                                         .shared_bytes_per_sm = 96 << 10,
                                         .cluster_blocks = 8};

using Case = ScheduleCase;

std::vector<Schedule> HeldSchedules(const KernelIr& ir,
                                    const ScheduleLimits& limits = kSmallDevice) {
  std::vector<Schedule> held;
  for (const Schedule& s : CandidateSchedules(ir, Classify(ir), limits)) {
    if (HoldsRows(s)) held.push_back(s);
  }
  return held;
}

void AddCases(const std::string& name, const KernelIr& ir, std::vector<Case>& cases) {
  AddCases(name, ir, HeldSchedules(ir), cases);
}

void RunAll(const std::vector<Case>& cases) { RunAll(cases, /*seed=*/23); }

TEST_CASE("columns of any number and length are held by clusters of any size") {
  std::vector<Case> cases;
  for (int64_t rows : {1, 3, 64, 1000, 1040, 2052}) {
    for (int64_t columns : {1, 7, 16, 24, 40}) {
      if ((rows > 1000) != (columns % 16 != 0)) continue;
      AddCases(absl::StrCat(rows, " x ", columns), ColumnSoftmax(kBf16, 2, rows, columns), cases);
    }
  }
  AddCases("fp32", ColumnSoftmax(kF32, 1, 1030, 20), cases);
  AddCases("fp64", ColumnSoftmax(DType::kFp64, 1, 130, 6), cases);
  AddCases("no column", ColumnSoftmax(kBf16, 0, 9, 24), cases);
  AddCases("two tensors, added to", BatchNormBackward(kBf16, 2058, 40), cases);
  AddCases("two tensors, added to, fp32", BatchNormBackward(kF32, 2050, 40), cases);
  CHECK(ClustersIn(cases) == std::set<int>{1, 2, 4, 8});
  RunAll(cases);
}

TEST_CASE("the blocks of a cluster have about equal parts of the rows, whatever their number") {
  const auto device = LoadDeviceSpec("h100");
  REQUIRE(device.ok());
  for (int64_t rows : {1568, 6272, 25'088}) {
    const KernelIr ir = BatchNormBackward(kBf16, rows, 336);
    std::set<int> clusters;
    for (const Schedule& s : HeldSchedules(ir, ScheduleLimitsOf(*device))) {
      const ColumnSlab slab = SlabOf(ir, Classify(ir).shape, s);
      INFO(rows << " rows, " << s.Print());
      CHECK(slab.rows_of_block * s.cluster >= rows);
      CHECK(slab.rows_of_block * (s.cluster - 1) < rows);
      CHECK(slab.rows_of_block <= rows / s.cluster + 16);
      CHECK(slab.places_of_block() >= slab.rows_of_block);
      clusters.insert(s.cluster);
    }
    CHECK(clusters.count(8) == 1);
  }
}

TEST_CASE("results are stored along the rows through tiles, of any type, and element by element") {
  std::vector<Case> cases;
  for (DType to : {kF8, kBf16, kF32}) {
    AddCases(absl::StrCat("to ", Name(to)), QuantisedColumns(kBf16, to, 2, 1040, 24), cases);
    AddCases(absl::StrCat("short, to ", Name(to)), QuantisedColumns(kBf16, to, 3, 48, 40), cases);
    AddCases(absl::StrCat("odd, to ", Name(to)), QuantisedColumns(kBf16, to, 3, 45, 20), cases);
  }
  AddCases("of fp32", QuantisedColumns(kF32, kF8, 1, 3072, 36), cases);
  int tiles = 0, without = 0;
  for (const Case& c : cases) {
    const bool tile = absl::StrContains(PrintKernel(c.kernels.launches[0]), "rg_store_from");
    (tile ? tiles : without) += 1;
  }
  CHECK(tiles > 20);
  CHECK(without > 5);
  CHECK(ClustersIn(cases) == std::set<int>{1, 2, 4, 8});
  RunAll(cases);
}

TEST_CASE("copies of a part of a line fetch all of it where the kernel reads all of the tensor") {
  const KernelIr whole = QuantisedColumns(kBf16, kF8, 2, 1024, 128);
  KernelIr slice = whole;  // of a wider tensor, whose other columns nobody reads
  for (Buffer& buffer : slice.buffers) buffer.elements *= 2;
  const auto fetch_lines = [](const KernelIr& ir, const Schedule& s) {
    const GroupKernels made = EmitGroup(KernelBody{.ir = ir, .schedule = s}, Dialect::kCuda);
    return absl::StrContains(PrintKernel(made.launches[0]), "rg_copy_part_ahead");
  };
  std::set<int64_t> pieces;
  for (const Schedule& s : HeldSchedules(whole)) {
    const ColumnSlab slab = SlabOf(whole, Classify(whole).shape, s);
    const int64_t bytes = slab.columns_of_slab() * SizeBytes(kBf16);
    pieces.insert(bytes);
    INFO(bytes << " bytes of a row, " << s.Print());
    CHECK(fetch_lines(whole, s) == (bytes < 128));
    CHECK_FALSE(fetch_lines(slice, s));
  }
  CHECK(pieces == std::set<int64_t>{32, 64, 128});
}

TEST_CASE("the largest of a column with a NaN is NaN, whichever block holds it") {
  const int64_t rows = 1040, columns = 16;
  std::vector<Case> cases;
  AddCases("NaN", ColumnSoftmax(kF32, 1, rows, columns), cases);
  const std::shared_ptr<HostModule> module = Compiled(cases);
  for (const Case& c : cases) {
    for (int64_t row : {int64_t{0}, int64_t{517}, rows - 1}) {
      BufferValues before = RandomBuffers(c.body.ir, 3);
      before[0][row * columns + 5] = std::numeric_limits<double>::quiet_NaN();
      const auto after = RunKernels(*module, c.body, c.kernels, before, 3);
      INFO(c.name << ", row " << row << ": " << after.status());
      REQUIRE(after.ok());
      const std::vector<double>& largest = (*after)[kLargestOfSoftmax];
      for (int64_t column = 0; column < columns; ++column) {
        CHECK(std::isnan(largest[column]) == (column == 5));
      }
    }
  }
}

TEST_CASE("two runs give the same bits, in whatever order threads and blocks run") {
  std::vector<Case> cases;
  AddCases("sums", BatchNormBackward(kF32, 2050, 40), cases);
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

TEST_CASE("only what can be copied into shared memory, and fits there, is held") {
  CHECK_FALSE(HeldSchedules(ColumnSoftmax(kBf16, 2, 1000, 24)).empty());
  CHECK(HeldSchedules(ColumnSoftmax(kBf16, 2, 100'000, 24)).empty());
  ScheduleLimits limits = kSmallDevice;
  limits.cluster_blocks = 1;  // a device without clusters
  for (const Schedule& s : HeldSchedules(ColumnSoftmax(kBf16, 2, 1000, 24), limits)) {
    CHECK(s.cluster == 1);
  }
  CHECK(HeldSchedules(ColumnSoftmax(kBf16, 2, 4000, 24), limits).empty());
  limits.staged_bytes = 0;
  CHECK(HeldSchedules(ColumnSoftmax(kBf16, 2, 1000, 24), limits).empty());
  for (const Schedule& s : HeldSchedules(QuantisedColumns(kBf16, kF8, 2, 1040, 24))) {
    const KernelIr ir = QuantisedColumns(kBf16, kF8, 2, 1040, 24);
    const KernelProfile profile = ProfileKernel(ir, Classify(ir));
    const KernelTemplate& t = TemplateOf(s);
    INFO(s.Print());
    CHECK(t.staged_bytes(ir, profile, s) + SharedBytes(ir, profile, s, 0) <= 64 << 10);
  }
}

TEST_CASE("kernels that hold columns compile for sm_90 without spills, and for gfx90a") {
  const std::vector<KernelIr> irs = {
      QuantisedColumns(kBf16, kF8, 16, 8192, 5120), QuantisedColumns(kBf16, kBf16, 8, 2048, 1408),
      BatchNormBackward(kBf16, 6272, 256), ColumnSoftmax(kF32, 2, 1000, 300)};
  const auto kernels = [&](const ScheduleLimits& limits, Dialect dialect) {
    std::vector<GroupKernels> all;
    for (const KernelIr& ir : irs) {
      for (const Schedule& s : HeldSchedules(ir, limits)) {
        all.push_back(EmitGroup({.ir = ir, .schedule = s}, dialect));
      }
    }
    return DistinctKernels(all);
  };
  const auto device = LoadDeviceSpec("h200");
  REQUIRE(device.ok());
  if (CudaCompilerAvailable().ok()) {
    const std::vector<Kernel> cuda = kernels(ScheduleLimitsOf(*device), Dialect::kCuda);
    const auto object = CompileKernels(Dialect::kCuda, cuda, "sm_90");
    INFO(object.status());
    REQUIRE(object.ok());
    CHECK(object->kernels.size() == cuda.size());
    for (const KernelResources& r : object->kernels) CHECK(r.spill_bytes == 0);
    INFO(object->log);
    CHECK_FALSE(absl::StrContains(object->log, "warning"));
  }
  if (HipCompilerAvailable().ok()) {
    ScheduleLimits alone = kSmallDevice;
    alone.warp = 64;
    alone.cluster_blocks = 1;
    const auto object = CompileKernels(Dialect::kHip, kernels(alone, Dialect::kHip), "gfx90a");
    INFO(object.status());
    CHECK(object.ok());
  }
}

// x times a number, quantised by columns of each group.
BackwardGraph Quantiser(int64_t groups, int64_t rows, int64_t columns, bool turned) {
  const std::string shape = absl::StrCat("[", groups, ",", rows, ",", columns, "]");
  auto graph =
      ParseGraph(absl::StrCat("%0 = input name=\"x\" kind=saved alignment=16  bf16", shape, R"(
%1 = input name="dy" kind=tangent alignment=16  bf16[]
%2 = expand %1 shape=)",
                              shape, R"(
%3 = mul %2 %0
%4 = abs %3
%5 = amax %4 axes=[1] keep=1
%6 = cast %5 dtype=f32
%7 = full dtype=f32 shape=[] value=1e-12
%8 = maximum %6 %7
%9 = full dtype=f32 shape=[] value=448.0
%10 = div %9 %8
%11 = floor_pow2 %10
%12 = cast %3 dtype=f32
%13 = mul %12 %11
%14 = cast %13 dtype=f8e4m3
%15 = permute %14 perm=[0,2,1]
output %)",
                              turned ? 15 : 14, R"( name="eighth"
output %11 name="scales"
)"));
  INFO(graph.status());
  REQUIRE(graph.ok());
  return *std::move(graph);
}

std::vector<Schedule> SchedulesOf(const BackwardGraph& graph, const std::string& spec,
                                  const PlanOptions& options = {}) {
  const auto device = LoadDeviceSpec(spec);
  REQUIRE(device.ok());
  const auto planned = PlanFusion(graph, *device, options);
  INFO(planned.status());
  REQUIRE(planned.ok());
  CHECK(planned->plan.Verify(planned->graph).ToString() == "OK");
  std::vector<Schedule> schedules;
  for (const Group& group : planned->plan.groups) {
    for (const KernelBody* body : KernelsOf(group)) schedules.push_back(body->schedule);
  }
  return schedules;
}

TEST_CASE(
    "the planner holds a quantiser's columns where they fit, and two kernels read them elsewhere") {
  for (const char* spec : {"h100", "h200"}) {
    for (bool turned : {true, false}) {
      INFO(spec << (turned ? ", stored by columns" : ", stored by rows"));
      const std::vector<Schedule> held = SchedulesOf(Quantiser(16, 8192, 5120, turned), spec);
      REQUIRE(held.size() == 1);
      CHECK(HoldsRows(held[0]));
      CHECK(held[0].cluster > 1);
      const std::vector<Schedule> small = SchedulesOf(Quantiser(8, 2048, 1408, turned), spec);
      REQUIRE(small.size() == 1);
      CHECK(HoldsRows(small[0]));
      const BackwardGraph tall = Quantiser(1, 1 << 18, 512, turned);
      CHECK(SchedulesOf(tall, spec).size() >= 2);
      for (const Schedule& s : SchedulesOf(tall, spec)) CHECK_FALSE(HoldsRows(s));
      const PlanOptions off{.disable = {"held_columns"}};
      for (const Schedule& s : SchedulesOf(Quantiser(16, 8192, 5120, turned), spec, off)) {
        CHECK(s.kind != Template::kHeldColumns);
      }
    }
  }
  for (const Schedule& s : SchedulesOf(Quantiser(16, 8192, 5120, true), "mi300x")) {
    CHECK(s.cluster == 1);
  }
}

}  // namespace
}  // namespace retrograd
