// A kernel under each of some schedules, run on the host with every access checked, against the
// interpreter.
#ifndef RETROGRAD_TESTS_SUPPORT_KERNELS_SCHEDULE_CASES_H_
#define RETROGRAD_TESTS_SUPPORT_KERNELS_SCHEDULE_CASES_H_

#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "codegen/emit.h"
#include "codegen/translation_unit.h"
#include "runtime/host/host_module.h"
#include "tests/catch.h"
#include "tests/support/kernels/run_kernel.h"

namespace retrograd {

struct ScheduleCase {
  std::string name;
  KernelBody body;
  GroupKernels kernels;
};

inline void AddCases(const std::string& name, const KernelIr& ir,
                     const std::vector<Schedule>& schedules, std::vector<ScheduleCase>& cases) {
  INFO(name << "\n" << ir.Print());
  REQUIRE(ir.Verify().ToString() == "OK");
  for (const Schedule& schedule : schedules) {
    KernelBody body{.ir = ir, .schedule = schedule};
    GroupKernels kernels = EmitGroup(body, Dialect::kHost);
    cases.push_back(
        {absl::StrCat(name, ", ", schedule.Print()), std::move(body), std::move(kernels)});
  }
}

inline std::shared_ptr<HostModule> Compiled(const std::vector<ScheduleCase>& cases) {
  std::vector<GroupKernels> all;
  for (const ScheduleCase& c : cases) all.push_back(c.kernels);
  auto module = HostModule::Compile(DistinctKernels(all), {.check = true});
  INFO(module.status().ToString());
  REQUIRE(module.ok());
  return *std::move(module);
}

inline void RunAll(const std::vector<ScheduleCase>& cases, uint64_t seed) {
  const std::shared_ptr<HostModule> module = Compiled(cases);
  for (const ScheduleCase& c : cases) {
    const BufferValues before = RandomBuffers(c.body.ir, seed);
    auto after = RunKernels(*module, c.body, c.kernels, before, seed);
    std::string wrong =
        after.ok() ? CompareToInterpreter(c.body.ir, before, *after) : after.status().ToString();
    if (!wrong.empty()) absl::StrAppend(&wrong, "\n", PrintKernel(c.kernels.launches[0]));
    INFO(c.name << ", seed " << seed << "\n" << wrong);
    CHECK(wrong.empty());
  }
}

inline std::set<int> ClustersIn(const std::vector<ScheduleCase>& cases) {
  std::set<int> clusters;
  for (const ScheduleCase& c : cases) clusters.insert(c.body.schedule.cluster);
  return clusters;
}

}  // namespace retrograd

#endif  // RETROGRAD_TESTS_SUPPORT_KERNELS_SCHEDULE_CASES_H_
