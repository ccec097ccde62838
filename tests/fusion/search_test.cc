// The search: that its bounds are bounds, that exact means optimal.
// RETROGRAD_SEARCH_GRAPHS=10000 compares that many random graphs with brute force (default 1,000).
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <optional>

#include "absl/container/flat_hash_map.h"
#include "fusion/analysis/regions.h"
#include "fusion/cost/limits.h"
#include "fusion/lower/layouts/layouts.h"
#include "fusion/planner/planner.h"
#include "fusion/search/atoms/atoms.h"
#include "fusion/search/greedy_search.h"
#include "fusion/search/region_search.h"
#include "graph/text/text.h"
#include "models/models.h"
#include "tests/catch.h"
#include "tests/support/graphs/random_graph.h"
#include "tests/support/search/brute_force.h"

namespace retrograd {
namespace {

// In one region of a graph of 12 ops, of which lowering may make more.
constexpr size_t kMostAtoms = 24;

uint32_t RandomGraphs() {
  const char* wanted = std::getenv("RETROGRAD_SEARCH_GRAPHS");
  return wanted == nullptr ? 1000 : static_cast<uint32_t>(std::atoi(wanted));
}

// The regions of one lowered graph with what prices them.
class Regions {
 public:
  explicit Regions(const BackwardGraph& graph, const DeviceSpec& device = *LoadDeviceSpec("h200"))
      : device_(device),
        limits_(*Limits::Make(device_, {})),
        graph_(*Lower(graph)),
        layouts_(AssignLayouts(graph_).of),
        consumers_(graph_),
        pricer_(graph_, layouts_, consumers_, device_, limits_, {}),
        regions_(FindRegions(graph_, consumers_, std::vector<bool>(graph_.num_nodes()))) {}

  const GroupPricer& pricer() const { return pricer_; }
  const std::vector<Region>& regions() const { return regions_; }

