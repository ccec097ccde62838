// Rows that the blocks of a cluster share: every schedule that does so, run on the host with each
// access checked, against the interpreter; and when there are none.
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "codegen/emit.h"
#include "codegen/translation_unit.h"
#include "fusion/cost/kernel_cost.h"
#include "fusion/device/device_numbers.h"
#include "fusion/kernel/ir/accesses/vector_grid.h"
#include "fusion/kernel/ir/scale.h"
#include "fusion/kernel/templates/kernel_template.h"
#include "fusion/kernel/templates/row_walks.h"
#include "runtime/compiler/rtc.h"
#include "runtime/host/host_module.h"
#include "tests/catch.h"
#include "tests/support/kernels/kernel_ir_examples.h"
#include "tests/support/kernels/odd_rows.h"
#include "tests/support/kernels/run_kernel.h"
#include "tests/support/kernels/schedule_cases.h"
#include "tests/support/kernels/wide_rows.h"

namespace retrograd {
namespace {

constexpr DType kBf16 = DType::kBf16, kF32 = DType::kFp32;

constexpr ScheduleLimits kSmallDevice = {.warp = 32,
                                         .sms = 8,
                                         .shared_bytes = 48 << 10,
                                         .staged_bytes = 128 << 10,
                                         .shared_bytes_per_sm = 128 << 10,
                                         .cluster_blocks = 8,
                                         .row_cluster_blocks = 8};

using Case = ScheduleCase;

std::vector<Schedule> SharedSchedules(const KernelIr& ir,
                                      const ScheduleLimits& limits = kSmallDevice) {
  std::vector<Schedule> shared;
  for (const Schedule& s : CandidateSchedules(ir, Classify(ir), limits)) {
    if (s.cluster > 1) shared.push_back(s);
  }
  return shared;
}

// The device's limits, with clusters of up to 8 blocks that share rows.
ScheduleLimits Sharing(const DeviceSpec& device) {
  ScheduleLimits limits = ScheduleLimitsOf(device);
  limits.row_cluster_blocks = 8;
  return limits;
}

void AddCases(const std::string& name, const KernelIr& ir, std::vector<Case>& cases) {
  AddCases(name, ir, SharedSchedules(ir), cases);
}

void RunAll(const std::vector<Case>& cases) { RunAll(cases, /*seed=*/31); }

TEST_CASE("rows of any length are shared by clusters of any size") {
  std::vector<Case> cases;
  for (int64_t columns : {4096, 8200, 9001, 20'003}) {
    AddCases(absl::StrCat("two rounds of ", columns), TwoRounds(kBf16, columns), cases);
  }
  AddCases("fp32", TwoRounds(kF32, 5003), cases);
  AddCases("fp64", TwoRounds(DType::kFp64, 4100), cases);
  CHECK(ClustersIn(cases) == std::set<int>{2, 4, 8});
  int with_ends = 0;
  for (const Case& c : cases) with_ends += HasEnds(c.body.ir, c.body.schedule.vector_width);
  CHECK(with_ends > 5);
  RunAll(cases);
}

TEST_CASE("rounds that follow from each other have meetings of their own") {
  std::vector<Case> cases;
  AddCases("softmax", WideSoftmax(kBf16, 2, 14'408), cases);
  AddCases("softmax, odd", WideSoftmax(kF32, 2, 4111), cases);
  CHECK(ClustersIn(cases) == std::set<int>{2, 4, 8});
  RunAll(cases);
}

TEST_CASE("clusters that walk rows keep the sums of their columns, with rows ahead and without") {
  std::vector<Case> cases;
  for (int64_t columns : {2056, 5632, 9000}) {
    AddCases(absl::StrCat("norm of ", columns), WideNorm(kBf16, 37, columns), cases);
  }
  AddCases("norm of long rows", WideNorm(kBf16, 5, 20'000), cases);
  AddCases("norm of fp32", WideNorm(kF32, 21, 3080), cases);
  AddCases("fewer rows than clusters", WideNorm(kBf16, 3, 4104), cases);
  CHECK(ClustersIn(cases) == std::set<int>{2, 4, 8});
  std::set<bool> staged, looped;
  for (const Case& c : cases) {
    staged.insert(StagesAhead(c.body.schedule));
    looped.insert(LoopsOverRows(c.body.schedule, Classify(c.body.ir).shape.rows));
  }
  CHECK(staged.size() == 2);
  CHECK(looped.size() == 2);
  RunAll(cases);
}

TEST_CASE("two runs of clusters that share rows give the same bits in any order of threads") {
  std::vector<Case> cases;
  AddCases("norm", WideNorm(kF32, 37, 2056), cases);
  AddCases("rows", TwoRounds(kF32, 4100), cases);
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

TEST_CASE("no device is taken to share rows unless its spec says so") {
  for (const auto& [name, blocks] : {std::pair("h100", 8), std::pair("h200", 8),
                                     std::pair("mi250x", 1), std::pair("mi300x", 1)}) {
    const auto device = LoadDeviceSpec(name);
    REQUIRE(device.ok());
    CHECK(ScheduleLimitsOf(*device).row_cluster_blocks == blocks);
  }
  const std::vector<DeviceNumber> numbers = {{"row_cluster_blocks", 4}};
  const auto text = WithDeviceNumbers(*ReadDeviceSpec("h200"), "h200", numbers);
  REQUIRE(text.ok());
  CHECK(ScheduleLimitsOf(*ParseDeviceSpec(*text, "test")).row_cluster_blocks == 4);
}

TEST_CASE("short rows, and devices without clusters, have no shared rows") {
  CHECK(SharedSchedules(TwoRounds(kBf16, 1000)).empty());
  CHECK_FALSE(SharedSchedules(TwoRounds(kBf16, 8192)).empty());
  ScheduleLimits alone = kSmallDevice;
  alone.row_cluster_blocks = 1;
  CHECK(SharedSchedules(TwoRounds(kBf16, 8192), alone).empty());
  CHECK(SharedSchedules(WideNorm(kBf16, 37, 5632), alone).empty());
  ScheduleLimits forgetful = kSmallDevice;
  forgetful.persistent = false;  // what is shared is kept
  CHECK(SharedSchedules(TwoRounds(kBf16, 8192), forgetful).empty());
}

TEST_CASE(
    "no block of a cluster is without columns, and all have the shared memory that they use") {
  for (const KernelIr& ir : {TwoRounds(kBf16, 9001), WideNorm(kBf16, 37, 5632)}) {
    const KernelProfile profile = ProfileKernel(ir, Classify(ir));
    for (const Schedule& s : SharedSchedules(ir)) {
      INFO(s.Print());
      CHECK((s.cluster - 1) * s.threads * s.vector_width < profile.shape.shape.columns);
      CHECK(s.blocks % s.cluster == 0);
      const Kernel kernel = EmitGroup({.ir = ir, .schedule = s}, Dialect::kCuda).launches[0];
      CHECK(kernel.cluster == s.cluster);
      CHECK(SharedBytes(ir, profile, s, 0) <= kSmallDevice.shared_bytes);
    }
  }
}

TEST_CASE("a thread is taken to have registers for what it keeps of its row") {
  const auto device = LoadDeviceSpec("h200");
  REQUIRE(device.ok());
  const KernelIr ir = TwoRounds(kBf16, 40'000);
  const KernelProfile profile = ProfileKernel(ir, Classify(ir));
  int kept = 0;
  for (const Schedule& s : CandidateSchedules(ir, Classify(ir), Sharing(*device))) {
    if (!s.persistent || s.vector_width == 1) continue;
    const Footprint f = PredictFootprint(ir, profile, s, *device);
    INFO(s.Print());
    // dy is read in both stages: a word for two elements, beside some for the work on one.
    CHECK(f.registers_wanted >= ElementsOfRow(profile, s) * s.rows_per_thread / 2 + 4);
    ++kept;
  }
  CHECK(kept > 5);
}

TEST_CASE("clusters that walk rows all run at once, with SMs to spare") {
  const auto device = LoadDeviceSpec("h200");
  REQUIRE(device.ok());
  const KernelIr ir = WideNorm(kBf16, 4096, 16'384);
  int walks = 0;
  for (const Schedule& s : SharedSchedules(ir, Sharing(*device))) {
    INFO(s.Print());
    CHECK(s.split * s.cluster == s.blocks);
    const int64_t waves = CeilDiv(s.blocks, device->sms);
    const int64_t spare = s.cluster == 2 ? 0 : 2 * s.cluster;
    CHECK(s.blocks <= (device->sms - spare) * waves);
    ++walks;
  }
  CHECK(walks > 5);
  CHECK(SmsForClusters(132, 1) == 132);
  CHECK(SmsForClusters(132, 8) == 116);
  CHECK(SmsForClusters(4, 8) == 8);  // one cluster at least
}

TEST_CASE("each round of a shared row costs an exchange") {
  auto device = LoadDeviceSpec("h200");
  REQUIRE(device.ok());
  const KernelIr ir = TwoRounds(kBf16, 50'257);
  const KernelProfile profile = ProfileKernel(ir, Classify(ir));
  for (const Schedule& s : SharedSchedules(ir, Sharing(*device))) {
    INFO(s.Print());
    DeviceSpec slow = *device;
    slow.cluster_exchange_ps += 1'000'000;
    CHECK(KernelPricer(ir, profile, slow).Of(s).ps >=
          KernelPricer(ir, profile, *device).Of(s).ps + 1'000'000);
  }
}

TEST_CASE("kernels of shared rows compile for sm_90") {
  if (!CudaCompilerAvailable().ok()) return;
  const auto device = LoadDeviceSpec("h200");
  REQUIRE(device.ok());
  std::vector<GroupKernels> all;
  for (const KernelIr& ir : {TwoRounds(kBf16, 50'257), WideSoftmax(kF32, 4, 8192),
                             WideNorm(kBf16, 4096, 5632), TwoRounds(DType::kFp64, 8192)}) {
    for (const Schedule& s : SharedSchedules(ir, Sharing(*device))) {
      all.push_back(EmitGroup({.ir = ir, .schedule = s}, Dialect::kCuda));
    }
  }
  CHECK(all.size() > 20);
  const auto object = CompileKernels(Dialect::kCuda, DistinctKernels(all), "sm_90");
  INFO(object.status());
  REQUIRE(object.ok());
}

}  // namespace
}  // namespace retrograd
