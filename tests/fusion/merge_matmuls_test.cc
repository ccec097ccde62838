#include "fusion/gemm_merge/merge_matmuls.h"

#include <cmath>
#include <random>

#include "absl/strings/str_cat.h"
#include "fusion/planner/planner.h"
#include "graph/reference/reference.h"
#include "models/models.h"
#include "runtime/memory/memory_plan.h"
#include "runtime/schedule/stream_schedule.h"
#include "tests/catch.h"
#include "tests/support/graphs/random_graph.h"
#include "tests/support/plans/run_plan.h"
#include "tests/support/plans/same_outputs.h"

namespace retrograd {
namespace {

using Merging = PlanOptions::Merging;

struct Layer {
  int64_t batch = 2, tokens = 24, width = 48, head_dim = 16;
  std::vector<int64_t> heads = {3, 3, 3};  // of each projection
  DType dtype = DType::kFp64;
  bool attention = false;  // of three projections: their gradients come out of an attention
  bool residual = false;   // the sum of input gradients starts with another contribution
  bool transposed_weights = false;
  bool widened = false;  // products are cast to fp32 before they are added; so are outputs
  bool part_is_output = false;
};

InputInfo Named(std::string name, InputKind kind) {
  return {.name = std::move(name), .kind = kind};
}

// Gradients of projections of one input: what they came from, their weights' and the input's.
BackwardGraph Projections(const Layer& l) {
  GraphBuilder b("projections");
  const int64_t rows = l.batch * l.tokens;
  const ValueId x = b.Input({l.dtype, {rows, l.width}}, Named("x", InputKind::kSaved));
  std::vector<ValueId> heads;  // gradients [batch, heads, tokens, head_dim]
  if (l.attention) {
    auto tensor = [&](absl::string_view name, int64_t h) {
      return b.Input({l.dtype, {l.batch, h, l.tokens, l.head_dim}},
                     Named(std::string(name), InputKind::kSaved));
    };
    const ValueId d_out = tensor("do", l.heads[0]), q = tensor("q", l.heads[0]);
    const ValueId k = tensor("k", l.heads[1]), v = tensor("v", l.heads[2]);
    const ValueId out = tensor("o", l.heads[0]);
    const DType sums = l.dtype == DType::kFp64 ? DType::kFp64 : DType::kFp32;
    const ValueId lse =
        b.Input({sums, {l.batch, l.heads[0], l.tokens}}, Named("lse", InputKind::kSaved));
    const NodeId attention =
        b.Add(Op::attention_backward, {d_out, q, k, v, out, lse},
              {{"causal", 1}, {"dropout_p", 0.0}, {"scale", 0.25}, {"variant", "flash_cpu"}})
            .node;
    for (uint32_t r = 0; r < 3; ++r) heads.push_back({attention, r});
    // As a rotary embedding does it: two of the three go through another kernel.
    const ValueId turn =
        b.Input({l.dtype, {l.tokens, l.head_dim}}, Named("cos", InputKind::kSaved));
    for (size_t i : {0, 1}) heads[i] = b.Add(Op::mul, {heads[i], turn});
  } else {
    for (size_t i = 0; i < l.heads.size(); ++i) {
      const TensorType type{l.dtype, {l.batch, l.heads[i], l.tokens, l.head_dim}};
      const ValueId dy = b.Input(type, Named(absl::StrCat("dy", i), InputKind::kTangent));
      const ValueId saved = b.Input(type, Named(absl::StrCat("s", i), InputKind::kSaved));
      heads.push_back(b.Add(Op::mul, {dy, saved}));
    }
  }
  const DType sum_dtype = l.widened ? DType::kFp32 : l.dtype;
  std::optional<ValueId> dx;
  if (l.residual) {
    const ValueId r = b.Input({sum_dtype, {rows, l.width}}, Named("r", InputKind::kTangent));
    dx = b.Add(Op::mul, {r, r});
  }
  for (size_t i = 0; i < heads.size(); ++i) {
    const int64_t w = l.heads[i] * l.head_dim;
    const ValueId dy = b.Reshape(b.Permute(heads[i], {0, 2, 1, 3}), {rows, w});
    if (l.part_is_output && i == 1) b.Output(heads[i], "part");
    const Shape weight = l.transposed_weights ? Shape{l.width, w} : Shape{w, l.width};
    ValueId wi = b.Input({l.dtype, weight}, Named(absl::StrCat("w", i), InputKind::kParameter));
    if (l.transposed_weights) wi = b.Permute(wi, {1, 0});
    const ValueId dw = b.MatMul(b.Permute(dy, {1, 0}), x);
    b.Output(b.Cast(dw, sum_dtype), absl::StrCat("w", i));
    const ValueId product = b.Cast(b.MatMul(dy, wi), sum_dtype);
    dx = dx ? b.Add(Op::add, {*dx, product}) : product;
  }
  b.Output(b.Add(Op::mul, {*dx, *dx}), "x");
  auto graph = b.Build();
  INFO(graph.status());
  REQUIRE(graph.ok());
  return *std::move(graph);
}

int MatMuls(const BackwardGraph& g) {
  int count = 0;
  for (uint32_t i = 0; i < g.num_nodes(); ++i) count += g.op(NodeId{i}) == Op::matmul;
  return count;
}

DeviceSpec H200() { return *LoadDeviceSpec("h200"); }

int Aliases(const FusionPlan& plan) {
  int count = 0;
  for (const Group& group : plan.groups) count += (AliasOf(group) != nullptr);
  return count;
}

// Runs the plan's kernels on the host and compares with the unmerged graph's reference.
FusionPlan CheckRun(const BackwardGraph& graph, Merging merging, double tolerance,
                    RunSetup setup = {}) {
  setup.plan.merging = merging;
  const std::vector<Values> inputs = RandomInputs(graph, 5);
  auto run = RunOnHost(graph, inputs, setup);
  INFO(run.status());
  REQUIRE(run.ok());
  const auto expected = Evaluate(graph, inputs);
  REQUIRE(expected.ok());
  for (size_t o = 0; o < graph.outputs().size(); ++o) {
    const Values& want = (*expected)[graph.value_index(*graph.outputs()[o].value)];
    double largest = 1e-30, error = 0;
    for (size_t i = 0; i < want.size(); ++i) {
      largest = std::max(largest, std::abs(want[i]));
      const double difference = std::abs(want[i] - run->outputs[o][i]);
      error = difference <= error ? error : difference;
    }
    INFO("output " << o << " error " << error << " of " << largest);
    CHECK(error <= tolerance * largest);
  }
  return run->planned.plan;
}

TEST_CASE(
    "projections of one input become one weight gradient and one input gradient, and mean the "
    "same") {
  std::mt19937 random(20261121);
  for (int round = 0; round < 40; ++round) {
    Layer l;
    l.batch = 1 + random() % 2;
    l.tokens = 1 + random() % 6;
    l.width = 4 + random() % 9;
    l.head_dim = 1 + random() % 5;
    l.attention = random() % 2 == 0;
    const size_t projections = l.attention ? 3 : 2 + random() % 3;
    const int64_t kv = 1 + random() % 2;
    l.heads.assign(projections, kv);
    l.heads[0] = kv * (1 + random() % 3);
    l.residual = random() % 2 == 0;
    l.transposed_weights = random() % 3 == 0;
    INFO("round " << round);
    const BackwardGraph graph = Projections(l);
    const auto lowered = LowerAndLayOut(graph);
    REQUIRE(lowered.ok());
    const DeviceSpec device = H200();
    const auto merged = MergeMatMuls(*lowered, device, {.regardless = true});
    INFO(merged.status());
    REQUIRE(merged.ok());
    REQUIRE(merged->graph.Verify().ok());
    CHECK(MatMuls(lowered->graph) == 2 * static_cast<int>(projections));
    CHECK(MatMuls(merged->graph) == 2);
    CHECK(LargestDifference(graph, merged->graph) <= 1e-10);
    REQUIRE(merged->decisions.size() == 2);
    for (const Decision& d : merged->decisions) {
      CHECK(d.together);
      REQUIRE(d.a.size() == 1);
      CHECK(merged->graph.op(d.a[0]) == Op::matmul);
    }
  }
}

TEST_CASE("merged matmuls run: attention with grouped heads, rotary producers, a residual") {
  Layer l;
  l.attention = GENERATE(false, true);
  l.residual = GENERATE(false, true);
  l.heads = {4, 2, 2};
  const FusionPlan plan = CheckRun(Projections(l), Merging::kAlways, 1e-10);
  int matmuls = 0;
  for (const Group& group : plan.groups)
    matmuls += CallOf(group) != nullptr && CallOf(group)->op == Op::matmul;
  CHECK(matmuls == 2);
  CHECK(Aliases(plan) == 1);  // of the gradients; the weights are the host's and copied
}

TEST_CASE("parts that several streams store side by side are all there when the whole is read") {
  Layer l;
  l.attention = GENERATE(false, true);
  l.heads = {4, 2, 2};
  RunSetup setup;
  setup.compile.schedule.streams = 3;
  setup.host.compile.check = true;
  const FusionPlan plan = CheckRun(Projections(l), Merging::kAlways, 1e-10, setup);
  CHECK(Aliases(plan) == 1);
}

TEST_CASE(
    "a placed join whose parts lie elsewhere is found by the plan checker and the memory plan's") {
  Layer l{.heads = {4, 2, 2}, .attention = true};
  PlanOptions options;
  options.merging = Merging::kAlways;
  auto planned = PlanFusion(Projections(l), H200(), options);
  REQUIRE(planned.ok());
  REQUIRE(planned->plan.Verify(planned->graph).ok());
  for (Group& group : planned->plan.groups) {
    Alias* join = AliasOf(group);
    if (join == nullptr) continue;
    join->parts[1].offset += 2;
    CHECK(planned->plan.Verify(planned->graph).message().substr(0, 2) == "P6");
    join->parts[1].offset -= 2;
    std::swap(join->parts[1], join->parts[2]);
    CHECK_FALSE(planned->plan.Verify(planned->graph).ok());
    std::swap(join->parts[1], join->parts[2]);
  }
  auto schedule = ScheduleStreams(planned->graph, planned->plan, {});
  REQUIRE(schedule.ok());
  auto memory = PlanMemory(planned->graph, planned->plan, *schedule, {});
  REQUIRE(memory.ok());
  REQUIRE(memory->Verify(planned->graph, planned->plan, *schedule).ok());
  const auto parsed = ParseMemoryPlan(memory->Print());
  REQUIRE(parsed.ok());
  CHECK(*parsed == *memory);
  int inside = 0;
  for (Placement& p : memory->placements) {
    if (!p.inside) continue;
    ++inside;
    p.offset += 16;
    CHECK_FALSE(memory->Verify(planned->graph, planned->plan, *schedule).ok());
    p.offset -= 16;
  }
  CHECK(inside == 3);
}

TEST_CASE("bf16 products that the graph widens and adds in fp32 become one bf16 product") {
  Layer l;
  l.dtype = DType::kBf16;
  l.widened = true;
  const FusionPlan plan = CheckRun(Projections(l), Merging::kAlways, 2e-2);
  for (const Group& group : plan.groups) {
    const Call* call = CallOf(group);
    if (call != nullptr) CHECK(call->results[0].dtype == DType::kBf16);
  }
}

// The host's strides are not the ones that a matmul reads, so lowering copies what it reads; the
// copy is what lies in the join.
TEST_CASE(
    "a part that is an output of the graph keeps its own memory and is copied into the join") {
  Layer l;
  l.part_is_output = true;
  l.attention = GENERATE(false, true);
  const FusionPlan plan = CheckRun(Projections(l), Merging::kAlways, 1e-10);
  CHECK(Aliases(plan) == 1);
}

TEST_CASE("matmuls that wait for each other are not merged") {
  // dw1 = aᵀ·x and dw2 = (a * dw1's own sum)ᵀ·x: the second needs the first.
  GraphBuilder b("waits");
  const TensorType square{DType::kFp64, {8, 8}};
  const ValueId x = b.Input(square, Named("x", InputKind::kSaved));
  const ValueId a = b.Input(square, Named("a", InputKind::kTangent));
  const ValueId first = b.MatMul(b.Permute(a, {1, 0}), x);
  const ValueId second = b.MatMul(b.Permute(b.Add(Op::mul, {a, first}), {1, 0}), x);
  b.Output(first, "first");
  b.Output(second, "second");
  const BackwardGraph graph = *b.Build();
  const auto merged = MergeMatMuls(*LowerAndLayOut(graph), H200(), {.regardless = true});
  REQUIRE(merged.ok());
  CHECK(MatMuls(merged->graph) == 2);
  REQUIRE(merged->decisions.size() == 1);
  CHECK_FALSE(merged->decisions[0].together);
  CHECK(merged->decisions[0].limit == "cycle");
  CHECK(merged->decisions[0].a.size() + merged->decisions[0].b.size() == 2);
  CHECK(LargestDifference(graph, merged->graph) <= 1e-12);
}

TEST_CASE("inputs and outputs keep their order, whichever matmul reads an input first") {
  for (const char* name : {"resnet:blocks1=1,blocks2=1,blocks3=1,blocks4=1,batch=2,image=32,width="
                           "4,classes=5,dtype=fp32",
                           "golf_tiny", "llama_tiny", "bert_tiny", "vit:layers=1,batch=2"}) {
    INFO(name);
    const auto graph = BuildModel(name);
    REQUIRE(graph.ok());
    const auto lowered = LowerAndLayOut(*graph);
    REQUIRE(lowered.ok());
    const auto merged = MergeMatMuls(*lowered, H200(), {.regardless = true});
    REQUIRE(merged.ok());
    const auto names = [](const BackwardGraph& g) {
      std::vector<std::string> names;
      for (NodeId id : InputNodes(g)) names.push_back(g.node(id).input->name);
      for (const GraphOutput& out : g.outputs()) names.push_back(out.name);
      return names;
    };
    CHECK(names(merged->graph) == names(lowered->graph));
    CHECK(names(merged->graph) == names(*graph));
  }
}

TEST_CASE("merging is chosen where matmuls are small for the chip and refused where they fill it") {
  const DeviceSpec device = H200();
  Layer bert{.batch = 8,
             .tokens = 512,
             .width = 768,
             .head_dim = 64,
             .heads = {12, 12, 12},
             .dtype = DType::kBf16};
  const auto small = MergeMatMuls(*LowerAndLayOut(Projections(bert)), device);
  REQUIRE(small.ok());
  CHECK(MatMuls(small->graph) == 2);
  // Two wide projections of a wide input: each fills the chip, and weights are large to join.
  Layer wide{.batch = 4,
             .tokens = 2048,
             .width = 4096,
             .head_dim = 128,
             .heads = {86, 86},
             .dtype = DType::kBf16};
  const auto large = MergeMatMuls(*LowerAndLayOut(Projections(wide)), device);
  REQUIRE(large.ok());
  CHECK(MatMuls(large->graph) == 4);
  for (const Decision& d : large->decisions) {
    CHECK_FALSE(d.together);
    CHECK(d.together_ps > 0);
    CHECK(d.reason.find("stay apart") != std::string::npos);
  }
}

TEST_CASE("merging twice gives the same graph and the same plan") {
  Layer l{.heads = {4, 2, 2}, .attention = true};
  PlanOptions options;
  options.merging = Merging::kAlways;
  const auto a = PlanFusion(Projections(l), H200(), options);
  const auto b = PlanFusion(Projections(l), H200(), options);
  REQUIRE(a.ok());
  REQUIRE(b.ok());
  CHECK(a->plan == b->plan);
  CHECK(a->plan.Print(a->graph) == b->plan.Print(b->graph));
}

TEST_CASE("captured steps keep their gradients when matmuls merge wherever they can") {
  const std::string name =
      GENERATE(as<std::string>{}, "golf_tiny", "llama_tiny", "bert_tiny", "gpt2_tiny");
  INFO(name);
  const auto graph = BuildModel(name);
  REQUIRE(graph.ok());
  const auto lowered = LowerAndLayOut(*graph);
  REQUIRE(lowered.ok());
  const auto merged = MergeMatMuls(*lowered, H200(), {.regardless = true});
  INFO(merged.status());
  REQUIRE(merged.ok());
  if (name != "gpt2_tiny") CHECK(MatMuls(merged->graph) < MatMuls(lowered->graph));
  CHECK(LargestDifference(*graph, merged->graph) <= 1e-9);
}

}  // namespace
}  // namespace retrograd