 private:
  DeviceSpec device_;
  Limits limits_;
  BackwardGraph graph_;
  std::vector<Layout> layouts_;
  Consumers consumers_;
  GroupPricer pricer_;
  std::vector<Region> regions_;
};

// A device on which the small tensors of random graphs are large: they take longer than a launch,
// and some fit its cache alone but not together.
DeviceSpec SmallDevice(uint32_t seed) {
  DeviceSpec device = *LoadDeviceSpec("h200");
  device.launch_graph_ps /= 100;
  device.margin_ps /= 100;
  device.hbm_bytes_per_s /= 1000;
  device.cache_bytes_per_s /= 1000;
  device.cache_bytes = int64_t{1} << (8 + seed % 8);
  device.sms = 1;
  device.bytes_in_flight_per_sm = 256;
  return device;
}

TEST_CASE("the search finds what brute force over all legal partitions finds") {
  int compared = 0, fused = 0;
  std::vector<int> regions(kMostAtoms + 1);
  for (uint32_t seed = 1; seed <= RandomGraphs(); ++seed) {
    const BackwardGraph graph = RandomGraph(seed, {.max_ops = 12, .max_elements = 1 << 20});
    Regions all(graph, seed % 2 == 0 ? *LoadDeviceSpec("h200") : SmallDevice(seed / 2));
    for (const Region& region : all.regions()) {
      PriceBook book(all.pricer());
      const std::vector<Atom> atoms = FindAtoms(region, all.pricer(), /*contract=*/false);
      INFO("seed " << seed << ", " << atoms.size() << " atoms\n" << Print(graph));
      REQUIRE(atoms.size() <= kMostAtoms);
      ++regions[atoms.size()];
      const Partition found = RegionSearch(atoms, book, {}).Solve();
      ExactSearch prices(atoms, book, {});
      REQUIRE(found.exact);
      CHECK(found.cost_ps == BruteForce(prices, all.pricer()).LeastCost());
      compared += atoms.size() > 2;
      fused += found.parts.size() < atoms.size();
    }
  }
  std::printf("%u random graphs; regions of each number of atoms:", RandomGraphs());
  for (size_t n = 1; n < regions.size(); ++n) std::printf(" %zu: %d", n, regions[n]);
  std::printf("\n");
  CHECK(compared * 4 > static_cast<int>(RandomGraphs()));  // not all regions were trivial
  CHECK(fused > 0);
}

TEST_CASE(
    "under a constraint the search finds what brute force under it finds, or that there is none") {
  int kept_together = 0, kept_apart = 0, impossible = 0;
  for (uint32_t seed = 1; seed <= RandomGraphs() / 10; ++seed) {
    Regions all(RandomGraph(seed, {.max_ops = 12, .max_elements = 1 << 20}),
                seed % 2 == 0 ? *LoadDeviceSpec("h200") : SmallDevice(seed / 2));
    for (const Region& region : all.regions()) {
      PriceBook book(all.pricer());
      const std::vector<Atom> atoms = FindAtoms(region, all.pricer(), /*contract=*/false);
      if (atoms.size() < 2 || atoms.size() > 8) continue;
      RegionSearch search(atoms, book, {});
      ExactSearch prices(atoms, book, {});
      for (int a = 0; a < static_cast<int>(atoms.size()); ++a) {
        for (int b : atoms[a].neighbours) {
          if (b <= a) continue;
          for (const bool together : {true, false}) {
            const Constraint constraint{.a = a, .b = b, .together = together};
            const std::optional<int64_t> least =
                BruteForce(prices, all.pricer(), [&](AtomMask set) {
                  const bool has_a = set & Bit(a), has_b = set & Bit(b);
                  return together ? has_a == has_b : !(has_a && has_b);
                }).LeastCost();
            const Partition found = search.SolveWith({constraint});
            INFO("seed " << seed << ", atoms " << a << " and " << b
                         << (together ? " together" : " apart"));
            REQUIRE(found.exact);
            CHECK(found.parts.empty() == !least.has_value());
            if (!least) {
              ++impossible;
              continue;
            }
            CHECK(found.cost_ps == *least);
            ++(together ? kept_together : kept_apart);
          }
        }
      }
    }
  }
  CHECK(kept_together > 0);
  CHECK(kept_apart > 0);
  CHECK(impossible > 0);
}

TEST_CASE(
    "a set of atoms that must be separated is whole in no kernel, at the cost that brute force "
    "finds") {
  int dearer = 0;
  for (uint32_t seed = 1; seed <= RandomGraphs() / 4; ++seed) {
    Regions all(RandomGraph(seed, {.max_ops = 12, .max_elements = 1 << 20}),
                seed % 2 == 0 ? *LoadDeviceSpec("h200") : SmallDevice(seed / 2));
    for (const Region& region : all.regions()) {
      PriceBook book(all.pricer());
      const std::vector<Atom> atoms = FindAtoms(region, all.pricer(), /*contract=*/false);
      if (atoms.size() < 3 || atoms.size() > 8) continue;
      const AtomMask separated = AtomMask{7} << (seed % (atoms.size() - 2));
      RegionSearch search(atoms, book, {});
      ExactSearch prices(atoms, book, {});
      const auto apart = [&](AtomMask set) { return (set & separated) != separated; };
      const Partition found =
          search.SolveWith({}, ExactSearch::kNoBound, absl::MakeConstSpan(&separated, 1));
      INFO("seed " << seed << ", separated " << separated);
      REQUIRE(found.exact);
      CHECK(found.cost_ps == BruteForce(prices, all.pricer(), apart).LeastCost());
      dearer += found.cost_ps > search.Solve().cost_ps;
    }
  }
  CHECK(dearer > 0);
}

TEST_CASE(
    "a search that gives up has each atom once, costs no more than greedy merging, and mostly no "
    "more "
    "than the best") {
  int given_up = 0, best = 0;
  for (uint32_t seed = 1; seed <= RandomGraphs() / 4; ++seed) {
    Regions all(RandomGraph(seed, {.max_ops = 14, .max_elements = 1 << 20}),
                seed % 2 == 0 ? *LoadDeviceSpec("h200") : SmallDevice(seed / 2));
    for (const Region& region : all.regions()) {
      PriceBook book(all.pricer());
      const std::vector<Atom> atoms = FindAtoms(region, all.pricer(), /*contract=*/false);
      if (atoms.size() < 4 || atoms.size() > 10) continue;
      INFO("seed " << seed << ", " << atoms.size() << " atoms");
      const Partition found = RegionSearch(atoms, book, {.limits = {.max_steps = 1}}).Solve();
      const Partition greedy = RegionSearch(atoms, book, {.max_atoms = 0}).Solve();
      ExactSearch prices(atoms, book, {});
      const std::optional<int64_t> least = BruteForce(prices, all.pricer()).LeastCost();
      REQUIRE(least);
      REQUIRE(!found.parts.empty());
      CHECK(found.cost_ps <= greedy.cost_ps);
      std::vector<int> computed;
      for (const Partition::Part& part : found.parts) {
        computed.insert(computed.end(), part.atoms.begin(), part.atoms.end());
      }
      std::sort(computed.begin(), computed.end());
      REQUIRE(computed.size() == atoms.size());
      for (size_t a = 0; a < atoms.size(); ++a) CHECK(computed[a] == static_cast<int>(a));
      if (found.exact) continue;
      ++given_up;
      best += found.cost_ps <= *least;  // less: kernels whose atoms do not hang together
    }
  }
  CHECK(given_up > 0);
  CHECK(best >= given_up * 9 / 10);
}

TEST_CASE("a search of many atoms does the work that its limits allow, and no more") {
  int met = 0;
  for (uint32_t seed = 1; seed <= RandomGraphs() / 20; ++seed) {
    Regions all(RandomGraph(seed, {.max_ops = 80, .max_elements = 1 << 20}));
    for (const Region& region : all.regions()) {
      PriceBook book(all.pricer());
      const std::vector<Atom> atoms = FindAtoms(region, all.pricer(), /*contract=*/false);
      if (atoms.size() < 16 || atoms.size() > 40) continue;
      INFO("seed " << seed << ", " << atoms.size() << " atoms");
      const SearchLimits limits{.max_work = 500};
      ExactSearch search(atoms, book, limits);
      const Partition found = search.Solve();
      const int64_t kernels_of_one_step = static_cast<int64_t>(region.ops.size()) * 100;
      CHECK(search.work() <= limits.max_work + kernels_of_one_step);
      met += !found.exact;
    }
  }
  CHECK(met > 0);
}

TEST_CASE("no kernel is priced below what its bytes take at least") {
  int64_t priced = 0;
  for (uint32_t seed = 1; seed <= 400; ++seed) {
    Regions all(RandomGraph(seed, {.max_ops = 20}),
                seed % 2 == 0 ? *LoadDeviceSpec("h200") : SmallDevice(seed / 2));
    for (const Region& region : all.regions()) {
      PriceBook book(all.pricer());
      const std::vector<Atom> atoms = FindAtoms(region, all.pricer(), /*contract=*/false);
      if (atoms.size() > 12) continue;
      ExactSearch search(atoms, book, {});
      const RegionMasks& masks = search.masks();
      for (AtomMask set = 1; set <= masks.all(); ++set) {
        if (masks.Closure(set) != set || !Connected(masks, set)) continue;
        const GroupPrice& price = search.PriceOf(set);
        if (!price.feasible) continue;
        INFO("seed " << seed << ", set " << set);
        const int64_t least = masks.LeastPs(set);
        CHECK(least <= price.ps);
        CHECK(all.pricer().LeastPsOfAll(masks.LeastBytes(set)) <= least);
        ++priced;
      }
    }
  }
  CHECK(priced > 1000);
}

TEST_CASE(
    "merging wherever it is possible leaves fewer kernels than where it pays, and costs more") {
  int64_t kernels_where_it_pays = 0, kernels = 0, cost_where_it_pays = 0, cost = 0;
  for (const char* name : {"bert", "vit"}) {
    auto graph = BuildModel(name);
    REQUIRE(graph.status().ToString() == "OK");
    Regions all(*graph);
    for (size_t r = 0; r < all.regions().size() && r < 10; ++r) {
      INFO(name << ", region " << r);
      PriceBook book(all.pricer());
      const std::vector<Atom> atoms = FindAtoms(all.regions()[r], all.pricer(), /*contract=*/true);
      const Partition pays = MergeGreedily(atoms, all.pricer(), {});
      const Partition possible =
          RegionSearch(atoms, book, {.merge = CombineWhere::kPossible}).Solve();
      size_t members = 0;
      for (const Partition::Part& part : possible.parts) {
        CHECK(all.pricer().Evaluate(OpsOfAtoms(atoms, part.atoms)).feasible);
        members += part.atoms.size();
      }
      CHECK(members == atoms.size());
      kernels_where_it_pays += pays.parts.size();
      kernels += possible.parts.size();
      cost_where_it_pays += pays.cost_ps;
      cost += possible.cost_ps;
    }
  }
  CHECK(kernels < kernels_where_it_pays);
  CHECK(cost > cost_where_it_pays);
}

TEST_CASE("greedy merging with many partners for each atom tries those that save most") {
  GraphBuilder b("parts");
  constexpr int64_t kParts = 120, kRows = 1 << 16;
  const ValueId whole = b.Input({DType::kFp32, {kParts, kRows, 16}}, {.name = "whole"});
  const ValueId shared = b.Input({DType::kFp32, {1, kRows, 16}}, {.name = "shared"});
  for (int64_t i = 0; i < kParts; ++i) {
    const ValueId part =
        b.Add(Op::slice, {whole},
              {{"axis", int64_t{0}}, {"start", i}, {"stop", i + 1}, {"step", int64_t{1}}});
    const bool ends = i == 0 || i + 1 == kParts;
    b.Output(b.Add(Op::mul, {part, ends ? shared : part}), std::to_string(i));
  }
  Regions all(*b.Build());
  REQUIRE(all.regions().size() == 1);
  const std::vector<Atom> atoms = FindAtoms(all.regions()[0], all.pricer(), /*contract=*/true);
  REQUIRE(atoms.size() == kParts);
  REQUIRE(atoms[0].neighbours.size() == kParts - 1);
  const Partition merged = MergeGreedily(atoms, all.pricer(), {.max_ops = 4});
  CHECK(std::any_of(merged.parts.begin(), merged.parts.end(), [](const Partition::Part& part) {
    return part.atoms.front() == 0 && part.atoms.back() == kParts - 1;
  }));
}

TEST_CASE("greedy merging stops behind as many ops as it may price") {
  GraphBuilder b("readers");
  const ValueId x = b.Input({DType::kFp32, {1 << 22}}, {.name = "x"});
  for (int i = 0; i < 40; ++i) {
    b.Output(b.Add(Op::mul, {x, b.Full(i + 2, DType::kFp32)}), std::to_string(i));
  }
  Regions all(*b.Build());
  const std::vector<Atom> atoms = FindAtoms(all.regions()[0], all.pricer(), /*contract=*/true);
  REQUIRE(atoms.size() == 40);
  const Partition none = MergeGreedily(atoms, all.pricer(), {.max_priced_ops = 0});
  const Partition some = MergeGreedily(atoms, all.pricer(), {.max_priced_ops = 200});
  const Partition most = MergeGreedily(atoms, all.pricer(), {});
  INFO(some.parts.size() << " kernels, " << most.parts.size() << " without a bound");
  CHECK(none.parts.size() == 40);
  CHECK(some.cost_ps < none.cost_ps);
  CHECK(most.cost_ps < some.cost_ps);
}

}  // namespace
}  // namespace retrograd
