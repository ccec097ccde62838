#include "tests/support/plans/random_plan.h"

#include <algorithm>
#include <random>

#include "fusion/kernel/build/build.h"
#include "graph/base/status.h"
#include "tests/support/plans/calls.h"

namespace retrograd {
namespace {

class Draw {
 public:
  explicit Draw(uint64_t seed) : engine_(seed) {}
  int Below(int n) { return static_cast<int>(engine_() % static_cast<uint64_t>(n)); }
  bool Percent(int percent) { return Below(100) < percent; }

 private:
  std::mt19937_64 engine_;
};

BackwardGraph MakeGraph(Draw* draw, int ops) {
  GraphBuilder builder("random");
  constexpr int64_t kColumns[] = {1, 7, 64, 1000, 4096};
  std::vector<ValueId> values;
  for (int i = 0; i < 4; ++i) {
    InputInfo info{.name = "x", .alignment = 256, .donated = draw->Percent(50)};
    values.push_back(builder.Input({DType::kFp32, {2, kColumns[draw->Below(5)]}}, info));
  }
  for (int i = 0; i < ops; ++i) {
    const int recent = std::max<int>(0, static_cast<int>(values.size()) - 12);
    const ValueId a = values[recent + draw->Below(static_cast<int>(values.size()) - recent)];
    if (draw->Percent(15)) {
      values.push_back(
          builder.Add(Op::sum, {a}, {{"axes", std::vector<int64_t>{1}}, {"keep", int64_t{1}}}));
      continue;
    }
    ValueId b = values[recent + draw->Below(static_cast<int>(values.size()) - recent)];
    const int64_t ca = builder.type(a).shape[1], cb = builder.type(b).shape[1];
    if (ca != cb && ca != 1 && cb != 1) b = a;
    values.push_back(builder.Add(Op::mul, {a, b}));
  }
  for (int i = 0; i < 6; ++i) {
    const ValueId v = values[draw->Below(static_cast<int>(values.size()))];
    std::vector<int64_t> strides;
    if (draw->Percent(30)) strides = {1, 2};
    builder.Output(v, "g", strides);
    if (draw->Percent(30)) builder.Output(v, "twice");
    if (draw->Percent(10)) builder.AbsentOutput("none");
  }
  auto graph = builder.Build();
  RG_CHECK(graph.ok());
  return *std::move(graph);
}

bool IsOutput(const BackwardGraph& graph, ValueId v) {
  for (const GraphOutput& output : graph.outputs()) {
    if (output.value == v) return true;
  }
  return false;
}

}  // namespace

FusionPlan OneGroupPerOp(const BackwardGraph& graph) {
  FusionPlan plan;
  plan.device = "test";
  plan.group_of.assign(graph.num_nodes(), kNoGroup);
  plan.layouts.resize(graph.num_values());
  for (uint32_t n = 0; n < graph.num_nodes(); ++n) {
    const NodeId id{n};
    for (uint32_t r = 0; r < graph.node(id).results.size(); ++r) {
      const ValueId v{id, r};
      plan.layouts[graph.value_index(v)].strides = DenseStrides(graph.type(v).shape);
    }
    if (graph.pattern(id) == Pattern::kView) continue;
    if (graph.pattern(id) == Pattern::kInput) {
      const std::vector<int64_t>& strides = graph.node(id).input->strides;
      if (!strides.empty()) plan.layouts[graph.value_index({id, 0})].strides = strides;
      continue;
    }
    Group group{.nodes = {id}, .price_ps = 1'000'000};
    for (ValueId v : graph.operands(id)) group.inputs.push_back(BehindViews(graph, v));
    std::sort(group.inputs.begin(), group.inputs.end());
    group.inputs.erase(std::unique(group.inputs.begin(), group.inputs.end()), group.inputs.end());
    for (uint32_t r = 0; r < graph.node(id).results.size(); ++r) group.outputs.push_back({id, r});
    plan.group_of[n] = GroupId{static_cast<uint32_t>(plan.groups.size())};
    plan.groups.push_back(std::move(group));
  }
  return plan;
}

RandomPlan MakeRandomPlan(uint64_t seed, const RandomPlanOptions& options) {
  Draw draw(seed);
  RandomPlan random{MakeGraph(&draw, options.ops), {}};
  const BackwardGraph& graph = random.graph;
  random.plan = OneGroupPerOp(graph);
  for (Group& group : random.plan.groups) {
    group.price_ps = 1000 + draw.Below(100000);
    if (draw.Percent(20)) group.workspace_bytes = 1 + draw.Below(10000);
    KernelBody body;
    body.schedule.blocks = draw.Percent(options.full_percent) ? 1000 : 8;
    group.body = LaunchOf(body);
    const ValueId out = group.outputs[0];
    for (ValueId in : group.inputs) {
      if (graph.type(in) != graph.type(out)) continue;
      group.in_place.push_back({in, out});
      const bool sole_use = graph.uses(in.node).size() == 1 && !IsOutput(graph, in) &&
                            graph.pattern(in.node) != Pattern::kInput;
      if (sole_use && draw.Percent(options.accumulate_percent)) {
        const ValueId other = group.inputs[0] == in ? group.inputs.back() : group.inputs[0];
        group.body = ToCall({.m = 128,
                             .n = 128,
                             .k = 1,
                             .a = {.value = other},
                             .b = {.value = other},
                             .d = {.value = out},
                             .accumulate = true},
                            in);
        break;
      }
    }
  }
  return random;
}

}  // namespace retrograd
