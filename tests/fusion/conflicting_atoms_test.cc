// Regions with products and scatters: what shares no kernel whatever else it holds, and that the
// search, which leaves it out and counts what passes between, finds the best plan all the same.
#include <cstdio>
#include <random>

#include "absl/strings/str_cat.h"
#include "fusion/lower/lower.h"
#include "fusion/planner/planning_context.h"
#include "fusion/search/region_search.h"
#include "graph/text/text.h"
#include "tests/catch.h"
#include "tests/support/plans/matmul_epilogues.h"
#include "tests/support/search/brute_force.h"

namespace retrograd {
namespace {

constexpr size_t kMostAtoms = 10;   // brute force looks at all their sets
constexpr size_t kMostBounded = 6;  // and here once for each of the sets

// Epilogues of all kinds, on a device on which the tensors of these graphs take as long as
// launches, or much longer.
DeviceSpec Device(uint32_t seed) {
  DeviceSpec device = EagerEpilogues({DType::kFp32}, /*most_reads=*/4);
  device.matmul_epilogues[0].pass_ppm = seed % 3 == 0 ? 1 : 400'000;
  device.launch_graph_ps /= 1 + seed % 200;
  device.margin_ps /= 1 + seed % 200;
  const int64_t slower = seed % 2 == 0 ? 1 + seed % 300 : 1000 * (1 + seed % 30);
  device.hbm_bytes_per_s /= slower;
  device.cache_bytes_per_s /= slower;
  if (slower >= 1000) {  // one SM has all of the bandwidth
    device.sms = 1;
    device.bytes_in_flight_per_sm = 256;
  }
  return device;
}

// Products, what is made of them and of saved tensors element by element, sums of both kinds, and
// sums over an index.
BackwardGraph ProductsAndScatters(uint32_t seed) {
  std::mt19937 random(seed);
  const int64_t m = 24 << random() % 3, n = 16 << random() % 3, k = 32;
  const auto input = [&](GraphBuilder& b, Shape shape) {
    return b.Input({DType::kFp32, std::move(shape)}, {.kind = InputKind::kSaved, .alignment = 16});
  };
  GraphBuilder b("products_and_scatters");
  std::vector<ValueId> made = {input(b, {m, n})};
  const ValueId index = b.Input({DType::kInt64, {m}}, {.kind = InputKind::kSaved});
  const auto any = [&] { return made[random() % made.size()]; };
  int outputs = 0;
  const auto output = [&](ValueId v) { b.Output(v, absl::StrCat("out", outputs++)); };
  for (int op = 0; op < 7; ++op) {
    switch (random() % 8) {
      case 0:
      case 1: made.push_back(b.MatMul(input(b, {m, k}), input(b, {k, n}))); break;
      case 2: output(b.Sum(any(), {0}, /*keep=*/false)); break;
      case 3: {
        const ValueId sum = b.Sum(any(), {1}, /*keep=*/true);
        made.push_back(b.Add(Op::mul, {sum, any()}));
        break;
      }
      case 4: {
        const ValueId zeros = b.Full(0, DType::kFp32, {12, n});
        output(b.Add(Op::index_add, {zeros, index, any()}, {{"axis", int64_t{0}}}));
        break;
      }
      default: made.push_back(b.Add(Op::mul, {any(), any()}));
    }
  }
  output(made.back());
  auto graph = b.Build();
  INFO(graph.status());
  REQUIRE(graph.ok());
  return *std::move(graph);
}

struct Found {
  int products = 0, scatters = 0;  // conflicts of either kind
  int compared = 0, fused = 0;
};

void CheckConflicts(const std::vector<Atom>& atoms, const GroupPricer& pricer, ExactSearch& prices,
                    Found& found) {
  const RegionMasks& masks = prices.masks();
  for (int i = 0; i < masks.size(); ++i) {
    if (masks.conflicts(i) == 0) continue;
    ++(pricer.epilogue_roots().In(atoms[i].ops).empty() ? found.scatters : found.products);
  }
  for (AtomMask set = 1; set <= masks.all(); ++set) {
    AtomMask conflicts = 0;
    ForEachBit(set, [&](int i) { conflicts |= masks.conflicts(i); });
    if ((set & conflicts) == 0 || masks.Closure(set) != set) continue;
    INFO("set " << set);
    CHECK_FALSE(prices.PriceOf(set).feasible);
  }
}

// By all sets that may be left behind a state of the search.
void CheckBounds(const GroupPricer& pricer, ExactSearch& prices) {
  const RegionMasks& masks = prices.masks();
  BruteForce brute_force(prices, pricer);
  for (AtomMask done = 0; done < masks.all(); ++done) {
    if ((masks.PredecessorsOf(done) & ~done) != 0) continue;
    const AtomMask left = masks.all() & ~done;
    INFO("left " << left);
    const std::optional<int64_t> least = brute_force.LeastCostAfter(done);
    CHECK((!least || masks.LeastPsOfAll(left) <= *least));
  }
}

TEST_CASE(
    "beside products and scatters no kernel holds atoms that conflict, no plan costs less than its "
    "bound, and the search finds what brute force finds") {
  Found found;
  for (uint32_t seed = 1; seed <= 3000; ++seed) {
    const BackwardGraph graph = ProductsAndScatters(seed);
    const DeviceSpec device = Device(seed);
    const auto lowered = Lower(graph, {.thin_matmuls = false, .device = &device});
    REQUIRE(lowered.ok());
    const auto context = PlanningContext::Make(*lowered, device, {});
    REQUIRE(context.ok());
    const GroupPricer& pricer = (*context)->pricer;
    for (const Region& region : (*context)->regions) {
      const std::vector<Atom> atoms = FindAtoms(region, pricer, /*contract=*/false);
      if (atoms.size() < 2 || atoms.size() > kMostAtoms) continue;
      INFO("seed " << seed << ", " << atoms.size() << " atoms\n" << Print(graph));
      PriceBook book(pricer);
      ExactSearch prices(atoms, book, {});
      CheckConflicts(atoms, pricer, prices, found);
      if (atoms.size() <= kMostBounded) CheckBounds(pricer, prices);
      const Partition best = RegionSearch(atoms, book, {}).Solve();
      REQUIRE(best.exact);
      CHECK(best.cost_ps == BruteForce(prices, pricer).LeastCost());
      ++found.compared;
      found.fused += best.parts.size() < atoms.size();
    }
  }
  CHECK(found.products > 400);
  CHECK(found.scatters > 400);
  CHECK(found.compared > 1000);
  CHECK(found.fused > 300);
  std::printf("%d conflicts of products, %d of scatters; %d regions, %d with fused kernels\n",
              found.products, found.scatters, found.compared, found.fused);
}

}  // namespace
}  // namespace retrograd
