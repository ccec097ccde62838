// Zeros behind operands of matmuls: where the price says that they win, and that nothing else
// changes.
#include "fusion/lower/pad_operands.h"

#include "fusion/ops/matmul/matmul_call.h"
#include "fusion/planner/planner.h"
#include "tests/catch.h"
#include "tests/support/plans/changed_spec.h"
#include "tests/support/plans/same_outputs.h"

namespace retrograd {
namespace {

DeviceSpec Device(const std::vector<DeviceNumber>& numbers = {}) {
  return ChangedSpec("h200", numbers);
}

// On which even small products are worth a pad.
DeviceSpec Slow() {
  return Device({{"matmul_odd_pitch_factor", 100},
                 {"matmul_pitch_4_factor", 100},
                 {"matmul_pitch_8_factor", 100},
                 {"matmul_odd_extent_factor", 100},
                 {"matmul_tiles_wait_us", 1000}});
}

// The backward of a linear layer over a vocabulary: dx = dy·w, dw = dyᵀ·x, dy = tanh(logits).
BackwardGraph Vocabulary(int64_t words, int64_t tokens, int64_t width, DType dtype) {
  GraphBuilder b("vocabulary");
  const ValueId logits =
      b.Input({dtype, {tokens, words}}, {.name = "logits", .kind = InputKind::kSaved});
  const ValueId w = b.Input({dtype, {words, width}}, {.name = "w", .kind = InputKind::kParameter});
  const ValueId x = b.Input({dtype, {tokens, width}}, {.name = "x", .kind = InputKind::kSaved});
  const ValueId dy = b.Add(Op::tanh, {logits});
  b.Output(b.MatMul(dy, w), "dx");
  b.Output(b.MatMul(b.Permute(dy, {1, 0}), x), "dw");
  auto graph = b.Build();
  REQUIRE(graph.ok());
  return *std::move(graph);
}

Planned PlanOf(const BackwardGraph& graph, const DeviceSpec& device) {
  auto planned = PlanFusion(graph, device, {});
  INFO(planned.status());
  REQUIRE(planned.ok());
  REQUIRE(planned->plan.Verify(planned->graph).ok());
  return *std::move(planned);
}

std::vector<MatMulCall> MatMulsOf(const FusionPlan& plan) {
  std::vector<MatMulCall> calls;
  for (const Group& group : plan.groups) {
    if (const Call* call = CallOf(group)) calls.push_back(MatMulOf(*call));
  }
  return calls;
}

bool Aligned(const MatMulCall& c) { return c.m % 8 == 0 && c.n % 8 == 0 && c.k % 8 == 0; }

int Pads(const BackwardGraph& g) {
  int count = 0;
  for (uint32_t i = 0; i < g.num_nodes(); ++i) count += g.op(NodeId{i}) == Op::pad;
  return count;
}

TEST_CASE("a vocabulary that vectors do not divide is padded for both of its matmuls") {
  for (const int64_t words : {30522, 50257, 32003}) {
    INFO(words);
    const BackwardGraph graph = Vocabulary(words, 4096, 768, DType::kBf16);
    const Planned padded = PlanOf(graph, Device());
    const std::vector<MatMulCall> calls = MatMulsOf(padded.plan);
    REQUIRE(calls.size() == 2);
    for (const MatMulCall& call : calls) CHECK(Aligned(call));
    // Aligned, the same step costs hardly less: what the zeros cost is little.
    const Planned even = PlanOf(Vocabulary((words + 7) / 8 * 8, 4096, 768, DType::kBf16), Device());
    CHECK(padded.plan.summary.price_ps < even.plan.summary.price_ps * 3 / 2);
  }
}

TEST_CASE("padded operands mean the same, in any order and size") {
  for (const auto& [words, tokens, width] :
       {std::tuple(33, 40, 24), std::tuple(17, 9, 13), std::tuple(64, 15, 16)}) {
    const BackwardGraph graph = Vocabulary(words, tokens, width, DType::kBf16);
    const auto padded = PadOperands(graph, Slow());
    REQUIRE(padded.ok());
    CHECK(LargestDifference(graph, *padded) == 0);
    CHECK(LargestDifference(graph, PlanOf(graph, Slow()).graph) <= 1e-10);
  }
}

TEST_CASE("operands stay as they are where zeros would not win") {
  // Small: a copy takes longer than what is lost. Aligned, and in fp32: nothing is lost.
  for (const BackwardGraph& graph :
       {Vocabulary(37, 64, 32, DType::kBf16), Vocabulary(1024, 4096, 768, DType::kBf16),
        Vocabulary(30522, 512, 768, DType::kFp32)}) {
    const auto padded = PadOperands(graph, Device());
    REQUIRE(padded.ok());
    CHECK(*padded == graph);
  }
}

TEST_CASE("operands are padded where that wins by more than the margin, and not otherwise") {
  const BackwardGraph graph = Vocabulary(30522, 4096, 768, DType::kBf16);
  DeviceSpec device = Device();
  CHECK(Pads(*PadOperands(graph, device)) > 0);
  device.margin_ps = int64_t{1} << 50;  // far beyond what the step takes
  CHECK(*PadOperands(graph, device) == graph);
}

TEST_CASE("a pad that one matmul is given is no cost to another") {
  const BackwardGraph graph = Vocabulary(2051, 40, 32, DType::kBf16);
  const Planned planned = PlanOf(graph, Slow());
  for (const MatMulCall& call : MatMulsOf(planned.plan)) CHECK(Aligned(call));
  CHECK(Pads(planned.graph) <= 2);  // of dy, which both read, and of w
}

}  // namespace
}  // namespace retrograd
