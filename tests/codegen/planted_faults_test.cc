// Every template of the emitters with every kind of planted fault, in the checking host build.
#include "tests/support/kernels/planted_faults.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "codegen/emit.h"
#include "codegen/translation_unit.h"
#include "runtime/host/host_module.h"
#include "tests/catch.h"
#include "tests/support/kernels/kernel_ir_examples.h"
#include "tests/support/kernels/kernels_from_text.h"
#include "tests/support/kernels/run_kernel.h"

namespace retrograd {
namespace {

constexpr ScheduleLimits kSmallDevice = {.warp = 32,
                                         .sms = 3,
                                         .shared_bytes = 48 << 10,
                                         .staged_bytes = 48 << 10,
                                         .shared_bytes_per_sm = 96 << 10,
                                         .cluster_blocks = 4,
                                         .row_cluster_blocks = 4};
const char* NameOf(PlantedFault fault) {
  switch (fault) {
    case PlantedFault::kRemovedBarrier: return "removed barrier";
    case PlantedFault::kOffByOneBound: return "bound off by one";
    case PlantedFault::kUninitialisedShared: return "uninitialised shared memory";
    case PlantedFault::kLaxWait: return "wait for copies too lax";
    case PlantedFault::kUnsentCopies: return "copies not sent off";
    case PlantedFault::kRemovedMeeting: return "removed barrier of a cluster";
  }
  return "";
}

// What any template may have, and what those that copy rows ahead may have, too.
constexpr PlantedFault kFaults[] = {PlantedFault::kRemovedBarrier, PlantedFault::kOffByOneBound,
                                    PlantedFault::kUninitialisedShared,
                                    PlantedFault::kRemovedMeeting};
constexpr PlantedFault kCopyFaults[] = {PlantedFault::kLaxWait, PlantedFault::kUnsentCopies};
// Of the schedules of an example with one template that have a place for a fault: how many.
constexpr int kSchedules = 3;

// A group of kernels, one of them with a fault.
struct Spoiled {
  std::string what, schedule;
  Template kind;
  PlantedFault fault;
  KernelBody body;
  GroupKernels kernels;
};

// The group with the n-th site of a launch spoiled, under a name of its own.
GroupKernels Spoil(GroupKernels group, size_t launch, PlantedFault fault, int n) {
  Kernel& kernel = group.launches[launch];
  const Kernel spoiled = KernelsFromText(Plant(PrintKernel(kernel), fault, n))[0];
  kernel.function = spoiled.function;
  kernel.threads_meet = spoiled.threads_meet;
  absl::StrAppend(&kernel.name, "_", static_cast<int>(fault), "_", n);
  return group;
}

std::vector<Spoiled> SpoiledKernels(absl::Span<const PlantedFault> faults) {
  std::vector<Spoiled> all;
  for (const KernelExample& example : KernelExamples(DType::kFp32)) {
    const Classification shape = Classify(example.ir);
    std::map<std::pair<Template, PlantedFault>, int> schedules;
    for (const Schedule& schedule : CandidateSchedules(example.ir, shape, kSmallDevice)) {
      const KernelBody body{.ir = example.ir, .schedule = schedule};
      const GroupKernels group = EmitGroup(body, Dialect::kHost);
      for (PlantedFault fault : faults) {
        int& seen = schedules[{schedule.kind, fault}];
        if (seen == kSchedules) continue;
        const size_t before = all.size();
        for (size_t launch = 0; launch < group.launches.size(); ++launch) {
          const std::string source = PrintKernel(group.launches[launch]);
          for (int n = 0; n < CountSites(source, fault); ++n) {
            const std::string name = absl::StrCat(example.name, ", ", schedule.Print());
            all.push_back({absl::StrCat(name, ", launch ", launch, ", ",
                                        DescribeSite(source, fault, n), "\n", source),
                           name, schedule.kind, fault, body, Spoil(group, launch, fault, n)});
          }
        }
        seen += all.size() > before;
      }
    }
  }
  return all;
}

TEST_CASE("a removed barrier, a bound off by one and an uninitialised read are caught everywhere") {
  const std::vector<Spoiled> all = SpoiledKernels(kFaults);
  std::vector<GroupKernels> kernels;
  for (const Spoiled& spoiled : all) kernels.push_back(spoiled.kernels);
  HostCompileOptions options;
  options.check = true;
  const auto module = HostModule::Compile(DistinctKernels(kernels), options);
  INFO(module.status().ToString());
  REQUIRE(module.ok());

  std::map<std::pair<Template, PlantedFault>, int> caught;
  std::map<std::string, int> caught_bounds;  // by kernel before it was spoiled
  for (const Spoiled& spoiled : all) {
    bool reported = false, wrong = false;
    for (uint64_t seed = 1; seed <= 3 && !reported; ++seed) {
      const BufferValues before = RandomBuffers(spoiled.body.ir, seed);
      const auto after = RunKernels(**module, spoiled.body, spoiled.kernels, before, seed);
      reported = !after.ok();
      wrong =
          wrong || (after.ok() && !CompareToInterpreter(spoiled.body.ir, before, *after).empty());
    }
    INFO(spoiled.what);
    switch (spoiled.fault) {
      case PlantedFault::kRemovedBarrier:
      case PlantedFault::kRemovedMeeting: CHECK(reported); break;
      case PlantedFault::kUninitialisedShared:
        // An array used for one sum after the other still holds the sum before.
        CHECK((reported || wrong));
        break;
      case PlantedFault::kOffByOneBound:
        // Some bounds are never met, such as 45 by rows that go in steps of 4; one guard is.
        caught_bounds[spoiled.schedule] += reported;
        break;
      default: FAIL("no fault of these");
    }
    caught[{spoiled.kind, spoiled.fault}] += reported;
  }
  for (const auto& [schedule, count] : caught_bounds) {
    INFO(schedule);
    CHECK(count > 0);
  }
  const auto expect = [&](Template kind, PlantedFault fault) {
    INFO("template " << Name(kind) << ", " << NameOf(fault));
    CHECK(caught[{kind, fault}] > 0);
  };
  expect(Template::kPointwise, PlantedFault::kOffByOneBound);
  expect(Template::kScatterAdd, PlantedFault::kOffByOneBound);
  for (Template kind : {Template::kRowReduction, Template::kColumnReduction, Template::kRowColumn,
                        Template::kTranspose, Template::kHeldColumns, Template::kHeldTiles}) {
    for (PlantedFault fault : kFaults) {
      if (fault != PlantedFault::kRemovedMeeting) expect(kind, fault);
    }
  }
  expect(Template::kHeldColumns, PlantedFault::kRemovedMeeting);
}

// The rows that are read hold poison until a wait has delivered them: results are wrong, whatever
// the order of threads.
TEST_CASE(
    "a wait for copies that is too lax, and copies that are never sent off, give wrong rows") {
  const std::vector<Spoiled> all = SpoiledKernels(kCopyFaults);
  std::vector<GroupKernels> kernels;
  for (const Spoiled& spoiled : all) kernels.push_back(spoiled.kernels);
  const auto module = HostModule::Compile(DistinctKernels(kernels), {});
  INFO(module.status().ToString());
  REQUIRE(module.ok());
  std::map<PlantedFault, int> planted;
  std::map<std::pair<std::string, PlantedFault>, bool> caught;  // by kernel before it was spoiled
  for (const Spoiled& spoiled : all) {
    const BufferValues before = RandomBuffers(spoiled.body.ir, 5);
    const auto after = RunKernels(**module, spoiled.body, spoiled.kernels, before, 5);
    INFO(spoiled.what);
    REQUIRE(after.status().ToString() == "OK");
    const bool wrong = !CompareToInterpreter(spoiled.body.ir, before, *after).empty();
    if (spoiled.fault == PlantedFault::kLaxWait) CHECK(wrong);
    // Of two places that send copies off the second may send none that is read.
    caught[{spoiled.schedule, spoiled.fault}] |= wrong;
    ++planted[spoiled.fault];
  }
  for (const auto& [kernel, any] : caught) {
    INFO(kernel.first << ", " << NameOf(kernel.second));
    CHECK(any);
  }
  for (PlantedFault fault : kCopyFaults) CHECK(planted[fault] >= kSchedules);
}

}  // namespace
}  // namespace retrograd
