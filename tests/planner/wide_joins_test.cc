// Joins of hundreds of parts: which are cut into joins of joins, and that they mean the same.
#include "fusion/lower/wide_joins.h"

#include <random>

#include "fusion/planner/planner.h"
#include "tests/catch.h"
#include "tests/support/graphs/parsed_graph.h"
#include "tests/support/plans/changed_spec.h"
#include "tests/support/plans/same_outputs.h"

namespace retrograd {
namespace {

// On which a kernel of a few elements takes as long as it has instructions.
DeviceSpec Slow() {
  return ChangedSpec("h200", {{"launch_graph_us", 0.001}, {"block_us", 0.001}, {"clock_hz", 1e6}});
}

BackwardGraph Cut(const BackwardGraph& graph, const DeviceSpec& device, bool place = true) {
  auto cut = CutWideJoins(graph, {}, place, device);
  INFO(cut.status());
  REQUIRE(cut.ok());
  REQUIRE(cut->Verify().ok());
  return *std::move(cut);
}

int Count(const BackwardGraph& g, Op op) {
  int n = 0;
  for (uint32_t i = 0; i < g.num_nodes(); ++i) n += g.op(NodeId{i}) == op;
  return n;
}

size_t MostParts(const BackwardGraph& g) {
  size_t most = 0;
  for (uint32_t i = 0; i < g.num_nodes(); ++i) {
    if (g.op(NodeId{i}) == Op::cat) most = std::max(most, g.operands(NodeId{i}).size());
  }
  return most;
}

struct Part {
  int64_t start = 0, extent = 1;
};

// The sum of parts of an axis, each the square of an input.
BackwardGraph SumOf(const std::vector<Part>& parts, Shape whole, size_t axis) {
  GraphBuilder b("sum");
  std::vector<ValueId> values;
  std::vector<int64_t> starts;
  for (const Part& part : parts) {
    Shape shape = whole;
    shape[axis] = part.extent;
    const ValueId x = b.Input({DType::kFp32, shape}, {.name = std::to_string(values.size())});
    values.push_back(b.Add(Op::mul, {x, x}));
    for (size_t d = 0; d < whole.size(); ++d) starts.push_back(d == axis ? part.start : 0);
  }
  b.Output(b.Add(Op::accumulate, values, {{"shape", whole}, {"starts", std::move(starts)}}), "sum");
  auto graph = b.Build();
  INFO(graph.status());
  REQUIRE(graph.ok());
  return *std::move(graph);
}

// As a loop over the places of an axis leaves them.
BackwardGraph Steps(int64_t steps, Shape whole, size_t axis) {
  std::vector<Part> parts;
  for (int64_t i = 0; i < steps; ++i) parts.push_back({.start = steps - 1 - i});
  whole[axis] = steps;
  return SumOf(parts, std::move(whole), axis);
}

TEST_CASE("parts that fill an axis are joined step by step, to the same values") {
  const uint32_t seed = GENERATE(range(0u, 12u));
  INFO("seed " << seed);
  std::mt19937 random(seed);
  std::vector<Part> parts;
  int64_t extent = 0;
  const int count = 40 + static_cast<int>(random() % 400);
  for (int i = 0; i < count; ++i) {
    const int64_t length = 1 + static_cast<int64_t>(random() % 3);
    parts.push_back({extent, length});
    extent += length;
  }
  std::shuffle(parts.begin(), parts.end(), random);
  const size_t axis = random() % 3;
  Shape whole = {3, 2, 4};
  whole[axis] = extent;
  const BackwardGraph graph = SumOf(parts, whole, axis);
  const BackwardGraph cut = Cut(graph, Slow());
  CHECK(Count(cut, Op::accumulate) == 0);
  CHECK(MostParts(cut) * MostParts(cut) <= 2 * parts.size());  // about the root
  CHECK(LargestDifference(graph, cut) == 0);
  auto planned = PlanFusion(graph, Slow(), {});
  REQUIRE(planned.ok());
  CHECK(planned->plan.Verify(planned->graph).ok());
}

TEST_CASE("a wide cat is cut, to the same values, parts of any extents and of bf16") {
  const DType dtype = GENERATE(DType::kFp32, DType::kBf16, DType::kInt64);
  GraphBuilder b("cat");
  std::vector<ValueId> parts;
  for (int64_t i = 0; i < 150; ++i) {
    parts.push_back(b.Input({dtype, {2, i % 4, 3}}, {.name = std::to_string(i)}));
  }
  b.Output(b.Cat(parts, 1), "joined");
  const auto graph = b.Build();
  REQUIRE(graph.ok());
  const BackwardGraph cut = Cut(*graph, Slow());
  CHECK(MostParts(cut) < 150);
  CHECK(LargestDifference(*graph, cut) == 0);
}

TEST_CASE("sums of parts that leave places out, meet, or lie along two axes stay sums") {
  std::vector<Part> parts;
  for (int64_t i = 0; i < 100; ++i) parts.push_back({.start = i});
  const auto stays = [](const BackwardGraph& graph) {
    return Count(Cut(graph, Slow()), Op::accumulate) == 1;
  };
  CHECK_FALSE(stays(SumOf(parts, {100, 4}, 0)));
  CHECK(stays(SumOf(parts, {101, 4}, 0)));
  parts[50].start = 49;
  CHECK(stays(SumOf(parts, {100, 4}, 0)));
  parts[50] = {.start = 50, .extent = 2};
  CHECK(stays(SumOf(parts, {100, 4}, 0)));

  GraphBuilder b("corners");
  std::vector<ValueId> values;
  std::vector<int64_t> starts;
  for (int64_t i = 0; i < 100; ++i) {
    values.push_back(b.Input({DType::kFp32, {1, 1}}, {.name = std::to_string(i)}));
    starts.insert(starts.end(), {i / 10, i % 10});
  }
  b.Output(b.Add(Op::accumulate, values, {{"shape", Shape{10, 10}}, {"starts", starts}}), "sum");
  CHECK(stays(*b.Build()));
}

TEST_CASE("a join is cut where looking at all parts takes longer than to move them again") {
  const DeviceSpec device = ChangedSpec("h200", {});
  CHECK(Count(Cut(Steps(512, {2, 1536, 0, 16}, 2), device), Op::accumulate) == 0);
  CHECK(Count(Cut(Steps(8, {2, 1536, 0, 1024}, 2), device), Op::accumulate) == 1);  // few
  // Launches take longer.
  CHECK(Count(Cut(Steps(512, {8, 0, 16}, 1), device), Op::accumulate) == 1);
  CHECK(Count(Cut(Steps(1024, {2, 0, 16}, 1), device), Op::accumulate) == 1);
}

TEST_CASE("a join that is stored side by side by those who make its parts stays") {
  GraphBuilder b("rows");
  const ValueId w = b.Input({DType::kBf16, {256, 256}}, {.name = "w"});
  std::vector<ValueId> parts;
  for (int i = 0; i < 200; ++i) {
    const ValueId x = b.Input({DType::kBf16, {64, 256}}, {.name = "x" + std::to_string(i)});
    parts.push_back(b.Add(Op::tanh, {x}));
  }
  b.Output(b.MatMul(b.Add(Op::cat, parts, {{"axis", int64_t{0}}}), w), "y");
  const auto graph = b.Build();
  REQUIRE(graph.ok());
  CHECK(Cut(*graph, Slow()) == *graph);
  CHECK(MostParts(Cut(*graph, Slow(), /*place=*/false)) < 200);
}

}  // namespace
}  // namespace retrograd
