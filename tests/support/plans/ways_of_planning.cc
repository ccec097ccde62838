#include "tests/support/plans/ways_of_planning.h"

#include "fusion/cost/limits.h"

namespace retrograd {

RunSetup CheckedSetup(uint32_t seed) {
  RunSetup setup;
  setup.host.compile.check = true;
  setup.host.seed = seed;
  setup.program.order_seed = seed;
  // Drawn graphs have hardly any other matmuls.
  if (seed % 2 == 0) setup.plan.disable.insert("thin_matmuls");
  return setup;
}

std::vector<Way> WaysOfPlanning(uint32_t seed) {
  std::vector<Way> ways;
  ways.push_back({"as planned", CheckedSetup(seed)});
  for (const Feature& f : kFeatures) {
    ways.push_back({"disable " + std::string(f.name), CheckedSetup(seed)});
    ways.back().setup.plan.disable.insert(std::string(f.name));
  }
  for (const Limit& l : kLimits) {
    ways.push_back({"tighten " + std::string(l.name), CheckedSetup(seed)});
    ways.back().setup.plan.tighten.insert(std::string(l.name));
  }
  for (int i = 0; i < 6; ++i) {
    ways.push_back({"random partition and schedules", CheckedSetup(seed)});
    ways.back().setup.plan.search.random_seed = seed * 31 + i + 1;
    ways.back().setup.plan.random_schedules = seed * 17 + i + 1;
  }
  ways.push_back({"three streams", CheckedSetup(seed)});
  ways.back().setup.compile.schedule.streams = 3;
  ways.push_back({"no memory reuse", CheckedSetup(seed)});
  ways.back().setup.compile.memory.reuse = false;
  ways.push_back({"mi300x, wavefronts of 64", CheckedSetup(seed)});
  ways.back().setup.device = "mi300x";
  ways.back().setup.host.compile.warp = 64;
  ways.push_back({"epilogues, wherever a kernel could be one", CheckedSetup(seed)});
  ways.back().setup.plan.disable.insert("thin_matmuls");
  ways.back().setup.spec = *LoadDeviceSpec("h200");
  ways.back().setup.spec->matmul_epilogues = {{.name = "any",
                                               .product_ppm = 1'000'000,
                                               .pass_ppm = 1,
                                               .max_reads = 40,
                                               .max_stores = 40,
                                               .dtypes = {DType::kFp64}}};
  ways.push_back(ways.back());
  ways.back().name = "epilogues, random partition and schedules";
  ways.back().setup.plan.search.random_seed = seed * 29 + 1;
  ways.back().setup.plan.random_schedules = seed * 19 + 1;
  return ways;
}

}  // namespace retrograd
