// The memory of a plan step by step, against a count of the values alive, and what a ceiling
// admits.
#include "fusion/plan/peak_memory.h"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "fusion/kernel/build/build.h"
#include "fusion/planner/planner.h"
#include "graph/text/text.h"
#include "models/models.h"
#include "tests/catch.h"
#include "tests/support/graphs/random_graph.h"

namespace retrograd {
namespace {

using Catch::Matchers::Contains;

DeviceSpec H200() {
  auto spec = LoadDeviceSpec("h200");
  REQUIRE(spec.ok());
  return *spec;
}

absl::StatusOr<Planned> PlanBelow(const BackwardGraph& graph, int64_t bytes) {
  PlanOptions options;
  options.decisions = false;
  options.max_memory_bytes = bytes;
  return PlanFusion(graph, H200(), options);
}

Planned PlanOf(const BackwardGraph& graph) {
  auto planned = PlanBelow(graph, 0);
  INFO(planned.status());
  REQUIRE(planned.ok());
  return *std::move(planned);
}

BackwardGraph Model(const std::string& name) {
  auto graph = BuildModel(name);
  INFO(graph.status());
  REQUIRE(graph.ok());
  return *std::move(graph);
}

// While a group runs: what was there before, its outputs and its workspace, less what outputs may
// lie on. By sets of live values, made anew at each group.
std::vector<int64_t> LiveBytesBySets(const BackwardGraph& g, const FusionPlan& plan) {
  std::set<ValueId> kept, live, read_later;
  for (uint32_t i = 0; i < g.num_nodes(); ++i) {
    const Node& node = g.node(NodeId{i});
    if (node.op != Op::input) continue;
    live.insert({NodeId{i}, 0});
    if (!node.input->donated) kept.insert({NodeId{i}, 0});
  }
  for (const GraphOutput& out : g.outputs()) {
    if (out.value) kept.insert(BehindViews(g, *out.value));
  }
  const auto bytes_of = [&](ValueId v) {
    const TensorType& type = g.type(v);
    return SpanElements(type.shape, plan.layouts[g.value_index(v)].strides) * SizeBytes(type.dtype);
  };
  std::vector<int64_t> by_group;
  for (size_t i = 0; i < plan.groups.size(); ++i) {
    const Group& group = plan.groups[i];
    std::set<ValueId> later = kept;
    for (size_t j = i + 1; j < plan.groups.size(); ++j) {
      later.insert(plan.groups[j].inputs.begin(), plan.groups[j].inputs.end());
    }
    std::set<ValueId> reused, reusing;
    int64_t bytes = group.workspace_bytes;
    for (const Group::InPlace& pair : group.in_place) {
      if (later.contains(pair.input) || reused.contains(pair.input) ||
          reusing.contains(pair.output)) {
        continue;
      }
      reused.insert(pair.input);
      reusing.insert(pair.output);
      bytes -= std::min(bytes_of(pair.input), bytes_of(pair.output));
    }
    live.insert(group.outputs.begin(), group.outputs.end());
    for (ValueId v : live) bytes += bytes_of(v);
    by_group.push_back(bytes);
    std::erase_if(live, [&](ValueId v) {
      const bool input = g.op(v.node) == Op::input;
      const bool here = std::binary_search(group.inputs.begin(), group.inputs.end(), v) ||
                        std::binary_search(group.outputs.begin(), group.outputs.end(), v);
      return !later.contains(v) && (here || !input);
    });
  }
  return by_group;
}

bool PlacesJoins(const FusionPlan& plan) {
  return std::any_of(plan.groups.begin(), plan.groups.end(),
                     [](const Group& group) { return AliasOf(group) != nullptr; });
}

TEST_CASE("the memory of each step is that of the values alive, its outputs and its workspace") {
  int compared = 0, workspaces = 0, in_place = 0;
  const auto compare = [&](const BackwardGraph& graph) {
    const Planned planned = PlanOf(graph);
    if (PlacesJoins(planned.plan)) return;  // parts lie in their whole
    const std::vector<int64_t> wanted = LiveBytesBySets(planned.graph, planned.plan);
    CHECK(LiveBytes(planned.graph, planned.plan) == wanted);
    CHECK(PeakBytes(planned.graph, planned.plan) == planned.plan.summary.peak_bytes);
    if (!wanted.empty()) {
      CHECK(planned.plan.summary.peak_bytes >= *std::max_element(wanted.begin(), wanted.end()));
    }
    ++compared;
    for (const Group& group : planned.plan.groups) {
      workspaces += group.workspace_bytes > 0;
      in_place += !group.in_place.empty();
    }
  };
  for (const char* model : {"golf_tiny", "mlp:tokens=512,layers=4,hidden=512",
                            "norm_stack:layers=3,rows=4096,columns=1024",
                            "transformer:layers=2,d=256,heads=4,tokens=512"}) {
    INFO(model);
    compare(Model(model));
  }
  for (uint32_t seed = 0; seed < 60; ++seed) {
    INFO("random graph " << seed);
    compare(RandomGraph(seed));
  }
  CHECK(compared > 30);
  CHECK(workspaces > 0);
  CHECK(in_place > 0);
}

// An input of 4 KiB whose memory may or may not be given up, and two steps.
TEST_CASE("donated inputs die with their last reader, all others stay to the end") {
  for (const bool donated : {false, true}) {
    GraphBuilder builder("donated");
    const ValueId x =
        builder.Input({DType::kFp32, {1024}}, {.name = "x", .alignment = 256, .donated = donated});
    const ValueId total = builder.Sum(x, {0});
    const ValueId later = builder.Add(Op::exp, {builder.Expand(total, {1024})});
    builder.Output(later, "y");
    auto graph = builder.Build();
    INFO(graph.status());
    REQUIRE(graph.ok());
    PlanOptions options;
    options.disable = {"fusion"};
    const auto planned = PlanFusion(*graph, H200(), options);
    REQUIRE(planned.ok());
    const std::vector<int64_t> live = LiveBytes(planned->graph, planned->plan);
    REQUIRE(live.size() == 2);
    CHECK(live[0] == 4096 + 4 + planned->plan.groups[0].workspace_bytes);
    CHECK(live[1] == (donated ? 0 : 4096) + 4 + 4096);
  }
}

// The number behind "the least was".
int64_t LeastIn(absl::string_view message) {
  const std::pair<std::string, std::string> parts = absl::StrSplit(message, "the least was ");
  int64_t least = 0;
  REQUIRE(absl::SimpleAtoi(parts.second.substr(0, parts.second.find(',')), &least));
  return least;
}

TEST_CASE("no plan takes a byte more than its ceiling, and a ceiling that none obeys is refused") {
  int lower = 0, refused = 0;
  for (const char* model : {"golf_tiny", "mlp:tokens=2048,layers=4,hidden=1024",
                            "transformer:layers=2,d=256,heads=4,tokens=512",
                            "norm_stack:layers=4,rows=8192,columns=1024"}) {
    INFO(model);
    const BackwardGraph graph = Model(model);
    const int64_t peak = PlanOf(graph).plan.summary.peak_bytes;
    const auto same = PlanBelow(graph, peak);
    REQUIRE(same.ok());
    CHECK(same->plan.summary.peak_bytes == peak);
    // One byte less, again and again, to where there is no plan.
    int64_t ceiling = peak - 1;
    for (int i = 0; i < 6; ++i) {
      const auto below = PlanBelow(graph, ceiling);
      if (!below.ok()) {
        CHECK(absl::IsResourceExhausted(below.status()));
        CHECK_THAT(std::string(below.status().message()), Contains(absl::StrCat(ceiling)));
        CHECK(LeastIn(below.status().message()) == ceiling + 1);
        ++refused;
        break;
      }
      CHECK(below->plan.summary.peak_bytes <= ceiling);
      CHECK(PeakBytes(below->graph, below->plan) == below->plan.summary.peak_bytes);
      ceiling = below->plan.summary.peak_bytes - 1;
      ++lower;
    }
  }
  std::printf("  %d lower plans, %d refusals\n", lower, refused);
  CHECK(lower > 0);
  CHECK(refused > 0);
}

}  // namespace
}  // namespace retrograd
