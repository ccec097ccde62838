// What `why` says is what planning under the other choice gives, and the flip that it names flips.
// RETROGRAD_WHY_PAIRS=200 asks about that many random pairs (default 60), and looks for a flip of
// each (by default of one in six).
#include "fusion/whatif/why.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <random>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "fusion/analysis/barrier_depths.h"
#include "fusion/kernel/build/build.h"
#include "fusion/whatif/counterfactuals.h"
#include "graph/passes/expand.h"
#include "graph/passes/rebatch.h"
#include "graph/passes/retype.h"
#include "graph/text/text.h"
#include "models/models.h"
#include "tests/catch.h"

namespace retrograd {
namespace {

constexpr uint32_t kSeed = 20261121;
constexpr const char* kGraphs[] = {"golf_tiny", "bert_tiny", "gpt2_tiny", "llama_tiny",
                                   "golf_gpt_34m_b32"};

int Pairs() {
  const char* wanted = std::getenv("RETROGRAD_WHY_PAIRS");
  return wanted == nullptr ? 60 : std::atoi(wanted);
}

// What is asked about a graph, and the plan as it stands.
struct Asked {
  BackwardGraph original;
  std::string device_text;
  DeviceSpec device;
  PlanOptions options;
  Planned planned;
};

// Without shared launches: kernels that share one are kernels all the same.
Asked Ask(const std::string& model, PlanOptions options = {}, bool share_launches = false) {
  Asked asked;
  auto graph = OpenGraph(model);
  INFO(graph.status());
  REQUIRE(graph.ok());
  asked.original = *std::move(graph);
  asked.device_text = *ReadDeviceSpec("h200");
  asked.device = *ParseDeviceSpec(asked.device_text, "h200");
  options.decisions = false;
  if (!share_launches) options.disable.insert("horizontal");
  asked.options = std::move(options);
  auto planned = PlanFusion(asked.original, asked.device, asked.options);
  INFO(planned.status());
  REQUIRE(planned.ok());
  asked.planned = *std::move(planned);
  return asked;
}

// Pairs of ops that share an edge or read one tensor, each once.
std::vector<std::pair<NodeId, NodeId>> Neighbours(const BackwardGraph& g) {
  std::vector<std::pair<NodeId, NodeId>> pairs;
  std::map<ValueId, std::vector<NodeId>> readers;
  for (uint32_t i = 0; i < g.num_nodes(); ++i) {
    const NodeId id{i};
    if (!Computes(g, id)) continue;
    for (ValueId v : StoredOperands(g, id)) {
      if (Computes(g, v.node) && v.node != id) pairs.push_back({v.node, id});
      for (NodeId other : readers[v]) {
        if (other != id) pairs.push_back({other, id});
      }
      readers[v].push_back(id);
    }
  }
  std::sort(pairs.begin(), pairs.end());
  pairs.erase(std::unique(pairs.begin(), pairs.end()), pairs.end());
  return pairs;
}

Why WhyOf(const Asked& asked, NodeId a, NodeId b) {
  auto why = ExplainWhy(asked.planned.graph, asked.device, asked.options, a, b,
                        asked.planned.memory_ps_per_mib);
  INFO(why.status());
  REQUIRE(why.ok());
  return *std::move(why);
}

// Planning with the two forced together or apart: its cost is the side's, or its error the side's.
void ConfirmSide(const Asked& asked, const Why& why, bool together) {
  const WhySide& side = together ? why.share : why.part;
  PlanOptions options = asked.options;
  options.pairs = {{why.a, why.b, together}};
  const auto planned = PlanFusion(asked.original, asked.device, options);
  if (side.feasible) {
    INFO(planned.status());
    REQUIRE(planned.ok());
    CHECK(planned->plan.summary.cost_ps - asked.planned.plan.summary.cost_ps ==
          side.cost_ps - why.planned_ps);
    if (why.share.feasible && why.part.feasible) {
      CHECK(planned->plan.summary.shared_launch_ps == side.shared_launch_ps);
    }
    CHECK((planned->plan.group_of[Index(why.a)] == planned->plan.group_of[Index(why.b)]) ==
          together);
    return;
  }
  REQUIRE_FALSE(planned.ok());
  INFO(planned.status());
  const std::string message(planned.status().message());
  if (side.limit == "search") {
    CHECK_THAT(message, ContainsSubstring("too large"));
  } else if (side.limit == "connection") {
    CHECK_THAT(message, ContainsSubstring("obeys all"));
  } else {
    CHECK_THAT(message, ContainsSubstring(side.limit + ": " + side.reason));
  }
}

void ConfirmNever(const Asked& asked, const Why& why) {
  PlanOptions options = asked.options;
  options.pairs = {{why.a, why.b, true}};
  const auto planned = PlanFusion(asked.original, asked.device, options);
  REQUIRE_FALSE(planned.ok());
  CHECK(std::string(planned.status().message()) == why.never);
}

FlipQuestion QuestionOf(const Asked& asked, const Why& why) {
  return {.original = asked.original,
          .lowered = asked.planned.graph,
          .device_text = asked.device_text,
          .options = asked.options,
          .a = why.a,
          .b = why.b,
          .together = why.together,
          .can_meet = why.never.empty()};
}

// The graph and the device that a flip's option names, asked again.
bool TogetherUnder(const Asked& asked, const Flip& flip) {
  BackwardGraph graph = asked.original;
  std::string text = asked.device_text;
  if (flip.name == "rows") {
    const bool more = flip.factor > 1;
    auto scaled = RescaleRows(*ExpandComposites(graph), more ? std::lround(flip.factor) : 1,
                              more ? 1 : std::lround(1 / flip.factor));
    REQUIRE(scaled.ok());
    graph = *std::move(scaled);
  } else if (flip.name == "dtype") {
    auto retyped =
        RetypeFloats(graph, absl::StrContains(flip.option, "bf16") ? DType::kBf16 : DType::kFp32);
    REQUIRE(retyped.ok());
    graph = *std::move(retyped);
  } else {
    const auto number = ParseDeviceNumber(flip.option.substr(std::string("--set ").size()));
    REQUIRE(number.ok());
    auto changed = WithDeviceNumbers(text, "h200", absl::MakeConstSpan(&*number, 1));
    REQUIRE(changed.ok());
    text = *std::move(changed);
  }
  const DeviceSpec device = *ParseDeviceSpec(text, "flipped");
  const LoweredGraph prepared = *LowerAndMerge(graph, device, asked.options);
  const auto why = ExplainWhy(prepared.graph, device, asked.options, flip.a, flip.b);
  INFO(why.status());
  REQUIRE(why.ok());
  return why->together;
}

TEST_CASE("what why says of random neighbours is what planning under either choice gives") {
  std::printf("seed %u, %d pairs\n", kSeed, Pairs());
  std::mt19937 random(kSeed);
  const int graphs = static_cast<int>(std::size(kGraphs));
  const int every = Pairs() >= 200 ? 1 : 4;
  std::map<std::string, int> seen;
  int64_t pair_number = 0;
  for (int i = 0; i < graphs; ++i) {
    const Asked asked = Ask(kGraphs[i]);
    const auto neighbours = Neighbours(asked.planned.graph);
    REQUIRE_FALSE(neighbours.empty());
    const int here = Pairs() / graphs + (i < Pairs() % graphs ? 1 : 0);
    for (int n = 0; n < here; ++n) {
      const auto [a, b] = neighbours[random() % neighbours.size()];
      INFO(kGraphs[i] << " %" << Index(a) << " %" << Index(b));
      const Why why = WhyOf(asked, a, b);
      CHECK_FALSE(why.decides.empty());
      ++seen["asked"];
      if (!why.never.empty()) {
        ++seen["can never meet"];
        ConfirmNever(asked, why);
      } else {
        ++seen[why.one_atom ? "one atom" : "two atoms"];
        ++seen[why.together ? "together" : "apart"];
        if (!why.share.feasible) ++seen["together infeasible: " + why.share.limit];
        ConfirmSide(asked, why, true);
        ConfirmSide(asked, why, false);
      }
      if (pair_number++ % every != 0) continue;
      const auto flips = FindFlips(QuestionOf(asked, why));
      INFO(flips.status());
      REQUIRE(flips.ok());
      ++seen[flips->flips.empty() ? "no flip" : "flip"];
      for (const Flip& flip : flips->flips) {
        INFO(flip.option);
        CHECK(TogetherUnder(asked, flip) != why.together);
        ++seen["flips applied"];
      }
    }
  }
  for (const auto& [what, times] : seen) std::printf("  %-40s %d\n", what.c_str(), times);
  CHECK(seen["asked"] == Pairs());
  CHECK(seen["one atom"] > 0);
  CHECK(seen["two atoms"] > 0);
  CHECK(seen["flips applied"] > 0);
}

TEST_CASE("why agrees with a forbidden pair about which plan is faster, shared launches included") {
  const Asked asked = Ask("golf_tiny", {}, /*share_launches=*/true);
  const BackwardGraph& graph = asked.planned.graph;
  // An accumulate and what is up to three ops before it.
  std::set<std::pair<NodeId, NodeId>> pairs;
  for (uint32_t i = 0; i < graph.num_nodes(); ++i) {
    if (graph.op(NodeId{i}) != Op::accumulate) continue;
    std::set<NodeId> before = {NodeId{i}};
    for (int step = 0; step < 3; ++step) {
      for (NodeId id : std::set<NodeId>(before)) {
        for (ValueId v : graph.operands(id)) before.insert(v.node);
      }
    }
    for (NodeId id : before) {
      if (id != NodeId{i} && Computes(graph, id)) pairs.insert({id, NodeId{i}});
    }
  }
  int differing = 0;
  constexpr int kEnough = 6;
  for (const auto& [a, b] : pairs) {
    if (differing == kEnough) break;
    const Why why = WhyOf(asked, a, b);
    if (!why.never.empty() || !why.share.feasible || !why.part.feasible) continue;
    const int64_t launches = why.share.shared_launch_ps - why.part.shared_launch_ps;
    if (launches == 0) continue;
    ++differing;
    const int64_t loss = why.share.cost_ps - why.part.cost_ps - launches;
    INFO("%" << Index(a) << " %" << Index(b) << ": " << why.decides);
    CHECK_THAT(why.decides,
               ContainsSubstring("with the launches that independent kernels share afterwards "
                                 "sharing " +
                                 std::string(loss > 0 ? "loses" : "saves")));
    PlanOptions options = asked.options;
    int64_t price[2] = {};
    for (const bool together : {false, true}) {
      options.pairs = {{why.a, why.b, together}};
      const auto planned = PlanFusion(asked.original, asked.device, options);
      REQUIRE(planned.ok());
      // The search minimises the cost, which has margins that the price has not.
      const PlanSummary& s = planned->plan.summary;
      price[together ? 1 : 0] = s.cost_ps - s.shared_launch_ps;
    }
    CHECK(price[1] - price[0] == loss);
  }
  CHECK(differing == kEnough);
}

TEST_CASE("under a memory ceiling why asks the search with the price that made the plan") {
  const Asked free = Ask("golf_tiny");
  const int64_t peak = free.planned.plan.summary.peak_bytes;
  PlanOptions options;
  options.max_memory_bytes = peak;
  const Asked asked = Ask("golf_tiny", options);
  CHECK(asked.planned.plan.summary.peak_bytes <= peak);
  const auto [a, b] = Neighbours(asked.planned.graph)[0];
  CHECK_FALSE(WhyOf(asked, a, b).decides.empty());
}

TEST_CASE("what cannot be asked is refused with a sentence") {
  const Asked asked = Ask("golf_tiny");
  const auto says = [&](uint32_t a, uint32_t b) {
    const auto why =
        ExplainWhy(asked.planned.graph, asked.device, asked.options, NodeId{a}, NodeId{b});
    return why.ok() ? "answered: " + why->never : std::string(why.status().message());
  };
  CHECK_THAT(says(3, 3), ContainsSubstring("%3 twice"));
  CHECK_THAT(says(0, 4000000000u), ContainsSubstring("%4000000000 does not exist"));
  CHECK_THAT(says(0, 1), ContainsSubstring("computes nothing"));
  PlanOptions unfused;
  unfused.disable.insert("fusion");
  const Asked apart = Ask("golf_tiny", unfused);
  for (const auto& [a, b] : Neighbours(apart.planned.graph)) {
    const Why why = WhyOf(apart, a, b);
    CHECK_FALSE(why.never.empty());
    CHECK_FALSE(why.together);
  }
}

TEST_CASE("numbers of a device are set by name, and those that make no device are refused") {
  const std::string text = *ReadDeviceSpec("h200");
  const auto with = [&](const char* setting) -> absl::StatusOr<DeviceSpec> {
    const auto number = ParseDeviceNumber(setting);
    if (!number.ok()) return number.status();
    const auto changed = WithDeviceNumbers(text, "h200", absl::MakeConstSpan(&*number, 1));
    if (!changed.ok()) return changed.status();
    return ParseDeviceSpec(*changed, "h200");
  };
  const auto registers = with("max_registers=128");
  REQUIRE(registers.ok());
  CHECK(registers->max_registers == 128);
  CHECK(registers->name == "h200 with max_registers=128");
  CHECK(with("launch_graph_us=2.5")->launch_graph_ps == 2'500'000);
  CHECK(with("hbm_bytes_per_s=4.41e12")->hbm_bytes_per_s == 4'410'000'000'000);
  CHECK_THAT(std::string(with("max_register=1").status().message()),
             ContainsSubstring("did you mean max_registers"));
  for (const char* wrong :
       {"", "=", "=3", "max_registers", "max_registers=", "max_registers=x", "max_registers=nan",
        "max_registers=1e400", "max_registers=-4", "max_registers=0", "max_registers=7", "warp=48",
        "name=3", "hbm_bytes_per_s=1e30"}) {
    INFO(wrong);
    CHECK_FALSE(with(wrong).ok());
  }
  const auto numbers = DeviceNumbers(text, "h200");
  REQUIRE(numbers.ok());
  CHECK(numbers->size() > 30);
}

}  // namespace
}  // namespace retrograd
