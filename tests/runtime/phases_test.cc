// Runs that are cut into phases: where, and that nothing is used when it is not there.
#include "runtime/memory/phases.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
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

// Bytes held in the worst phase, step by step: of the arena what its blocks take, each as much as
// its storages do at their worst step.
int64_t PeakOf(const std::vector<uint32_t>& cuts, const std::vector<Holding>& callers,
               const std::vector<Holding>& inside, uint32_t steps) {
  const auto phase_of = [&](uint32_t step) {
    size_t phase = 0;
    while (phase + 1 < cuts.size() && cuts[phase + 1] <= std::min(step, steps - 1)) ++phase;
    return phase;
  };
  int64_t peak = 0;
  for (size_t phase = 0; phase < cuts.size(); ++phase) {
    const auto lives = [&](const Holding& h) {
      return phase_of(h.first) <= phase && phase <= phase_of(h.last);
    };
    int64_t held = 0;
    for (const Holding& h : callers) held += lives(h) ? h.bytes : 0;
    std::map<std::pair<size_t, size_t>, int64_t> blocks;
    for (uint32_t step = 0; step < steps; ++step) {
      std::map<std::pair<size_t, size_t>, int64_t> alive;
      for (const Holding& h : inside) {
        if (!lives(h) || step < h.first || h.last < step) continue;
        int64_t& block = blocks[{phase_of(h.first), phase_of(h.last)}];
        block = std::max(block, alive[{phase_of(h.first), phase_of(h.last)}] += h.bytes);
      }
    }
    for (const auto& [phases, bytes] : blocks) held += bytes;
    peak = std::max(peak, held);
  }
  return peak;
}

TEST_CASE("no cut of a random run is worth nothing") {
  const uint32_t seed = Catch::rngSeed() + 1;
  std::mt19937 rng(seed);
  size_t cuts = 0;
  for (int tried = 0; tried < 200; ++tried) {
    const uint32_t steps = 2 + rng() % 30;
    std::vector<Holding> callers, inside;
    for (uint32_t i = rng() % 20; i-- > 0;) {
      const uint32_t step = rng() % steps;
      const int64_t bytes = rng() % 1000;
      callers.push_back(rng() % 2 == 0 ? Holding{bytes, 0, step} : Holding{bytes, step, steps});
    }
    for (uint32_t i = rng() % 40; i-- > 0;) {
      const uint32_t first = rng() % steps;
      inside.push_back({static_cast<int64_t>(rng() % 1000), first,
                        std::min(steps - 1, first + static_cast<uint32_t>(rng() % 6))});
    }
    const PhaseOptions options{.most = 8, .begin_ps = static_cast<int64_t>(rng() % 30'000)};
    const std::vector<uint32_t> chosen =
        ChoosePhases(Steps(static_cast<int>(steps)), callers, inside, options);
    const auto whole = static_cast<double>(PeakOf({0}, callers, inside, steps));
    const auto price = [&](const std::vector<uint32_t>& at) {
      return static_cast<double>(PeakOf(at, callers, inside, steps)) / std::max(whole, 1.0) +
             static_cast<double>(options.begin_ps) * 1e-6 * static_cast<double>(at.size() - 1);
    };
    INFO("seed " << seed << ", try " << tried);
    for (size_t c = 1; c < chosen.size(); ++c) {
      std::vector<uint32_t> fewer = chosen;
      fewer.erase(fewer.begin() + static_cast<int64_t>(c));
      CHECK(price(chosen) < price(fewer) + 1e-9);
      ++cuts;
    }
    CHECK(price(chosen) <= price({0}) + 1e-9);
  }
  CHECK(cuts > 100);
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
