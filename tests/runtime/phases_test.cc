// Runs that are cut into phases: where, and that nothing is used when it is not there.
#include "runtime/memory/phases.h"

#include <cmath>
#include <set>

#include "graph/passes/retype.h"
#include "tests/catch.h"
#include "tests/support/graphs/random_graph.h"
#include "tests/support/plans/run_plan.h"

namespace retrograd {
namespace {

StreamSchedule Steps(int n) {
  StreamSchedule schedule;
  schedule.steps.resize(static_cast<size_t>(n));
  schedule.makespan_ps = 1'000'000;
  return schedule;
}

TEST_CASE("a run is cut where its peak gets less, as long as that is worth the time") {
  // Each of eight steps reads one input for the last time and writes one output.
  std::vector<Holding> callers;
  for (uint32_t s = 0; s < 8; ++s) {
    callers.push_back({100, 0, s});
    callers.push_back({100, s, 8});
  }
  const StreamSchedule schedule = Steps(8);
  CHECK(ChoosePhases(schedule, callers, {}, {.most = 1}) == std::vector<uint32_t>{0});
  // 1600 bytes as one phase, 900 as eight: 800, 100 less for each that is over, one that begins.
  CHECK(ChoosePhases(schedule, callers, {}, {.most = 8}).size() == 8);
  CHECK(ChoosePhases(schedule, callers, {}, {.most = 2}) == std::vector<uint32_t>{0, 4});
  // One more phase takes a tenth of the time; the second saves a quarter of the peak.
  CHECK(ChoosePhases(schedule, callers, {}, {.most = 8, .begin_ps = 100'000}).size() == 2);
  CHECK(ChoosePhases(schedule, callers, {}, {.most = 8, .begin_ps = 450'000}).size() == 1);
}

TEST_CASE("a run that holds little memory is cut where that costs as little") {
  std::vector<Holding> callers;
  for (uint32_t s = 0; s < 8; ++s) {
    callers.push_back({100, 0, s});
    callers.push_back({100, s, 8});
  }
  const auto phases = [&](int64_t begin_ps, int64_t scarce_bytes) {
    return ChoosePhases(Steps(8), callers, {},
                        {.most = 8, .begin_ps = begin_ps, .scarce_bytes = scarce_bytes})
        .size();
  };
  CHECK(phases(100'000, 1600) == 2);  // its peak is no less than that
  CHECK(phases(100'000, 16'000) == 1);
  CHECK(phases(10'000, 16'000) == 2);  // both a tenth
  CHECK(phases(0, 16'000'000) == 8);
}

TEST_CASE("a device says from where on memory is scarce") {
  const PhaseOptions h200 = PhaseOptionsOf(*LoadDeviceSpec("h200"), 8);
  CHECK(h200.most == 8);
  CHECK(h200.begin_ps > 0);
  CHECK(h200.scarce_bytes > 0);
}

TEST_CASE("storages of one phase share bytes, others do not") {
  // Two halves, and a value that lives through the border: 1910 bytes at once, 1510 and 1410 apart.
  const std::vector<Holding> inside = {{1000, 0, 1}, {1400, 2, 3}, {10, 1, 2}};
  const std::vector<Holding> inputs = {{500, 0, 1}};
  CHECK(ChoosePhases(Steps(4), inputs, inside, {.most = 4}) == std::vector<uint32_t>{0, 2});
  CHECK(ChoosePhases(Steps(1), inputs, {}, {.most = 4}) == std::vector<uint32_t>{0});
  CHECK(ChoosePhases(Steps(0), {}, {}, {.most = 4}) == std::vector<uint32_t>{0});
}

TEST_CASE("a run in phases gives the same bits, though all that it needs no longer is gone") {
  std::set<uint32_t> numbers;
  for (uint64_t seed = 1; seed <= 25; ++seed) {
    auto graph = RetypeToFloat64(RandomGraph(seed, {.max_ops = 40, .contractions = seed % 2 == 0}));
    REQUIRE(graph.ok());
    INFO("seed " << seed);
    const std::vector<Values> inputs = RandomInputs(*graph, seed);
    RunSetup setup;
    if (seed % 4 < 2) setup.plan.disable.insert("thin_matmuls");
    setup.compile.schedule.streams = seed % 3 == 0 ? 3 : 1;
    setup.program.order_seed = seed;
    const auto whole = RunOnHost(*graph, inputs, setup);
    setup.compile.memory.phases.most = 6;
    const auto at_once = RunOnHost(*graph, inputs, setup);
    setup.in_phases = true;
    const auto phased = RunOnHost(*graph, inputs, setup);
    INFO(phased.status());
    REQUIRE((whole.ok() && at_once.ok() && phased.ok()));
    numbers.insert(phased->phases);
    for (size_t o = 0; o < whole->outputs.size(); ++o) {
      INFO("output " << o);
      for (size_t i = 0; i < whole->outputs[o].size(); ++i) {
        const double want = whole->outputs[o][i];
        const bool same = (std::isnan(want) && std::isnan(phased->outputs[o][i]) &&
                           std::isnan(at_once->outputs[o][i])) ||
                          (want == phased->outputs[o][i] && want == at_once->outputs[o][i]);
        REQUIRE(same);
      }
    }
  }
  CHECK(*numbers.rbegin() > 2);
}

}  // namespace
}  // namespace retrograd
