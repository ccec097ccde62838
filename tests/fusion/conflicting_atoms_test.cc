// Regions with products and scatters: what shares no kernel whatever else it holds, and that the
// search, which leaves it out and counts what passes between, finds the best plan all the same.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <random>

#include "absl/strings/str_cat.h"
#include "fusion/cost/kernel_cost.h"
#include "fusion/lower/lower.h"
#include "fusion/planner/planning_context.h"
#include "fusion/search/recompute.h"
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
  // Pairs that conflict: with a product, of scatters, of a scatter and a fold.
  int products = 0, scatters = 0, folds = 0;
  int compared = 0, fused = 0;  // regions: all, and those whose best plan has fused kernels
};

bool Holds(const GroupPricer& pricer, const Atom& atom, Pattern pattern) {
  return std::any_of(atom.ops.begin(), atom.ops.end(),
                     [&](NodeId id) { return pricer.graph().pattern(id) == pattern; });
}

void CheckConflicts(const std::vector<Atom>& atoms, const GroupPricer& pricer, ExactSearch& prices,
                    Found& found) {
  const RegionMasks& masks = prices.masks();
  for (int i = 0; i < masks.size(); ++i) {
    ForEachBit(masks.conflicts(i), [&](int j) {
      const bool product = !pricer.epilogue_roots().In(atoms[i].ops).empty();
      const bool scatter = Holds(pricer, atoms[i], Pattern::kScatter);
      found.products += product;
      found.scatters += scatter && Holds(pricer, atoms[j], Pattern::kScatter);
      found.folds += scatter && Holds(pricer, atoms[j], Pattern::kReduction);
    });
  }
  for (AtomMask set = 1; set <= masks.all(); ++set) {
    AtomMask conflicts = 0;
    ForEachBit(set, [&](int i) { conflicts |= masks.conflicts(i); });
    INFO("set " << set);
    CHECK(masks.Conflict(set) == ((set & conflicts) != 0));
    if (!masks.Conflict(set) || masks.Closure(set) != set) continue;
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
  CHECK(found.scatters > 50);
  CHECK(found.folds > 100);
  CHECK(found.compared > 1000);
  CHECK(found.fused > 300);
  std::printf(
      "conflicts: %d with products, %d of scatters, %d of scatters and folds; %d regions, %d "
      "with fused kernels\n",
      found.products, found.scatters, found.folds, found.compared, found.fused);
}

// A region of a graph in which all computes together, each op an atom.
class OneRegion {
 public:
  explicit OneRegion(const BackwardGraph& graph)
      : device_(EagerEpilogues({DType::kFp32})),
        graph_(*Lower(graph, {.thin_matmuls = false, .device = &device_})),
        context_(*PlanningContext::Make(graph_, device_, {})),
        atoms_(FindAtoms(context_->regions.at(0), context_->pricer, /*contract=*/false)),
        book_(context_->pricer),
        search_(atoms_, book_, {}) {
    REQUIRE(context_->regions.size() == 1);
  }

  const GroupPricer& pricer() const { return context_->pricer; }
  const DeviceSpec& device() const { return device_; }
  const std::vector<Atom>& atoms() const { return atoms_; }
  PriceBook& book() { return book_; }
  ExactSearch& search() { return search_; }
  const RegionMasks& masks() const { return search_.masks(); }

 private:
  DeviceSpec device_;
  BackwardGraph graph_;
  std::unique_ptr<PlanningContext> context_;
  std::vector<Atom> atoms_;
  PriceBook book_;
  ExactSearch search_;
};

// A product, ops that follow it, and sums of these down columns.
BackwardGraph ProductAndSums(int sums) {
  constexpr int64_t m = 4096, n = 1024, k = 512;
  GraphBuilder b("product_and_sums");
  const auto input = [&](Shape shape) {
    return b.Input({DType::kFp32, std::move(shape)}, {.kind = InputKind::kSaved, .alignment = 16});
  };
  const ValueId made = b.Add(Op::mul, {b.MatMul(input({m, k}), input({k, n})), input({m, n})});
  b.Output(made, "made");
  for (int s = 0; s < sums; ++s) {
    b.Output(b.Sum(b.Add(Op::mul, {made, input({m, n})}), {0}, /*keep=*/false),
             absl::StrCat("sum", s));
  }
  return *b.Build();
}

TEST_CASE("what follows no product takes its time beside the product, not under it") {
  OneRegion region(ProductAndSums(1));
  const AtomMask all = region.masks().all();
  AtomMask product = 0;
  ForEachBit(all, [&](int i) {
    if (!region.pricer().epilogue_roots().In(region.atoms()[i].ops).empty()) product |= Bit(i);
  });
  REQUIRE(std::popcount(product) == 1);
  CHECK(region.masks().LeastPsOfAll(all) >=
        region.search().PriceOf(product).ps + LeastKernelPs(region.device()));
}

TEST_CASE("what a scatter and a fold of many positions read is read twice") {
  constexpr int64_t rows = 4096, columns = 64;
  GraphBuilder b("read_twice");
  const ValueId v = b.Input({DType::kFp32, {rows, columns}}, {.kind = InputKind::kSaved});
  const ValueId index = b.Input({DType::kInt64, {rows}}, {.kind = InputKind::kSaved});
  b.Output(b.Sum(v, {0}, /*keep=*/false), "sum");
  b.Output(b.Add(Op::index_add, {b.Full(0, DType::kFp32, {100, columns}), index, v},
                 {{"axis", int64_t{0}}}),
           "rows");
  OneRegion region(*b.Build());
  CHECK(region.masks().LeastBytes(region.masks().all()).all >= 2 * rows * columns * 4);
}

TEST_CASE("of what is computed again, a part of it may be read") {
  constexpr int64_t rows = 4096, some = 16, columns = 64;
  GraphBuilder b("read_in_part");
  const ValueId v = b.Input({DType::kFp32, {rows, columns}}, {.kind = InputKind::kSaved});
  const ValueId index = b.Input({DType::kInt64, {some}}, {.kind = InputKind::kSaved});
  const ValueId made = b.Add(Op::mul, {v, v});
  const ValueId part =
      b.Add(Op::slice, {made},
            {{"axis", int64_t{0}}, {"start", int64_t{0}}, {"stop", some}, {"step", int64_t{1}}});
  b.Output(b.Sum(made, {0}, /*keep=*/false), "sum");
  b.Output(b.Add(Op::index_add, {b.Full(0, DType::kFp32, {100, columns}), index, part},
                 {{"axis", int64_t{0}}}),
           "rows");
  OneRegion region(*b.Build());
  REQUIRE(region.atoms().size() == 3);
  const std::vector<Atom> again = Recomputed(region.atoms(), {0}, region.pricer());
  REQUIRE(again.size() == 2);
  const RegionMasks masks(again, region.pricer());
  CHECK(masks.Conflict(masks.all()));
  CHECK(masks.LeastBytes(masks.all()).all < (rows + 5 * some) * columns * 4 + 100 * columns * 8);
}

TEST_CASE("the search grows no set by what conflicts with it") {
  OneRegion region(ProductAndSums(4));
  REQUIRE(region.atoms().size() == 10);
  constexpr int64_t kSteps = 540;  // 575 with sets that no kernel is
  const Partition found =
      RegionSearch(region.atoms(), region.book(), {.limits = {.max_steps = kSteps}}).Solve();
  CHECK(found.exact);
}

}  // namespace
}  // namespace retrograd
