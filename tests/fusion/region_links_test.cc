// What the rehearsal of placement refuses, no kernel computes.
#include <random>

#include "fusion/planner/planning_context.h"
#include "fusion/search/atoms/may_share_kernel.h"
#include "fusion/search/recompute.h"
#include "models/models.h"
#include "tests/catch.h"
#include "tests/support/graphs/random_graph.h"

namespace retrograd {
namespace {

struct Counts {
  int64_t refused = 0, missed = 0, no_epilogues = 0;
};

// Draws a set of up to 12 atoms that hang together.
AtomMask Draw(const RegionMasks& masks, std::mt19937& rng) {
  AtomMask set = Bit(static_cast<int>(rng() % masks.size()));
  for (uint32_t i = rng() % 12; i-- > 0;) {
    AtomMask rim = 0;
    ForEachBit(set, [&](int a) { rim |= masks.neighbours(a) & ~set; });
    if (rim == 0) break;
    for (uint32_t skip = rng() % std::popcount(rim); skip-- > 0;) rim &= rim - 1;
    set |= rim & -rim;
  }
  return masks.Closure(set);
}

void Compare(const std::vector<Atom>& atoms, const GroupPricer& pricer, int draws,
             std::mt19937& rng, Counts& counts) {
  if (atoms.size() < 2 || atoms.size() > kMaxMaskedAtoms) return;
  const RegionMasks masks(atoms, pricer);
  RegionLinks links(atoms, pricer);
  for (int i = 0; i < draws; ++i) {
    const AtomMask set = Draw(masks, rng);
    if ((set & (set - 1)) == 0) continue;
    std::vector<int> members;
    ForEachBit(set, [&](int a) { members.push_back(a); });
    const bool epilogues = masks.MayBeEpilogues(set);
    const bool may = epilogues && links.MayShareKernel(set);
    const GroupPrice price = pricer.Evaluate(OpsOfAtoms(atoms, members));
    if (!epilogues) {
      CHECK(price.limit == "epilogue");
      ++counts.no_epilogues;
    }
    if (!may) {
      INFO("atoms " << std::hex << set);
      REQUIRE(!price.feasible);
      ++counts.refused;
    } else if (price.limit == "iteration_space") {
      ++counts.missed;
    }
  }
}

// Sets of atoms of each region, with and without two atoms recomputed.
Counts CompareRegions(const BackwardGraph& graph, bool contract, int draws, uint32_t seed) {
  std::mt19937 rng(seed);
  Counts counts;
  const DeviceSpec device = *LoadDeviceSpec("h200");
  const BackwardGraph lowered = *Lower(graph);
  const auto context = *PlanningContext::Make(lowered, device, {}, 0);
  for (const Region& region : context->regions) {
    const std::vector<Atom> atoms = FindAtoms(region, context->pricer, contract);
    Compare(atoms, context->pricer, draws, rng, counts);
    std::vector<int> pointwise;
    for (size_t a = 0; a < atoms.size() && pointwise.size() < 2; ++a) {
      const bool all = std::all_of(atoms[a].ops.begin(), atoms[a].ops.end(), [&](NodeId id) {
        return lowered.pattern(id) == Pattern::kPointwise;
      });
      if (all) pointwise.push_back(static_cast<int>(a));
    }
    if (pointwise.empty()) continue;
    Compare(Recomputed(atoms, pointwise, context->pricer), context->pricer, draws, rng, counts);
  }
  return counts;
}

TEST_CASE("no kernel computes what the rehearsal refuses, in random graphs") {
  Counts all;
  for (uint32_t seed = 1; seed <= 300; ++seed) {
    INFO("seed " << seed);
    const Counts counts = CompareRegions(
        RandomGraph(seed, {.max_ops = 30, .max_elements = 1 << 20}), seed % 2 == 0, 40, seed);
    all.refused += counts.refused;
    all.missed += counts.missed;
  }
  CHECK(all.refused > 1000);
  CHECK(all.missed * 10 < all.refused);  // what has no iteration space and is not told
}

TEST_CASE("no kernel computes what the rehearsal refuses, in captured graphs") {
  for (const char* name : {"golf_gpt_34m_b32", "bert_tiny", "golf_tiny"}) {
    INFO(name);
    const Counts counts = CompareRegions(*OpenGraph(name), true, 60, 7);
    CHECK(counts.refused > counts.missed);
    if (std::string_view(name) == "golf_gpt_34m_b32") CHECK(counts.no_epilogues > 100);
  }
}

}  // namespace
}  // namespace retrograd
