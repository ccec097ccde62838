// Rows of points in shared memory: every schedule that stages them, run on the host with each
// access checked, against the interpreter.
#include "fusion/kernel/ir/accesses/point_rows.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "codegen/emit.h"
#include "codegen/translation_unit.h"
#include "fusion/cost/kernel_cost.h"
#include "fusion/kernel/templates/kernel_template.h"
#include "runtime/host/host_module.h"
#include "tests/catch.h"
#include "tests/support/kernels/rows_of_points.h"
#include "tests/support/kernels/run_kernel.h"

namespace retrograd {
namespace {

constexpr ScheduleLimits kSmallDevice = {
    .warp = 32, .sms = 3, .shared_bytes = 48 << 10, .staged_bytes = 48 << 10};

struct Case {
  std::string name;
  KernelBody body;
  GroupKernels kernels;
};

std::vector<Schedule> StagedSchedules(const KernelIr& ir) {
  std::vector<Schedule> staged;
  for (const Schedule& s : CandidateSchedules(ir, Classify(ir), kSmallDevice)) {
    if (StagesPoints(s)) staged.push_back(s);
  }
  return staged;
}

void AddCases(const std::string& name, const KernelIr& ir, std::vector<Case>& cases) {
  INFO(name << "\n" << ir.Print());
  REQUIRE(ir.Verify().ToString() == "OK");
  for (const Schedule& schedule : StagedSchedules(ir)) {
    KernelBody body{.ir = ir, .schedule = schedule};
    GroupKernels kernels = EmitGroup(body, Dialect::kHost);
    CHECK(absl::StrContains(PrintKernel(kernels.launches[0]), "RG_COPIES_WAIT(0)"));
    cases.push_back(
        {absl::StrCat(name, ", ", schedule.Print()), std::move(body), std::move(kernels)});
  }
}

void RunAll(const std::vector<Case>& cases) {
  std::vector<GroupKernels> all;
  for (const Case& c : cases) all.push_back(c.kernels);
  auto module = HostModule::Compile(DistinctKernels(all), {.check = true});
  INFO(module.status().ToString());
  REQUIRE(module.ok());
  for (const Case& c : cases) {
    const uint64_t seed = 31;
    const BufferValues before = RandomBuffers(c.body.ir, seed);
    auto after = RunKernels(**module, c.body, c.kernels, before, seed);
    std::string wrong =
        after.ok() ? CompareToInterpreter(c.body.ir, before, *after) : after.status().ToString();
    if (!wrong.empty()) absl::StrAppend(&wrong, "\n", PrintKernel(c.kernels.launches[0]));
    INFO(c.name << ", seed " << seed << "\n" << wrong);
    CHECK(wrong.empty());
  }
}

std::string NameOf(const RowShape& r) {
  return absl::StrCat("pitch ", r.pitch, ", from ", r.first, ", ", r.width, " wide, each ", r.step,
                      ", aligned to ", r.alignment);
}

std::vector<RowShape> Shapes(int64_t element_bytes) {
  std::vector<RowShape> shapes;
  for (int64_t pitch : {2, 3, 4, 5, 8, 9, 16, 17, 24, 81}) {
    for (int64_t first : {int64_t{0}, int64_t{1}, pitch / 2}) {
      for (int64_t width : {pitch - first, pitch, (pitch - first + 1) / 2}) {
        if (width < 2) continue;
        shapes.push_back({.pitch = pitch, .first = first, .width = width});
      }
    }
    shapes.push_back({.pitch = pitch, .width = pitch, .step = 3, .alignment = element_bytes});
    shapes.push_back({.pitch = pitch, .first = 1, .width = pitch - 1, .alignment = 8});
  }
  return shapes;
}

TEST_CASE("rows of any pitch, part and alignment are staged, whatever the number of points") {
  const DType dtype = GENERATE(DType::kFp32, DType::kBf16, DType::kFp64, DType::kFp8E4M3);
  std::vector<Case> cases;
  const std::vector<int64_t> points = {2, 63, 64, 65, 257, 1000};
  size_t n = 0;
  for (const RowShape& shape : Shapes(SizeBytes(dtype))) {
    if (shape.width < 2 || shape.alignment < SizeBytes(dtype)) continue;
    const int64_t number = points[n++ % points.size()];
    AddCases(absl::StrCat(number, " points, ", NameOf(shape)),
             RowsOfPoints(dtype, {number}, {shape}), cases);
  }
  CHECK(cases.size() > 150);
  RunAll(cases);
}

TEST_CASE("several tensors are staged in one kernel, over several axes, others beside them") {
  const DType dtype = GENERATE(DType::kFp32, DType::kFp16);
  const std::vector<RowShape> rows = {{.pitch = 9, .width = 9},
                                      {.pitch = 16, .first = 3, .width = 7},
                                      {.pitch = 3, .width = 3, .alignment = SizeBytes(dtype)}};
  std::vector<Case> cases;
  for (const std::vector<int64_t>& extents :
       {std::vector<int64_t>{37, 5}, std::vector<int64_t>{3, 11, 4}, std::vector<int64_t>{130}}) {
    const KernelIr ir = RowsOfPoints(dtype, extents, rows);
    CHECK(PointRowsOf(ir).size() == 3);
    AddCases(absl::StrCat(extents.size(), " axes"), ir, cases);
  }
  CHECK(cases.size() == 9);
  RunAll(cases);
}

TEST_CASE("rows that would not be worth a copy are read where they lie") {
  const auto staged = [](const std::vector<int64_t>& extents, const RowShape& row) {
    return !StagedSchedules(RowsOfPoints(DType::kFp32, extents, {row})).empty();
  };
  CHECK(staged({500}, {.pitch = 81, .width = 81}));
  CHECK_FALSE(staged({1}, {.pitch = 81, .width = 81}));                // one point
  CHECK_FALSE(staged({500}, {.pitch = 81, .width = 1}));               // one element
  CHECK_FALSE(staged({500}, {.pitch = 81, .width = 81, .step = 20}));  // far apart
  CHECK_FALSE(staged({500}, {.pitch = 1, .width = 2}));                // neighbours' rows
}

TEST_CASE("the same element of neighbouring rows lies in different banks") {
  for (DType dtype : {DType::kFp32, DType::kBf16, DType::kFp64}) {
    for (int64_t pitch : {2, 3, 8, 16, 31, 32, 64, 81, 121, 128}) {
      const KernelIr ir = RowsOfPoints(dtype, {256}, {{.pitch = pitch, .width = pitch}});
      const PointRows rows = PointRowsOf(ir).at(0);
      const int64_t size = SizeBytes(dtype);
      std::vector<int64_t> at_bank(32, 0);
      for (int64_t t = 0; t < 32; ++t) ++at_bank[t * rows.stride * size / 4 % 32];
      INFO(Name(dtype) << ", pitch " << pitch << ", stride " << rows.stride);
      CHECK(*std::max_element(at_bank.begin(), at_bank.end()) <= 2);
      CHECK(rows.stride >= rows.width);
    }
  }
}

TEST_CASE(
    "wide rows are priced near the bandwidth where they are staged, and far from it where not") {
  const DeviceSpec device = *LoadDeviceSpec("h200");
  const KernelIr ir = RowsOfPoints(DType::kFp32, {100'000}, {{.pitch = 81, .width = 81}});
  const KernelProfile profile = ProfileKernel(ir, Classify(ir));
  const KernelPricer pricer(ir, profile, device);
  const Price direct = pricer.Of({.blocks = 391});
  const Price staged = pricer.Of({.threads = 128, .staged = 1, .blocks = 782});
  const int64_t floor_ps =
      TransferPs(staged.read_bytes + staged.written_bytes, device.hbm_bytes_per_s);
  CHECK(staged.ps < 3 * floor_ps);
  CHECK(direct.ps > 3 * staged.ps);
  CHECK(staged.footprint.shared_bytes == 128 * 81 * 4);
}

}  // namespace
}  // namespace retrograd
