// Matmuls of few rows, columns or terms: which become sums of products, and that they mean the
// same.
#include "fusion/lower/thin_matmuls.h"

#include "fusion/planner/planner.h"
#include "tests/catch.h"
#include "tests/support/plans/changed_spec.h"
#include "tests/support/plans/same_outputs.h"

namespace retrograd {
namespace {

DeviceSpec Device(const std::vector<DeviceNumber>& numbers = {}) {
  return ChangedSpec("h100", numbers);
}

BackwardGraph Matmul(const Shape& a, const Shape& b, DType in, DType out) {
  GraphBuilder builder("product");
  const ValueId left = builder.Input({in, a}, {.name = "a"});
  const ValueId right = builder.Input({in, b}, {.name = "b"});
  Attrs attrs;
  attrs.Set("dtype", std::string(Name(out)));
  builder.Output(builder.Add(Op::matmul, {left, right}, attrs), "d");
  auto graph = builder.Build();
  INFO(graph.status());
  REQUIRE(graph.ok());
  return *std::move(graph);
}

BackwardGraph Expanded(const BackwardGraph& graph, const DeviceSpec& device = Device()) {
  auto expanded = ExpandThinMatMuls(graph, device);
  INFO(expanded.status());
  REQUIRE(expanded.ok());
  return *std::move(expanded);
}

int MatMuls(const BackwardGraph& g) {
  int count = 0;
  for (uint32_t i = 0; i < g.num_nodes(); ++i) count += g.op(NodeId{i}) == Op::matmul;
  return count;
}

int MatMulsOf(int64_t m, int64_t n, int64_t k) {
  return MatMuls(Expanded(Matmul({m, k}, {k, n}, DType::kBf16, DType::kBf16)));
}

TEST_CASE("few rows, few columns and few terms are no matmul, and mean the same") {
  const DType in = GENERATE(DType::kBf16, DType::kFp16, DType::kFp32, DType::kFp64);
  for (const auto& [a, b] : std::vector<std::pair<Shape, Shape>>{{{2, 24}, {24, 40}},
                                                                 {{40, 24}, {24, 1}},
                                                                 {{17, 3}, {3, 33}},
                                                                 {{1, 1}, {1, 1}},
                                                                 {{5, 2, 30}, {5, 30, 7}},
                                                                 {{2, 3, 9, 2}, {2, 3, 2, 11}}}) {
    const BackwardGraph graph = Matmul(a, b, in, in);
    const BackwardGraph expanded = Expanded(graph);
    CHECK(MatMuls(expanded) == 0);
    CHECK(LargestDifference(graph, expanded) <= (SizeBytes(in) == 2 ? 1e-2 : 1e-6));
  }
}

TEST_CASE("a wide result is not rounded in between") {
  const BackwardGraph graph = Matmul({2, 24}, {24, 40}, DType::kBf16, DType::kFp32);
  const BackwardGraph expanded = Expanded(graph);
  CHECK(MatMuls(expanded) == 0);
  CHECK(LargestDifference(graph, expanded) <= 1e-6);
}

TEST_CASE("what fills tensor cores stays a matmul") {
  CHECK(MatMulsOf(9, 64, 64) == 1);
  CHECK(MatMulsOf(64, 9, 64) == 1);
  CHECK(MatMulsOf(64, 64, 16) == 1);
  CHECK(MatMulsOf(4096, 4096, 4096) == 1);
}

TEST_CASE("a sum of products that takes a little less than the library needs no margin") {
  const DeviceSpec h200 = ChangedSpec("h200", {});
  // Both gradients of a squeeze of 32 channels into 8, for two images.
  for (const auto& [a, b] :
       std::vector<std::pair<Shape, Shape>>{{{2, 8}, {8, 32}}, {{8, 2}, {2, 32}}}) {
    CHECK(MatMuls(Expanded(Matmul(a, b, DType::kBf16, DType::kBf16), h200)) == 0);
    CHECK(MatMuls(Expanded(Matmul(a, b, DType::kBf16, DType::kBf16),
                           ChangedSpec("h200", {{"library_call_us", 0.5}}))) == 1);
  }
}

TEST_CASE("the price decides: what is read again and again for few rows stays with the library") {
  CHECK(MatMulsOf(2, 48, 1152) == 0);
  CHECK(MatMulsOf(8, 4096, 200000) == 1);
  CHECK(MatMulsOf(200000, 8, 64) == 1);
}

TEST_CASE("numbers of the device decide") {
  const BackwardGraph graph = Matmul({2, 32}, {32, 64}, DType::kBf16, DType::kBf16);
  CHECK(MatMuls(Expanded(graph, Device())) == 0);
  CHECK(MatMuls(Expanded(graph, Device({{"library_call_us", 0.01}}))) == 1);
  CHECK(MatMuls(Expanded(graph, Device({{"block_us", 50}}))) == 1);
}

TEST_CASE("empty products stay") {
  CHECK(MatMulsOf(0, 8, 8) == 1);
  CHECK(MatMulsOf(8, 8, 0) == 1);
}

TEST_CASE(
    "a plan of a thin matmul and its neighbours is one kernel, and can be told to have a call") {
  GraphBuilder b("gate");
  const ValueId dy = b.Input({DType::kBf16, {2, 32}}, {.name = "dy"});
  const ValueId w = b.Input({DType::kBf16, {32, 256}}, {.name = "w"});
  const ValueId y = b.Input({DType::kBf16, {2, 256}}, {.name = "y"});
  b.Output(b.Add(Op::mul, {b.MatMul(dy, w), y}), "dx");
  auto graph = b.Build();
  REQUIRE(graph.ok());
  const auto groups = [&](const PlanOptions& options) {
    auto planned = PlanFusion(*graph, Device(), options);
    INFO(planned.status());
    REQUIRE(planned.ok());
    REQUIRE(planned->plan.Verify(planned->graph).ok());
    return planned->plan.groups.size();
  };
  CHECK(groups({}) == 1);
  CHECK(groups({.disable = {"thin_matmuls", "matmul_epilogues"}}) == 2);
}

}  // namespace
}  // namespace retrograd
