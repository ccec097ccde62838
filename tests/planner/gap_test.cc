// How far from optimal plans of real models are: regions that are not too large are searched until
// the best partition is proven, and the plan's search, which is bounded more tightly, finds its
// cost.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <set>
#include <string>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "fusion/analysis/region_signature.h"
#include "fusion/planner/planning_context.h"
#include "fusion/search/atoms/region_masks.h"
#include "fusion/search/region_plan.h"
#include "models/models.h"
#include "tests/catch.h"

namespace retrograd {
namespace {

// Up to either, a search with these limits has to be exact.
constexpr size_t kExactAtoms = 24;
constexpr int64_t kExactDownsets = 20'000;
constexpr SearchLimits kProofLimits = {
    .max_steps = 20'000'000, .max_steps_of_state = 20'000'000, .max_work = 20'000'000};

// Sets of atoms that hold what each of their members reads; at most `most` + 1 are counted.
int64_t CountDownsets(const std::vector<Atom>& atoms, int64_t most) {
  if (atoms.size() > 64) return most + 1;
  std::vector<uint64_t> needs(atoms.size(), 0), waiting = {0};
  for (size_t a = 0; a < atoms.size(); ++a) {
    for (int p : atoms[a].predecessors) needs[a] |= uint64_t{1} << p;
  }
  absl::flat_hash_set<uint64_t> seen = {0};
  while (!waiting.empty() && static_cast<int64_t>(seen.size()) <= most) {
    const uint64_t done = waiting.back();
    waiting.pop_back();
    for (size_t a = 0; a < atoms.size(); ++a) {
      const uint64_t next = done | uint64_t{1} << a;
      if (next != done && (needs[a] & ~done) == 0 && seen.insert(next).second)
        waiting.push_back(next);
    }
  }
  return std::min(static_cast<int64_t>(seen.size()), most + 1);
}

TEST_CASE("downsets of a chain, of atoms that nothing joins, and of a join are counted") {
  std::vector<Atom> atoms(5);
  CHECK(CountDownsets(atoms, 100) == 32);
  CHECK(CountDownsets(atoms, 10) == 11);
  atoms[4].predecessors = {0, 1, 2, 3};
  CHECK(CountDownsets(atoms, 100) == 17);
  for (int a = 1; a < 5; ++a) atoms[a].predecessors = {a - 1};
  CHECK(CountDownsets(atoms, 100) == 6);
}

// What is known of one model's regions.
struct Gaps {
  size_t largest = 0;                      // atoms
  int64_t most_downsets = 0, regions = 0;  // of distinct regions
  int64_t beyond = 0;                      // of them, regions that need not be exact
};

// Whether each part is: proofs are of partitions that are so (fusion/search/exact_search.h).
bool AreConnected(const Partition& partition, const RegionMasks& masks) {
  return std::all_of(partition.parts.begin(), partition.parts.end(), [&](const auto& part) {
    AtomMask all = 0;
    for (const int atom : part.atoms) all |= Bit(atom);
    AtomMask reached = Bit(part.atoms[0]);
    for (size_t turn = 0; turn < part.atoms.size(); ++turn) {
      for (const int atom : part.atoms) {
        if ((reached & Bit(atom)) != 0) reached |= masks.neighbours(atom) & all;
      }
    }
    return reached == all;
  });
}

// `solve` false: a gap of zero has shown already that every region was solved exactly.
Gaps CheckRegions(const BackwardGraph& graph, const DeviceSpec& spec, bool solve) {
  Gaps gaps;
  const absl::StatusOr<BackwardGraph> lowered = Lower(graph);
  REQUIRE(lowered.ok());
  const auto context = PlanningContext::Make(*lowered, spec, {});
  REQUIRE(context.ok());
  const PlanningContext& g = **context;
  std::set<std::string> seen;
  for (const Region& region : g.regions) {
    if (!seen.insert(RegionSignature(g.graph, g.consumers, region, g.pricer.numbers())).second)
      continue;
    // Recomputation solves the region again and again, each time with the same limits.
    RegionOptions options = RegionOptionsOf({}, g.limits);
    options.recompute = false;
    RegionPlanner planner(region, g.pricer, options);
    const size_t atoms = planner.atoms().size();
    const int64_t downsets = CountDownsets(planner.atoms(), kExactDownsets);
    ++gaps.regions;
    gaps.largest = std::max(gaps.largest, atoms);
    gaps.most_downsets = std::max(gaps.most_downsets, downsets);
    INFO("the region of %" << Index(region.ops[0]) << ": " << atoms << " atoms, " << downsets
                           << " downsets");
    const bool small = atoms <= kExactAtoms || downsets <= kExactDownsets;
    gaps.beyond += !small;
    if (!small || !solve) continue;
    // Its atoms may be others than those that it was planned with first.
    const RegionPlan solved = planner.Solve();
    const Partition& found = solved.partition;
    options.search.limits = kProofLimits;
    const Partition proven = RegionPlanner(region, g.pricer, options).Solve().partition;
    CHECK(proven.exact);
    if (AreConnected(found, RegionMasks(solved.atoms, g.pricer))) {
      CHECK(found.cost_ps == proven.cost_ps);
    } else {
      CHECK(found.cost_ps < proven.cost_ps);  // of connected parts none costs less
    }
  }
  return gaps;
}

TEST_CASE(
    "the gap of every model's plan is printed, and regions of up to 24 atoms or 20,000 downsets "
    "cost what an unbounded search proves") {
  const auto spec = LoadDeviceSpec("h200");
  REQUIRE(spec.ok());
  std::string table =
      "      gap ps        price ps  regions  atoms  downsets  beyond  model   (distinct regions; "
      "the "
      "largest numbers)\n";
  for (const Model& model : AllModels()) {
    INFO(model.name);
    const absl::StatusOr<BackwardGraph> graph = BuildModel(model.name);
    REQUIRE(graph.ok());
    const absl::StatusOr<Planned> planned = PlanFusion(*graph, *spec, {.decisions = false});
    INFO(planned.status());
    REQUIRE(planned.ok());
    const PlanSummary& s = planned->plan.summary;
    const Gaps gaps = CheckRegions(*graph, *spec, /*solve=*/s.gap_ps != 0);
    absl::StrAppend(&table, absl::StrFormat("%12d  %14d  %7d  %5d  %8d  %6d  %s\n", s.gap_ps,
                                            s.price_ps, gaps.regions, gaps.largest,
                                            gaps.most_downsets, gaps.beyond, model.name));
    CHECK(s.gap_ps >= 0);
    CHECK(s.gap_ps < s.price_ps);
  }
  std::printf("%s", table.c_str());
}

}  // namespace
}  // namespace retrograd
